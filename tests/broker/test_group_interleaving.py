"""Heartbeats that others get in between of, at each storage call, and function instances that die there."""

from collections.abc import Callable
from itertools import count

import pytest

from penstock_broker.broker import Broker
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.keys import PartitionKey
from penstock_core.limits import GROUP_CHECK_MS_MAX
from tests.broker.group_member import GroupMember, holders, settle
from tests.broker.interleaving import dying, that_dies, that_meets
from tests.broker.setting import SteppedClock, another_instance, new_topic, patient_broker

PARTITIONS = 4
SESSION_MS = 45_000


class Scene:
    """A group of two members, a and b, settled; c is still to come."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.broker = patient_broker(self.clock)
        new_topic(self.broker, "orders", PARTITIONS)
        self.a, self.b, self.c = (GroupMember(another_instance(self.broker), name) for name in "abc")
        settle(self.a, self.b)
        self.commits: dict[tuple[PartitionKey, int], set[str]] = {}

    def commit_all(self, *members: GroupMember) -> None:
        """Everybody commits for what they believe to hold; two never succeed under one lease epoch."""
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
        """Once nothing disturbs them, these members own everything, one owner each."""
        for member in (self.a, self.b, self.c):
            member.broker = another_instance(self.broker)
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


def join(scene: Scene) -> None:
    scene.c.beat()


def leave(scene: Scene) -> None:
    scene.b.leave()


def reconcile(scene: Scene) -> None:
    scene.a.beat()
    scene.a.beat()


def check(scene: Scene) -> None:
    scene.clock.time_ms += GROUP_CHECK_MS_MAX
    scene.a.beat()


def prepare_nothing(scene: Scene) -> None: ...


def prepare_join(scene: Scene) -> None:
    scene.c.beat()


def prepare_release(scene: Scene) -> None:
    """c has joined, and a and b have let go of what is c's: the next heartbeat of c acquires."""
    scene.c.beat()
    for member in (scene.a, scene.b):
        for _ in range(3):
            member.beat()


def prepare_expiry(scene: Scene) -> None:
    """b is dead, and its session over."""
    scene.clock.time_ms += SESSION_MS - GROUP_CHECK_MS_MAX - 1_000
    scene.a.beat()
    scene.clock.time_ms += 2_000


CASES: list[tuple[str, Callable[[Scene], None], str, Callable[[Scene], None], str]] = [
    # name, what has happened, whose instance is disturbed, what it does, who is there at the end
    ("join", prepare_nothing, "c", join, "abc"),
    ("first report", prepare_join, "a", reconcile, "abc"),
    ("acquire", prepare_release, "c", join, "abc"),
    ("leave", prepare_nothing, "b", leave, "a"),
    ("check", prepare_expiry, "a", check, "a"),
]


def disturbed(scene: Scene, who: str, broker_of: Callable[[Broker], Broker]) -> GroupMember:
    member: GroupMember = getattr(scene, who)
    member.broker = broker_of(scene.broker)
    return member


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize(("name", "prepare", "who", "act", "left"), CASES, ids=[case[0] for case in CASES])
def test_group_settles_wherever_an_instance_dies(
    name: str, prepare: Callable[[Scene], None], who: str, act: Callable[[Scene], None], left: str, is_applied: bool
) -> None:
    for place in count():
        scene = Scene()
        prepare(scene)
        member = disturbed(
            scene,
            who,
            lambda broker, place=place: that_dies(broker, place, is_applied=is_applied),  # type: ignore[misc]
        )
        with dying() as was_killed:
            act(scene)
        if not was_killed:
            assert place >= 3, f"{name} has storage calls"
            return
        if name == "leave":
            member.forget()  # its process is gone, whatever the service knows
            scene.clock.time_ms += SESSION_MS
        scene.end(*(getattr(scene, each) for each in left))


OTHERS: list[tuple[str, Callable[[Scene], object]]] = [
    ("another joins", lambda scene: GroupMember(another_instance(scene.broker), "d").beat()),
    ("a reports", lambda scene: [try_beat(scene.a) for _ in range(3)]),
    ("b reports", lambda scene: [try_beat(scene.b) for _ in range(3)]),
    ("b leaves", lambda scene: scene.b.leave() if scene.b.epoch else None),
    ("sessions end", lambda scene: setattr(scene.clock, "time_ms", scene.clock.time_ms + SESSION_MS + 1)),
]


@pytest.mark.parametrize("other", [act for _, act in OTHERS], ids=[name for name, _ in OTHERS])
@pytest.mark.parametrize(("name", "prepare", "who", "act", "left"), CASES, ids=[case[0] for case in CASES])
def test_group_settles_whatever_happens_in_between(
    name: str,
    prepare: Callable[[Scene], None],
    who: str,
    act: Callable[[Scene], None],
    left: str,
    other: Callable[[Scene], object],
) -> None:
    for place in count():
        scene = Scene()
        prepare(scene)
        has_met: list[bool] = []

        def meet(scene: Scene = scene, has_met: list[bool] = has_met) -> None:
            has_met.append(True)
            for member in (scene.a, scene.b, scene.c):
                if member is not getattr(scene, who):
                    member.broker = another_instance(scene.broker)
            try:
                other(scene)
            except PenstockError as error:
                assert error.code in (ErrorCode.STALE_HEARTBEAT, ErrorCode.UNKNOWN_MEMBER)  # noqa: PT017

        disturbed(scene, who, lambda broker, place=place, meet=meet: that_meets(broker, place, meet))  # type: ignore[misc]
        try:
            act(scene)
        except PenstockError as error:
            assert error.code in (  # noqa: PT017 - only some are refused
                ErrorCode.UNKNOWN_MEMBER,
                ErrorCode.STALE_HEARTBEAT,
                ErrorCode.CONCURRENT_UPDATE,
            )
        if not has_met:
            return
        scene.commit_all(scene.a, scene.b, scene.c)
        scene.clock.time_ms += SESSION_MS + 1  # whoever is not among those left is gone
        members = [getattr(scene, each) for each in left]
        for member in members:
            member.broker = another_instance(scene.broker)
            member.forget()
        scene.end(*members)
