"""The contract of MembershipStore, held by the adapters in memory and on DynamoDB."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import (
    GroupConfig,
    GroupDocument,
    GroupState,
    Member,
    MemberProgress,
    SessionTouch,
    parse_subscription,
    touched,
)
from penstock_core.ids import GroupName, MemberName
from penstock_core.quotas.quota import GroupClaim
from tests.contract.conftest import Ports
from tests.support.refusals import refused

GROUP = GroupName("billing")
STATE = GroupState(name=GROUP, version=1, epoch=3, target_id="ab", config=GroupConfig(assignor="range"))
MEMBER = Member(
    name=MemberName("m"),
    member_id="m",
    client_id="host",
    subscription=parse_subscription(["orders"], ["x.*"]),
    sequence=5,
    session=2,
    deadline_ms=100,
    joined_at_ms=1,
)


def touch(
    ports: Ports,
    sequence: int,
    member_id: str = "m",
    deadline_ms: int = 200,
    report: MemberProgress | None = None,
    session: int = 2,
) -> Member:
    return ports.memberships.touch_member(
        GROUP,
        MemberName("m"),
        SessionTouch(member_id=member_id, sequence=sequence, session=session, deadline_ms=deadline_ms, report=report),
    )


def test_group_is_made_once_and_changed_by_the_caller_that_saw_it_last(ports: Ports) -> None:
    assert ports.memberships.get_group(GROUP) is None
    ports.memberships.change_group(None, STATE)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.change_group(None, STATE))
    second = replace(STATE, version=2, epoch=4)
    ports.memberships.change_group(STATE, second)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.change_group(STATE, replace(second, epoch=5)))
    assert ports.memberships.get_group(GROUP) == second
    assert ports.memberships.get_group(GroupName("other")) is None


def test_document_is_kept_until_a_change_takes_it_away(ports: Ports) -> None:
    ports.memberships.change_group(None, STATE)
    led = replace(
        STATE, version=2, document=GroupDocument(protocol_type="connect", member_count=2, data=b"\x00\xff" * 9)
    )
    ports.memberships.change_group(STATE, led)
    assert ports.memberships.get_group(GROUP) == led
    assert ports.memberships.find_groups([GROUP]) == {GROUP: led}
    plain = replace(led, version=3, document=None)
    ports.memberships.change_group(led, plain)
    assert ports.memberships.get_group(GROUP) == plain


def test_group_is_deleted_by_the_caller_that_saw_it_last(ports: Ports) -> None:
    ports.memberships.change_group(None, STATE)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.delete_group(replace(STATE, version=0)))
    ports.memberships.delete_group(STATE)
    assert ports.memberships.get_group(GROUP) is None
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.delete_group(STATE))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.change_group(STATE, replace(STATE, version=2)))


def test_registered_groups_are_listed_page_by_page(ports: Ports) -> None:
    names = [GroupName(name) for name in ("-", "a", "b", "zz")]
    for name in [*reversed(names), names[0]]:
        ports.memberships.register(name)
    assert list(ports.memberships.registered("", 10)) == names
    assert list(ports.memberships.registered("", 2)) == names[:2]
    assert list(ports.memberships.registered("a", 10)) == names[2:]
    assert ports.memberships.unregister(names[2]) is None
    assert list(ports.memberships.registered("a", 10)) == names[3:]


def test_listed_group_keeps_its_first_claim_until_it_leaves_the_list(ports: Ports) -> None:
    first, second = (
        GroupClaim(principal=name, claim_id=f"{name}1", claimed_at_ms=at) for at, name in enumerate(("ada", "bob"))
    )
    assert ports.memberships.register(GROUP) is None
    for claim in (first, second, None):
        assert ports.memberships.register(GROUP, claim) == first
    assert ports.memberships.unregister(GROUP) == first
    assert ports.memberships.unregister(GROUP) is None
    ports.memberships.register(GROUP, second)
    assert ports.memberships.unregister(GROUP) == second


def test_find_groups_finds_those_that_there_are(ports: Ports) -> None:
    ports.memberships.change_group(None, STATE)
    assert ports.memberships.find_groups([GroupName("other"), GROUP]) == {GROUP: STATE}
    assert ports.memberships.find_groups([]) == {}


@pytest.mark.slow
def test_members_are_all_of_the_group_by_name(ports: Ports) -> None:
    names = [f"{'n' * 90}{number:03d}" for number in range(210)] + ["~", "=eu"]
    members = [replace(MEMBER, name=MemberName(name), member_id=name) for name in names]
    for member in members:
        ports.memberships.put_member(GROUP, None, member)
    ports.memberships.put_member(GroupName("other"), None, MEMBER)
    ports.memberships.change_group(None, STATE)
    ports.memberships.put_target(GROUP, 3, "ab", [b"x"])
    assert list(ports.memberships.members(GROUP)) == sorted(members, key=lambda member: member.name)
    found = ports.memberships.find_members(GROUP, [MemberName(name) for name in [*names, "m"]])
    assert found == {member.name: member for member in members}


def test_member_is_put_over_the_one_that_was_seen_only(ports: Ports) -> None:
    ports.memberships.put_member(GROUP, None, MEMBER)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.put_member(GROUP, None, MEMBER))
    twin = replace(MEMBER, member_id="twin", instance_id="i", sequence=1, deadline_ms=300)
    ports.memberships.put_member(GROUP, MEMBER, twin)
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: ports.memberships.put_member(GROUP, MEMBER, MEMBER))
    assert list(ports.memberships.members(GROUP)) == [twin]


def test_touch_goes_on_with_the_session_and_reports_if_told_to(ports: Ports) -> None:
    ports.memberships.put_member(GROUP, None, MEMBER)
    assert touch(ports, 6) == replace(MEMBER, sequence=6, deadline_ms=200)
    reported = touch(ports, 7, report=MemberProgress(epoch=3, is_settled=True))
    assert reported == replace(MEMBER, sequence=7, deadline_ms=200, epoch=3, is_settled=True)
    assert touch(ports, 2**62, deadline_ms=300) == replace(reported, sequence=2**62, deadline_ms=300)
    assert list(ports.memberships.members(GROUP)) == [replace(reported, sequence=2**62, deadline_ms=300)]


def test_touch_that_is_sent_again_changes_nothing(ports: Ports) -> None:
    ports.memberships.put_member(GROUP, None, MEMBER)
    report = MemberProgress(epoch=3, is_settled=True)
    assert touch(ports, 6, report=report) == touch(ports, 6, report=report)
    refused(ErrorCode.STALE_HEARTBEAT, lambda: touch(ports, 6, deadline_ms=201, report=report))


def test_touch_is_refused_to_strangers_twins_and_the_late(ports: Ports) -> None:
    refused(ErrorCode.UNKNOWN_MEMBER, lambda: touch(ports, 6))
    ports.memberships.put_member(GROUP, None, MEMBER)
    refused(ErrorCode.MEMBER_FENCED, lambda: touch(ports, 6, "twin"))
    refused(ErrorCode.STALE_HEARTBEAT, lambda: touch(ports, 5))
    refused(ErrorCode.STALE_HEARTBEAT, lambda: touch(ports, 4))
    refused(ErrorCode.STALE_HEARTBEAT, lambda: touch(ports, 5, session=1))
    refused(ErrorCode.UNKNOWN_MEMBER, lambda: touch(ports, 6, session=1))
    assert list(ports.memberships.members(GROUP)) == [MEMBER]


@pytest.mark.slow
def test_touch_is_refused_exactly_where_sessions_touched_says(ports: Ports) -> None:
    """The rule is written twice: `groups.sessions.touched` in Python, and `member_item.touch_update` as a condition."""
    name = MEMBER.name
    for is_there, member_id, sequence, session, deadline_ms in product(
        (False, True), ("m", "twin"), (4, 5, 6), (1, 2), (100, 200)
    ):
        for stored in ports.memberships.members(GROUP):
            assert ports.memberships.remove_member(GROUP, stored)
        before = MEMBER if is_there else None
        if before is not None:
            ports.memberships.put_member(GROUP, None, before)
        heard = SessionTouch(member_id=member_id, sequence=sequence, session=session, deadline_ms=deadline_ms)
        expected = _outcome(partial(touched, before, GROUP, name, heard))
        found = _outcome(partial(touch, ports, sequence, member_id, deadline_ms, session=session))
        assert found == expected, (is_there, member_id, sequence, session, deadline_ms)
        left = [expected] if isinstance(expected, Member) else [before] * is_there
        assert list(ports.memberships.members(GROUP)) == left


def _outcome(touch: Callable[[], Member]) -> Member | tuple[ErrorCode, bool]:
    try:
        return touch()
    except PenstockError as error:
        return error.code, error.maybe_applied


def test_member_is_removed_unless_it_was_heard_of_since(ports: Ports) -> None:
    ports.memberships.put_member(GROUP, None, MEMBER)
    now = touch(ports, 6)
    assert not ports.memberships.remove_member(GROUP, MEMBER)
    assert ports.memberships.remove_member(GROUP, now)
    assert not ports.memberships.remove_member(GROUP, now)
    assert list(ports.memberships.members(GROUP)) == []


def test_target_is_read_back_in_order_beside_others_of_its_epoch(ports: Ports) -> None:
    chunks = [bytes([number]) * 200_000 for number in range(12)]
    ports.memberships.put_target(GROUP, 3, "ab", chunks)
    ports.memberships.put_target(GROUP, 3, "abc", [b"other"])
    assert list(ports.memberships.get_target(GROUP, 3, "ab")) == chunks
    assert list(ports.memberships.get_target(GROUP, 3, "abc")) == [b"other"]
    assert list(ports.memberships.get_target(GROUP, 4, "ab")) == []


def test_targets_of_earlier_epochs_are_removed(ports: Ports) -> None:
    for epoch, target_id in [(2, "a"), (9, "b"), (10, "c"), (10, "d"), (11, "e")]:
        ports.memberships.put_target(GROUP, epoch, target_id, [b"x", b"y"])
    ports.memberships.remove_targets(GROUP, 10)
    left = [(10, "c"), (10, "d"), (11, "e")]
    for epoch, target_id in [(2, "a"), (9, "b"), *left]:
        found = ports.memberships.get_target(GROUP, epoch, target_id)
        assert list(found) == ([b"x", b"y"] if (epoch, target_id) in left else [])
