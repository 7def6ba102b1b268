"""One process of a group's member, as its client library is, and the topic that the members share."""

from dataclasses import dataclass, field, replace
from typing import Any

from penstock_broker.heartbeat import Assignment, Beat
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.group import parse_subscription
from penstock_core.ids import MemberName, member_name
from penstock_core.keys import PartitionKey
from penstock_core.quorum import Acks
from penstock_core.records import NewRecord, encode
from tests.history import format as history
from tests.simulation.instance import EPOCH_MS
from tests.simulation.violation import expect
from tests.simulation.world import World

TOPIC = "shared"
RECORDS = 60  # of each partition


def fill(world: World) -> None:
    """Every partition has its records from the beginning."""
    for partition in range(world.topics[TOPIC]):
        values = [value_at(partition, offset) for offset in range(RECORDS)]
        data = encode([NewRecord(EPOCH_MS, None, value.encode()) for value in values])
        entry = ProduceEntry(topic=TOPIC, partition=partition, data=data)
        [result] = produce(world.undisturbed(), [entry], Acks.ALL)
        expect(not isinstance(result, PenstockError), f"filling {TOPIC} failed: {result}")
        sends = [history.Send((TOPIC, partition), value, offset) for offset, value in enumerate(values)]
        world.story.recorder.done("filler", history.Function.SEND, sends)


def value_at(partition: int, offset: int) -> str:
    return f"{TOPIC}-{partition}-{offset}"


@dataclass
class GroupProcess:
    """One process of a member. `held`: of each partition that it believes to be its own, the lease's epoch, what it
    knows to be committed, and where it has read to; `taken_ms`: when others took some of them while it was no member,
    of which its next heartbeat has to tell it;
    `late_join`: what it sent first when it joined, and, as nobody answered, again with a higher sequence."""

    member_id: str
    instance_id: str | None
    sequence: int = 0
    epoch: int = 0
    session: int = 0
    is_complete: bool = False
    is_gone: bool = False
    held: dict[PartitionKey, list[int]] = field(default_factory=dict)
    taken_ms: dict[PartitionKey, float] = field(default_factory=dict)
    late_join: Beat | None = None

    @property
    def name(self) -> MemberName:
        return member_name(self.member_id, self.instance_id)

    def next_beat(self, config: dict[str, Any]) -> Beat:
        self.sequence += 2
        is_joining = self.epoch == 0
        beat = Beat(
            member_id=self.member_id,
            instance_id=self.instance_id,
            sequence=self.sequence,
            epoch=self.epoch,
            session=self.session,
            subscription=parse_subscription([TOPIC], []) if is_joining else None,
            owned=None if is_joining or self.is_complete else frozenset(self.held),
            config=config,
        )
        if is_joining:
            self.late_join = replace(beat, sequence=beat.sequence - 1)
        return beat

    def obey(self, told: Assignment) -> None:
        self.epoch, self.session, self.is_complete = told.epoch, told.session, told.is_complete
        for key in [*told.revoked, *(lease.partition for lease in told.granted)]:
            self.drop(key)
        self.held |= {lease.partition: [lease.epoch, lease.offset or 0, lease.offset or 0] for lease in told.granted}

    def drop(self, key: PartitionKey) -> None:
        self.held.pop(key, None)
        self.taken_ms.pop(key, None)

    def forget(self) -> None:
        self.held.clear()
        self.taken_ms.clear()
        self.epoch, self.session, self.is_complete = 0, 0, False
