"""The settings of a consumer that shares its topics with its group: what they must be, and what is made of them."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

from penstock.arguments import check
from penstock.errors import as_sdk_error
from penstock.heartbeat import MemberSettings
from penstock.retry import RetryPolicy
from penstock.system import new_member_id, process_name
from penstock_core.errors import PenstockError
from penstock_core.group import ASSIGNORS, GroupConfig, alter_group_config, parse_subscription
from penstock_core.limits import CLIENT_ID_LENGTH_MAX

AssignmentStrategy = Literal["sticky", "range", "round_robin"]

MAX_POLL_INTERVAL_MS = 300_000

_CONFIG = {
    "partition_assignment_strategy": "assignor",
    "session_timeout_ms": "session_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
}


def check_group_settings(topics: Collection[str], group_id: str | None, given: Mapping[str, Any]) -> None:
    """Raises InvalidError for settings (by name; None: not given) that mean nothing, or nothing without a group."""
    if not topics or group_id is None:
        for name, value in given.items():
            check(value is None, f"{name} is for consumers of topics in a group: give topics and a group_id")
        for topic in topics:
            check("*" not in topic, f"topic pattern {topic!r}: give a group_id, only groups take patterns")
    interval_ms = given["max_poll_interval_ms"]
    check(interval_ms is None or interval_ms >= 1, f"max_poll_interval_ms={interval_ms}: use 1 or more")
    check(given["group_instance_id"] != "", "group_instance_id='': use 1 character or more")
    strategy = given["partition_assignment_strategy"]
    check(strategy in (None, *ASSIGNORS), f"partition_assignment_strategy={strategy!r}: use {', '.join(ASSIGNORS)}")
    try:
        alter_group_config(GroupConfig(), _config(given))
    except PenstockError as error:
        raise as_sdk_error(error) from None


def member_settings(topics: Collection[str], given: Mapping[str, Any], retry: RetryPolicy) -> MemberSettings:
    """Who the consumer is in its group. Raises InvalidError for what cannot be a pattern, or too many."""
    try:
        subscription = parse_subscription(
            [topic for topic in topics if "*" not in topic], [topic for topic in topics if "*" in topic]
        )
    except PenstockError as error:
        raise as_sdk_error(error) from None
    return MemberSettings(
        member_id=new_member_id(),
        instance_id=given["group_instance_id"],
        client_id=(given["client_id"] or process_name())[:CLIENT_ID_LENGTH_MAX],
        topics=subscription.topics,
        patterns=subscription.patterns,
        config=_config(given),
        max_poll_interval_ms=given["max_poll_interval_ms"] or MAX_POLL_INTERVAL_MS,
        retry=retry,
    )


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    return {setting: given[name] for name, setting in _CONFIG.items() if given[name] is not None}
