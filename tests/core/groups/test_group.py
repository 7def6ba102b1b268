from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import (
    GroupConfig,
    GroupState,
    Member,
    MemberProgress,
    SessionTouch,
    Subscription,
    alter_group_config,
    concurrent_update,
    group_config_to_json,
    next_check_ms,
    parse_subscription,
    refuse_heartbeat,
    state_after_check,
    state_after_rebalance,
    touched,
    unknown_member,
)
from penstock_core.ids import GroupName
from tests.core.groups.members import MEMBER, OTHER

GROUP = GroupName("billing")


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


def test_heartbeat_goes_on_with_the_session() -> None:
    after = touched(
        MEMBER,
        GROUP,
        OTHER,
        SessionTouch(
            member_id="other", sequence=6, session=2, deadline_ms=200, report=MemberProgress(epoch=9, is_settled=True)
        ),
    )
    assert after == replace(MEMBER, sequence=6, deadline_ms=200, epoch=9, is_settled=True)
    assert touched(
        MEMBER, GROUP, OTHER, SessionTouch(member_id="other", sequence=6, session=2, deadline_ms=200)
    ) == replace(MEMBER, sequence=6, deadline_ms=200)
    assert (
        touched(
            after,
            GROUP,
            OTHER,
            SessionTouch(
                member_id="other",
                sequence=6,
                session=2,
                deadline_ms=200,
                report=MemberProgress(epoch=9, is_settled=True),
            ),
        )
        == after
    )
    assert (
        touched(after, GROUP, OTHER, SessionTouch(member_id="other", sequence=6, session=2, deadline_ms=200)) == after
    )
    for deadline_ms, is_settled in ((200, False), (201, True)):
        with pytest.raises(PenstockError, match="STALE_HEARTBEAT"):
            touched(
                after,
                GROUP,
                OTHER,
                SessionTouch(
                    member_id="other",
                    sequence=6,
                    session=2,
                    deadline_ms=deadline_ms,
                    report=MemberProgress(epoch=9, is_settled=is_settled),
                ),
            )


@pytest.mark.parametrize(
    ("stored", "member_id", "sequence", "session", "code"),
    [
        (None, "other", 6, 2, ErrorCode.UNKNOWN_MEMBER),
        (MEMBER, "twin", 6, 2, ErrorCode.MEMBER_FENCED),
        (MEMBER, "other", 5, 2, ErrorCode.STALE_HEARTBEAT),
        (MEMBER, "other", 4, 2, ErrorCode.STALE_HEARTBEAT),
        (MEMBER, "other", 5, 4, ErrorCode.STALE_HEARTBEAT),
        (MEMBER, "other", 6, 4, ErrorCode.UNKNOWN_MEMBER),
    ],
)
def test_heartbeat_is_refused(
    stored: Member | None, member_id: str, sequence: int, session: int, code: ErrorCode
) -> None:
    with pytest.raises(PenstockError) as caught:
        touched(
            stored, GROUP, OTHER, SessionTouch(member_id=member_id, sequence=sequence, session=session, deadline_ms=200)
        )
    assert caught.value.code is code


def test_heartbeat_without_a_session_ends_whatever_session_there_is() -> None:
    refuse_heartbeat(MEMBER, GROUP, OTHER, "other", 6, None)
    with pytest.raises(PenstockError, match="STALE_HEARTBEAT"):
        refuse_heartbeat(MEMBER, GROUP, OTHER, "other", 5, None)


@given(st.lists(st.integers(0, 20), max_size=10))
def test_only_rising_sequences_move_a_member_on(sequences: list[int]) -> None:
    member = MEMBER
    for sequence in sequences:
        newest = member.sequence
        with suppress(PenstockError):
            member = touched(
                member,
                GROUP,
                OTHER,
                SessionTouch(member_id="other", sequence=sequence, session=2, deadline_ms=100 + sequence),
            )
        assert member.sequence == max(newest, sequence)


def test_errors_tell_the_caller_its_next_step() -> None:
    assert unknown_member(GROUP, OTHER).code is ErrorCode.UNKNOWN_MEMBER
    assert "join anew" in unknown_member(GROUP, OTHER).message
    assert concurrent_update("group billing").code is ErrorCode.CONCURRENT_UPDATE
    assert "group billing" in concurrent_update("group billing").message
