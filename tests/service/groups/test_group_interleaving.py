"""At each storage call of a heartbeat, another member acts, or the function instance dies."""

from collections.abc import Callable
from itertools import count

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import GROUP_CHECK_MS_MAX
from penstock_service.instance.instance import Instance
from tests.support.group_member import GroupMember, holders, settle
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.service import SteppedClock, another_instance, new_topic, patient_instance

PARTITIONS = 4
SESSION_MS = 45_000


class Trio:
    """A group whose members a and b have settled, and a member c that has not joined yet."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.instance = patient_instance(self.clock)
        new_topic(self.instance, "orders", PARTITIONS)
        self.a, self.b, self.c = (GroupMember(another_instance(self.instance), name) for name in "abc")
        settle(self.a, self.b)
        self.commits: dict[tuple[PartitionKey, int], set[str]] = {}

    def commit_all(self, *members: GroupMember) -> None:
        """Each member commits for the partitions that it believes to hold. Two never succeed under one lease epoch."""
        for member in members:
            for key, lease in [*member.held.items()]:
                try:
                    member.commit(key.partition, 0)
                except PenstockError as error:
                    assert error.code is ErrorCode.LEASE_FENCED  # noqa: PT017 - only some are fenced
                    del member.held[key]
                    member.is_complete = False
                    continue
                who = self.commits.setdefault((key, lease.epoch), set())
                who.add(member.member_id)
                assert len(who) == 1

    def end(self, *members: GroupMember) -> None:
        """Once nothing disturbs them, these members own all partitions, each of which has one owner."""
        for member in (self.a, self.b, self.c):
            member.instance = another_instance(self.instance)
        self.commit_all(self.a, self.b, self.c)
        self.clock.time_ms += GROUP_CHECK_MS_MAX
        for member in members:
            try_beat(member)
        settle(*members)
        self.commit_all(*members)
        assert len(holders(*members)) == PARTITIONS


def try_beat(member: GroupMember) -> None:
    try:
        member.beat()
    except PenstockError as error:
        assert error.code is ErrorCode.UNKNOWN_MEMBER  # noqa: PT017 - only some of the cases end the session
        member.forget()


def try_beats(member: GroupMember) -> None:
    for _ in range(3):
        try_beat(member)


def join(group: Trio) -> None:
    group.c.beat()


def leave(group: Trio) -> None:
    group.b.leave()


def reconcile(group: Trio) -> None:
    group.a.beat()
    group.a.beat()


def check(group: Trio) -> None:
    group.clock.time_ms += GROUP_CHECK_MS_MAX
    group.a.beat()


def prepare_nothing(group: Trio) -> None: ...


def prepare_join(group: Trio) -> None:
    group.c.beat()


def prepare_release(group: Trio) -> None:
    """c has joined, and a and b have released its partitions: the next heartbeat of c acquires them."""
    group.c.beat()
    for member in (group.a, group.b):
        for _ in range(3):
            member.beat()


def prepare_expiry(group: Trio) -> None:
    """b is dead, and its session has expired."""
    group.clock.time_ms += SESSION_MS - GROUP_CHECK_MS_MAX - 1_000
    group.a.beat()
    group.clock.time_ms += 2_000


CASES: list[tuple[str, Callable[[Trio], None], str, Callable[[Trio], None], str]] = [
    # name, what has happened, whose instance is disturbed, what it does, who is there at the end
    ("join", prepare_nothing, "c", join, "abc"),
    ("first report", prepare_join, "a", reconcile, "abc"),
    ("acquire", prepare_release, "c", join, "abc"),
    ("leave", prepare_nothing, "b", leave, "a"),
    ("check", prepare_expiry, "a", check, "a"),
]


def disturbed(group: Trio, who: str, instance_of: Callable[[Instance], Instance]) -> GroupMember:
    member: GroupMember = getattr(group, who)
    member.instance = instance_of(group.instance)
    return member


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize(("name", "prepare", "who", "act", "left"), CASES, ids=[case[0] for case in CASES])
def test_group_settles_wherever_an_instance_dies(
    name: str,
    prepare: Callable[[Trio], None],
    who: str,
    act: Callable[[Trio], None],
    left: str,
    is_applied: bool,
) -> None:
    for place in count():
        group = Trio()
        prepare(group)
        member = disturbed(
            group,
            who,
            lambda instance, place=place: killed_at(instance, place, is_applied=is_applied),  # type: ignore[misc]
        )
        with catch_kill() as was_killed:
            act(group)
        if not was_killed:
            assert place >= 3, f"{name} has storage calls"
            return
        if name == "leave":
            member.forget()  # its process is gone, whatever the service knows
            group.clock.time_ms += SESSION_MS
        group.end(*(getattr(group, each) for each in left))


OTHERS: list[tuple[str, Callable[[Trio], object]]] = [
    ("another joins", lambda group: GroupMember(another_instance(group.instance), "d").beat()),
    ("a reports", lambda group: try_beats(group.a)),
    ("b reports", lambda group: try_beats(group.b)),
    ("b leaves", lambda group: group.b.leave() if group.b.epoch else None),
    ("sessions end", lambda group: setattr(group.clock, "time_ms", group.clock.time_ms + SESSION_MS + 1)),
]


@pytest.mark.parametrize("other", [act for _, act in OTHERS], ids=[name for name, _ in OTHERS])
@pytest.mark.parametrize(("name", "prepare", "who", "act", "left"), CASES, ids=[case[0] for case in CASES])
def test_group_settles_whatever_happens_in_between(
    name: str,
    prepare: Callable[[Trio], None],
    who: str,
    act: Callable[[Trio], None],
    left: str,
    other: Callable[[Trio], object],
) -> None:
    for place in count():
        group = Trio()
        prepare(group)
        has_met: list[bool] = []

        def meet(group: Trio = group, has_met: list[bool] = has_met) -> None:
            has_met.append(True)
            for member in (group.a, group.b, group.c):
                if member is not getattr(group, who):
                    member.instance = another_instance(group.instance)
            try:
                other(group)
            except PenstockError as error:
                assert error.code in (ErrorCode.STALE_HEARTBEAT, ErrorCode.UNKNOWN_MEMBER)  # noqa: PT017

        disturbed(group, who, lambda instance, place=place, meet=meet: interrupted_before(instance, place, meet))  # type: ignore[misc]
        try:
            act(group)
        except PenstockError as error:
            assert error.code in (  # noqa: PT017 - only some are refused
                ErrorCode.UNKNOWN_MEMBER,
                ErrorCode.STALE_HEARTBEAT,
                ErrorCode.CONCURRENT_UPDATE,
            )
        if not has_met:
            return
        group.commit_all(group.a, group.b, group.c)
        group.clock.time_ms += SESSION_MS + 1  # the sessions of all members end
        members = [getattr(group, each) for each in left]
        for member in members:
            member.instance = another_instance(group.instance)
            member.forget()
        group.end(*members)
