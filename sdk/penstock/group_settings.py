"""The settings of a consumer that shares its topics with its group: what they must be, and what is made of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from penstock.arguments import check
from penstock.calls import checked_topic
from penstock.errors import as_sdk_error
from penstock.heartbeat import MemberSettings
from penstock.retry import RetryPolicy
from penstock.system import new_member_id, process_name
from penstock_core.errors import PenstockError
from penstock_core.group import ASSIGNORS, GroupConfig, Subscription, alter_group_config, parse_subscription
from penstock_core.limits import CLIENT_ID_LENGTH_MAX

AssignmentStrategy = Literal["sticky", "range", "round_robin"]

MAX_POLL_INTERVAL_MS = 300_000

_CONFIG = {
    "partition_assignment_strategy": "assignor",
    "session_timeout_ms": "session_timeout_ms",
    "heartbeat_interval_ms": "heartbeat_interval_ms",
}


def check_group_settings(group_id: str | None, given: Mapping[str, Any]) -> None:
    """Raises InvalidError for settings (by name; None: not given) that mean nothing, or nothing without a group."""
    if group_id is None:
        for name, value in given.items():
            check(value is None, f"{name} is for consumers of topics in a group: give topics and a group_id")
    check(given["group_instance_id"] != "", "group_instance_id='': use 1 character or more")
    strategy = given["partition_assignment_strategy"]
    check(strategy in (None, *ASSIGNORS), f"partition_assignment_strategy={strategy!r}: use {', '.join(ASSIGNORS)}")
    try:
        alter_group_config(GroupConfig(), _config(given))
    except PenstockError as error:
        raise as_sdk_error(error) from None


def checked_subscription(topics: Iterable[str], *, is_in_group: bool) -> Subscription:
    """Topics, and patterns of them: names with a `*`. Raises InvalidError for what cannot be one, too many, or none."""
    given = [topics] if isinstance(topics, str) else topics
    check(isinstance(given, Iterable), f"topics={topics!r:.100}: give a topic's name, or several in a list")
    names = list(given)
    check(bool(names), f"topics={topics!r:.100}: give one or more; unsubscribe() reads none")
    for name in names:
        check(isinstance(name, str), f"topic {name!r:.100}: give each topic as a string of its own")
        check(is_in_group or "*" not in name, f"topic pattern {name!r}: give a group_id, only groups take patterns")
    patterns = [name for name in names if "*" in name]
    try:
        return parse_subscription([checked_topic(name) for name in names if "*" not in name], patterns)
    except PenstockError as error:
        raise as_sdk_error(error) from None


def member_settings(given: Mapping[str, Any], retry: RetryPolicy) -> MemberSettings:
    """Who the consumer is in its group."""
    return MemberSettings(
        member_id=new_member_id(),
        instance_id=given["group_instance_id"],
        client_id=(given["client_id"] or process_name())[:CLIENT_ID_LENGTH_MAX],
        config=_config(given),
        max_poll_interval_ms=given["max_poll_interval_ms"] or MAX_POLL_INTERVAL_MS,
        retry=retry,
    )


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    return {setting: given[name] for name, setting in _CONFIG.items() if given[name] is not None}
