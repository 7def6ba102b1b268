from dataclasses import replace
from typing import Any

import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import (
    GroupConfig,
    GroupState,
    Subscription,
    alter_group_config,
    group_config_to_json,
    next_check_ms,
    parse_subscription,
    state_after_check,
    state_after_rebalance,
)
from penstock_core.ids import GroupName
from tests.core.groups.members import MEMBER


def test_subscription_selects_its_names_and_what_its_patterns_match() -> None:
    subscription = parse_subscription(["b", "a", "b"], ["x.*"])
    assert subscription == Subscription(topics=("a", "b"), patterns=("x.*",))
    assert [name for name in ("a", "b", "c", "x.1", "x") if subscription.selects(name)] == ["a", "b", "x.1"]


@pytest.mark.parametrize(
    "topics", [[str(each) for each in range(10_001)], ["x" * 249 + str(each) for each in range(1_100)]]
)
def test_subscription_that_would_make_every_heartbeat_dear_is_refused(topics: list[str]) -> None:
    with pytest.raises(PenstockError, match="use a pattern") as caught:
        parse_subscription(topics, [])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_config_is_altered_and_set_back() -> None:
    config = alter_group_config(GroupConfig(), {"assignor": "range", "session_timeout_ms": 60_000})
    assert (config.assignor, config.session_timeout_ms) == ("range", 60_000)
    assert alter_group_config(config, {"assignor": None, "session_timeout_ms": None}) == GroupConfig()
    assert alter_group_config(config, {"offsets_retention_ms": limits.UNLIMITED}).offsets_retention_ms == -1
    assert group_config_to_json(config)["heartbeat_interval_ms"] == 5_000


@pytest.mark.parametrize(
    "changes",
    [
        {"assignor": "best"},
        {"assignor": 1},
        {"unknown": 1},
        {"session_timeout_ms": limits.SESSION_TIMEOUT_MS_MIN - 1},
        {"session_timeout_ms": limits.SESSION_TIMEOUT_MS_MAX + 1},
        {"session_timeout_ms": -1},
        {"session_timeout_ms": True},
        {"session_timeout_ms": "9000"},
        {"heartbeat_interval_ms": limits.HEARTBEAT_INTERVAL_MS_MIN - 1},
        {"heartbeat_interval_ms": 15_001},
        {"session_timeout_ms": 14_999},
        {"offsets_retention_ms": limits.OFFSETS_RETENTION_MS_MIN - 1},
        {"offsets_retention_ms": limits.OFFSETS_RETENTION_MS_MAX + 1},
    ],
)
def test_config_out_of_bounds_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PenstockError) as caught:
        alter_group_config(GroupConfig(), changes)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_next_check_is_at_the_first_deadline_or_when_topics_are_due() -> None:
    def at(*deadlines: int) -> int:
        return next_check_ms([replace(MEMBER, deadline_ms=each) for each in deadlines], 100_000)

    assert at() == at(500_000) == 100_000 + limits.GROUP_CHECK_MS_MAX
    assert at(120_000, 110_000) == 110_000
    assert at(99_000) == 100_000 + limits.GROUP_CHECK_MS_MIN


def test_check_keeps_the_epoch_and_notes_since_when_the_group_is_empty() -> None:
    state = GroupState(name=GroupName("billing"), version=3, epoch=9, target_id="t", member_count=1)
    empty = state_after_check(state, [], 50)
    assert (empty.version, empty.epoch, empty.target_id, empty.empty_since_ms) == (4, 9, "t", 50)
    assert empty.next_check_ms == next_check_ms([], 50)
    assert state_after_check(empty, [], 70).empty_since_ms == 50
    assert state_after_check(empty, [MEMBER], 70).empty_since_ms is None


def test_rebalance_begins_the_next_epoch_or_the_first() -> None:
    state = GroupState(name=GroupName("billing"), version=3)
    first = state_after_rebalance(state, [MEMBER], 50, 700, "t1")
    assert (first.version, first.epoch, first.target_id) == (4, 700, "t1")
    assert (first.member_count, first.changed_at_ms) == (1, 50)
    second = state_after_rebalance(first, [], 60, 0, "t2")
    assert (second.epoch, second.target_id, second.member_count, second.empty_since_ms) == (701, "t2", 0, 60)
