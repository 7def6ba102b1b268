"""One process of a group member, as the client library runs it, and the topic that the members share."""

from dataclasses import dataclass, field, replace
from typing import Any

from penstock_core.errors import PenstockError
from penstock_core.groups.group import parse_subscription
from penstock_core.ids import MemberName, PartitionKey, member_name
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.groups.heartbeat import HeartbeatAnswer, HeartbeatRequest
from penstock_service.records.produce import ProduceEntry, produce
from tests.history import format as history
from tests.simulation.engine.time_and_chance import EPOCH_MS
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

TOPIC = "shared"
RECORDS = 60  # of each partition


def fill(simulation: Simulation) -> None:
    """Give every partition its records before the run begins."""
    for partition in range(simulation.topics[TOPIC]):
        values = [value_at(partition, offset) for offset in range(RECORDS)]
        data = encode([NewRecord(EPOCH_MS, None, value.encode()) for value in values])
        entry = ProduceEntry(topic=TOPIC, partition=partition, data=data)
        [result] = produce(simulation.undisturbed(), [entry], Acks.ALL)
        expect(not isinstance(result, PenstockError), f"filling {TOPIC} failed: {result}")
        sends = [history.Send((TOPIC, partition), value, offset) for offset, value in enumerate(values)]
        simulation.recorder.done("filler", history.Function.SEND, sends)


def value_at(partition: int, offset: int) -> str:
    return f"{TOPIC}-{partition}-{offset}"


@dataclass
class GroupProcess:
    """One process of a member.

    `held` has, for each partition that the process believes to own: the lease's epoch, the offset that it knows to be
    committed, and the offset that it reads next. `taken_ms` says when another member took such a partition while this
    process was no member. Its next heartbeat must tell it so. `late_join` is the first request of a join that got no
    answer: the process sends the join again with a higher sequence, and the first one may still arrive.
    """

    member_id: str
    instance_id: str | None
    sequence: int = 0
    epoch: int = 0
    session: int = 0
    is_complete: bool = False
    is_gone: bool = False
    held: dict[PartitionKey, list[int]] = field(default_factory=dict)
    taken_ms: dict[PartitionKey, float] = field(default_factory=dict)
    late_join: HeartbeatRequest | None = None

    @property
    def name(self) -> MemberName:
        return member_name(self.member_id, self.instance_id)

    def next_beat(self, config: dict[str, Any]) -> HeartbeatRequest:
        self.sequence += 2
        is_joining = self.epoch == 0
        beat = HeartbeatRequest(
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

    def apply(self, answer: HeartbeatAnswer) -> None:
        self.epoch, self.session, self.is_complete = answer.epoch, answer.session, answer.is_complete
        for key in [*answer.revoked, *(lease.partition for lease in answer.granted)]:
            self.drop(key)
        self.held |= {lease.partition: [lease.epoch, lease.offset or 0, lease.offset or 0] for lease in answer.granted}

    def drop(self, key: PartitionKey) -> None:
        self.held.pop(key, None)
        self.taken_ms.pop(key, None)

    def forget(self) -> None:
        self.held.clear()
        self.taken_ms.clear()
        self.epoch, self.session, self.is_complete = 0, 0, False
