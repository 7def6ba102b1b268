import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import (
    GroupConfig,
    Member,
    Report,
    Subscription,
    alter_group_config,
    group_config_to_json,
    next_check_ms,
    parse_subscription,
)
from penstock_core.ids import GroupName, MemberName, Offset, Partition, TopicId, TopicName, member_name
from penstock_core.keys import PartitionKey
from penstock_core.lease import ATTEMPTS, CLAIMS, Attempt, Claim, Holder, Lease, Tenure, holder_of, refusal
from penstock_core.sessions import touched
from penstock_core.topic_patterns import check_pattern, matches

KEY = PartitionKey(TopicId("0a" * 10), Partition(3))
GROUP = GroupName("billing")
ME, OTHER = MemberName("me"), MemberName("other")
MEMBER = Member(
    name=OTHER,
    member_id="other",
    subscription=Subscription(topics=("a",)),
    sequence=5,
    session=2,
    deadline_ms=100,
    joined_at_ms=1,
)
LEASE = Lease(topic=TopicName("orders"), partition=KEY, owner=OTHER, epoch=7, offset=Offset(40))


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("*", "", True),
        ("*", "x", True),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("*.eu", "orders.eu", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-c-b-c", True),
        ("a*b*c", "a-c-c", False),
        ("a**c", "ac", True),
        ("*ab*ab*", "abxab", True),
        ("*ab*ab*", "abab", True),
        ("*ab*ab*", "aba", False),
    ],
)
def test_pattern_matches(pattern: str, name: str, is_match: bool) -> None:
    assert matches(pattern, name) is is_match


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.lists(st.text("ab", max_size=3), max_size=5))
def test_pattern_matches_what_it_was_made_from(parts: list[str], fill: list[str]) -> None:
    name = "".join(a + b for a, b in itertools.zip_longest(parts, fill[: len(parts) - 1], fillvalue=""))
    assert matches("*".join(parts), name)


@pytest.mark.parametrize("pattern", ["", "a?", "a b", "^a", "a#", "x" * 250])
def test_pattern_that_no_topic_can_match_is_refused(pattern: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check_pattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_NAME


def test_subscription_selects_its_names_and_what_its_patterns_match() -> None:
    subscription = parse_subscription(["b", "a", "b"], ["x.*"])
    assert subscription == Subscription(topics=("a", "b"), patterns=("x.*",))
    assert [name for name in ("a", "b", "c", "x.1", "x") if subscription.selects(name)] == ["a", "b", "x.1"]


@pytest.mark.parametrize("topics", [[str(number) for number in range(101)], ["x" * 249 + str(n) for n in range(40)]])
def test_subscription_that_would_make_every_heartbeat_dear_is_refused(topics: list[str]) -> None:
    with pytest.raises(PenstockError, match="use a pattern") as caught:
        parse_subscription(topics, [])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_member_name_is_the_id_or_the_instance() -> None:
    assert member_name("m-1", None) == "m-1"
    assert member_name("m-1", "eu.7") == "=eu.7"
    for bad in [("a b", None), ("", None), ("x" * 101, None), ("m", "=x"), ("m", "")]:
        with pytest.raises(PenstockError) as caught:
            member_name(*bad)
        assert caught.value.code is ErrorCode.INVALID_NAME


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


def test_claims_and_attempts_are_decided_for_every_case() -> None:
    assert CLAIMS == {
        (True, True): Claim.KEEP,
        (True, False): Claim.ACQUIRE,
        (False, True): Claim.REVOKE,
        (False, False): Claim.LEAVE,
    }
    takes = {holder for holder in Holder if ATTEMPTS[holder] is Attempt.TAKE}
    assert takes == {Holder.NOBODY, Holder.SELF, Holder.GONE, Holder.SETTLED}
    assert (ATTEMPTS[Holder.UNSETTLED], ATTEMPTS[Holder.AHEAD]) == (Attempt.WAIT, Attempt.LOOK_AGAIN)


@pytest.mark.parametrize(
    ("lease", "owner", "holder"),
    [
        (None, None, Holder.NOBODY),
        (replace(LEASE, owner=None), None, Holder.NOBODY),
        (replace(LEASE, owner=ME), None, Holder.SELF),
        (LEASE, None, Holder.GONE),
        (LEASE, replace(MEMBER, epoch=3, is_settled=True), Holder.UNSETTLED),
        (LEASE, replace(MEMBER, epoch=4, is_settled=False), Holder.UNSETTLED),
        (LEASE, replace(MEMBER, epoch=4, is_settled=True), Holder.SETTLED),
        (LEASE, replace(MEMBER, epoch=5, is_settled=True), Holder.AHEAD),
        (LEASE, replace(MEMBER, epoch=5, is_settled=False), Holder.AHEAD),
    ],
)
def test_holder_is_told_by_what_the_owner_has_said(lease: Lease | None, owner: Member | None, holder: Holder) -> None:
    assert holder_of(lease, ME, 4, {OTHER: owner} if owner else {}) is holder


@pytest.mark.parametrize(
    ("lease", "tenure", "offset", "may_go_back", "code"),
    [
        (LEASE, Tenure(owner=OTHER, epoch=7), 40, False, None),
        (LEASE, Tenure(owner=OTHER, epoch=7), 39, False, ErrorCode.OFFSET_BEHIND),
        (LEASE, Tenure(owner=OTHER, epoch=7), 39, True, None),
        (LEASE, Tenure(owner=OTHER, epoch=6), 41, True, ErrorCode.LEASE_FENCED),
        (LEASE, Tenure(owner=ME, epoch=7), 41, True, ErrorCode.LEASE_FENCED),
        (replace(LEASE, owner=None), Tenure(owner=OTHER, epoch=7), 41, True, ErrorCode.LEASE_FENCED),
        (None, Tenure(owner=OTHER, epoch=7), 41, True, ErrorCode.LEASE_FENCED),
        (replace(LEASE, offset=None), Tenure(owner=OTHER, epoch=7), 0, False, None),
        (LEASE, None, 41, True, ErrorCode.LEASE_HELD),
        (replace(LEASE, owner=None), None, 1, True, None),
        (replace(LEASE, owner=None), None, 1, False, ErrorCode.OFFSET_BEHIND),
        (None, None, 1, False, None),
    ],
)
def test_commit_counts_for_the_owner_and_epoch_that_stand_in_the_lease(
    lease: Lease | None, tenure: Tenure | None, offset: int, may_go_back: bool, code: ErrorCode | None
) -> None:
    error = refusal(lease, KEY, Offset(offset), tenure, may_go_back=may_go_back)
    assert (error and error.code) is code


def test_heartbeat_goes_on_with_the_session() -> None:
    after = touched(MEMBER, GROUP, OTHER, "other", 6, 2, 200, Report(epoch=9, is_settled=True))
    assert after == replace(MEMBER, sequence=6, deadline_ms=200, epoch=9, is_settled=True)
    assert touched(MEMBER, GROUP, OTHER, "other", 6, 2, 200, None) == replace(MEMBER, sequence=6, deadline_ms=200)
    assert touched(after, GROUP, OTHER, "other", 6, 2, 200, Report(epoch=9, is_settled=True)) == after
    assert touched(after, GROUP, OTHER, "other", 6, 2, 200, None) == after
    for deadline_ms, is_settled in ((200, False), (201, True)):
        with pytest.raises(PenstockError, match="STALE_HEARTBEAT"):
            touched(after, GROUP, OTHER, "other", 6, 2, deadline_ms, Report(epoch=9, is_settled=is_settled))


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
        touched(stored, GROUP, OTHER, member_id, sequence, session, 200, None)
    assert caught.value.code is code
