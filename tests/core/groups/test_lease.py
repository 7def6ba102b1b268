from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.groups.group import Member
from penstock_core.groups.lease import (
    LEASE_ACTIONS,
    TAKE_DECISIONS,
    HolderState,
    Lease,
    LeaseAction,
    LeaseToken,
    MayGoBack,
    SeenCommit,
    TakeDecision,
    holder_of,
    next_lease_epoch,
    refusal,
)
from penstock_core.ids import MemberName, Offset, Partition, PartitionKey, TopicId, TopicName
from tests.core.groups.members import MEMBER, OTHER

KEY = PartitionKey(TopicId("0a" * 10), Partition(3))
ME = MemberName("me")
SEEN = SeenCommit(offset=Offset(40), committed_at_ms=0)
LEASE = Lease(topic=TopicName("orders"), partition=KEY, owner=OTHER, epoch=7, offset=Offset(40))


def test_actions_and_decisions_are_decided_for_every_case() -> None:
    assert LEASE_ACTIONS == {
        (True, True): LeaseAction.KEEP,
        (True, False): LeaseAction.ACQUIRE,
        (False, True): LeaseAction.REVOKE,
        (False, False): LeaseAction.LEAVE,
    }
    takes = {holder for holder in HolderState if TAKE_DECISIONS[holder] is TakeDecision.TAKE}
    assert takes == {HolderState.NOBODY, HolderState.SELF, HolderState.GONE, HolderState.SETTLED}
    assert (TAKE_DECISIONS[HolderState.UNSETTLED], TAKE_DECISIONS[HolderState.AHEAD]) == (
        TakeDecision.WAIT,
        TakeDecision.LOOK_AGAIN,
    )


@pytest.mark.parametrize(
    ("lease", "owner", "holder"),
    [
        (None, None, HolderState.NOBODY),
        (replace(LEASE, owner=None), None, HolderState.NOBODY),
        (replace(LEASE, owner=ME), None, HolderState.SELF),
        (LEASE, None, HolderState.GONE),
        (LEASE, replace(MEMBER, epoch=3, is_settled=True), HolderState.UNSETTLED),
        (LEASE, replace(MEMBER, epoch=4, is_settled=False), HolderState.UNSETTLED),
        (LEASE, replace(MEMBER, epoch=4, is_settled=True), HolderState.SETTLED),
        (LEASE, replace(MEMBER, epoch=5, is_settled=True), HolderState.AHEAD),
        (LEASE, replace(MEMBER, epoch=5, is_settled=False), HolderState.AHEAD),
    ],
)
def test_holder_is_told_by_what_the_owner_has_said(
    lease: Lease | None, owner: Member | None, holder: HolderState
) -> None:
    assert holder_of(lease, ME, 4, {OTHER: owner} if owner else {}) is holder


@pytest.mark.parametrize(
    ("lease", "token", "offset", "may_go_back", "code"),
    [
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 40, False, None),
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 39, False, ErrorCode.OFFSET_BEHIND),
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 39, True, None),
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 39, SEEN, None),
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 39, replace(SEEN, offset=Offset(41)), ErrorCode.OFFSET_BEHIND),
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 39, replace(SEEN, committed_at_ms=1), ErrorCode.OFFSET_BEHIND),
        (LEASE, LeaseToken(owner=OTHER, epoch=7), 41, replace(SEEN, committed_at_ms=1), None),
        (LEASE, LeaseToken(owner=OTHER, epoch=6), 41, True, ErrorCode.LEASE_FENCED),
        (LEASE, LeaseToken(owner=ME, epoch=7), 41, True, ErrorCode.LEASE_FENCED),
        (replace(LEASE, owner=None), LeaseToken(owner=OTHER, epoch=7), 41, True, ErrorCode.LEASE_FENCED),
        (None, LeaseToken(owner=OTHER, epoch=7), 41, True, ErrorCode.LEASE_FENCED),
        (replace(LEASE, offset=None), LeaseToken(owner=OTHER, epoch=7), 0, False, None),
        (LEASE, None, 41, True, ErrorCode.LEASE_HELD),
        (replace(LEASE, owner=None), None, 1, True, None),
        (replace(LEASE, owner=None), None, 1, False, ErrorCode.OFFSET_BEHIND),
        (None, None, 1, False, None),
    ],
)
def test_commit_counts_for_the_owner_and_epoch_that_stand_in_the_lease(
    lease: Lease | None, token: LeaseToken | None, offset: int, may_go_back: MayGoBack, code: ErrorCode | None
) -> None:
    error = refusal(lease, KEY, Offset(offset), token, may_go_back=may_go_back)
    assert (error and error.code) is code


def test_commit_that_may_not_create_is_refused_where_there_is_no_lease() -> None:
    error = refusal(None, KEY, Offset(1), None, may_go_back=True, may_create=False)
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_GROUP
    assert refusal(replace(LEASE, owner=None), KEY, Offset(41), None, may_go_back=True, may_create=False) is None


@given(st.integers(1, 2**62), st.integers(1, 2**62))
def test_epoch_rises_by_one_and_the_first_is_drawn(epoch: int, drawn: int) -> None:
    assert next_lease_epoch(replace(LEASE, epoch=epoch), drawn) == epoch + 1
    assert next_lease_epoch(replace(LEASE, epoch=0), drawn) == drawn


def test_refusal_tells_the_caller_what_stands_in_the_lease() -> None:
    fenced = refusal(LEASE, KEY, Offset(41), LeaseToken(owner=ME, epoch=6), may_go_back=False)
    behind = refusal(LEASE, KEY, Offset(39), LeaseToken(owner=OTHER, epoch=7), may_go_back=False)
    assert fenced is not None
    assert behind is not None
    assert (fenced.facts, behind.facts) == (
        {"lease_epoch": 7},
        {"committed_offset": 40, "committed_at_ms": LEASE.committed_at_ms},
    )
    assert not fenced.maybe_applied
    assert not behind.maybe_applied
