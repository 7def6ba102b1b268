"""A member of a group as its client library is: it knows its epoch and what it holds, and obeys what it is told."""

from dataclasses import dataclass, field

from penstock_core.acls.rule_set import UNRESTRICTED, Access
from penstock_core.errors import PenstockError
from penstock_core.groups.group import Subscription, parse_subscription
from penstock_core.groups.lease import Lease, SeenCommit
from penstock_core.ids import PartitionKey
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.heartbeat import HeartbeatAnswer, HeartbeatRequest, heartbeat, leave
from penstock_service.instance.instance import Instance


@dataclass
class GroupMember:
    """`hears_nothing`: its heartbeats arrive, and their answers are lost."""

    instance: Instance
    member_id: str
    topics: tuple[str, ...] = ("orders",)
    patterns: tuple[str, ...] = ()
    group: str = "billing"
    instance_id: str | None = None
    config: dict[str, object] = field(default_factory=dict)
    sequence: int = 0
    epoch: int = 0
    session: int = 0
    is_complete: bool = False
    hears_nothing: bool = False
    keeps_revoked: bool = False
    held: dict[PartitionKey, Lease] = field(default_factory=dict)
    revoked: list[PartitionKey] = field(default_factory=list)
    late: set[PartitionKey] = field(default_factory=set)
    access: Access = UNRESTRICTED

    @property
    def partitions(self) -> list[int]:
        """Numbers of the partitions that it holds, of whatever topic."""
        return sorted(key.partition for key in self.held)

    def beat(self, subscription: Subscription | None = None, **changes: object) -> HeartbeatAnswer:
        """One heartbeat; what it says of itself follows from what it was told, unless `changes` says otherwise."""
        self.sequence += 1
        beat: dict[str, object] = {
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "sequence": self.sequence,
            "epoch": self.epoch,
            "session": self.session,
            "subscription": subscription or (self._subscription() if self.epoch == 0 else None),
            "owned": None if self.is_complete or self.epoch == 0 else frozenset(self.held),
            "config": self.config,
        }
        request = HeartbeatRequest(**{**beat, **changes})  # type: ignore[arg-type]
        told = heartbeat(self.instance, self.group, request, self.access)
        if not self.hears_nothing:
            self._obey(told)
        return told

    def settle(self, beats: int = 20) -> None:
        """Heartbeat until it is complete."""
        for _ in range(beats):
            if self.beat().is_complete:
                return
        raise AssertionError(f"{self.member_id} still waits after {beats} heartbeats")

    def leave(self) -> None:
        self.sequence += 1
        beat = HeartbeatRequest(
            member_id=self.member_id, instance_id=self.instance_id, sequence=self.sequence, epoch=self.epoch
        )
        leave(self.instance, self.group, beat)
        self.forget()

    def forget(self) -> None:
        """As after UNKNOWN_MEMBER: it starts anew."""
        self.held.clear()
        self.epoch, self.session, self.is_complete = 0, 0, False

    def commit(
        self, partition: int, offset: int, topic: str = "orders", *, back_from: SeenCommit | None = None
    ) -> None:
        """Raises what the commit is refused with."""
        [lease] = [each for each in self.held.values() if (each.topic, each.partition.partition) == (topic, partition)]
        entry = CommitEntry(
            topic=topic, partition=partition, offset=offset, lease_epoch=lease.epoch, back_from=back_from
        )
        [result] = commit_offsets(self.instance, self.group, [entry], self.member_id, self.instance_id)
        if isinstance(result, PenstockError):
            raise result

    def _obey(self, told: HeartbeatAnswer) -> None:
        self.epoch, self.session, self.is_complete = told.epoch, told.session, told.is_complete
        self.revoked = [*told.revoked]
        if not self.keeps_revoked:
            self.let_go()
        self.held |= {lease.partition: lease for lease in told.granted}
        self.late |= told.late

    def let_go(self) -> None:
        for key in self.revoked:
            self.held.pop(key, None)

    def _subscription(self) -> Subscription:
        return parse_subscription(self.topics, self.patterns)


def settle(*members: GroupMember, rounds: int = 40) -> None:
    """Heartbeats of all in turn until all are complete at the same epoch."""
    for _ in range(rounds):
        told = [member.beat() for member in members]
        if all(each.is_complete for each in told) and len({each.epoch for each in told}) == 1:
            return
    raise AssertionError(f"not settled: {[(member.member_id, member.partitions) for member in members]}")


def holders(*members: GroupMember) -> dict[PartitionKey, str]:
    """The owner of each partition. Fails if two members hold one."""
    found: dict[PartitionKey, str] = {}
    for member in members:
        for key in member.held:
            assert key not in found, f"{key} is held by {found[key]} and {member.member_id}"
            found[key] = member.member_id
    return found
