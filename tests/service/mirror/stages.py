"""A source and the stage that mirrors it, both in memory."""

from dataclasses import dataclass, field
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.mirror.push import MirrorPush, PushAnswer
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.targets.target import StageTarget
from penstock_core.records.codec import decode
from penstock_core.records.record_batch import walk
from penstock_service.adapters.memory.messages import MemoryTargets
from penstock_service.instance.instance import Instance
from penstock_service.mirror.append_push import append_push
from penstock_service.push.admin.pause_subscription import resume_subscription
from penstock_service.records.fetch import FetchEntry, fetch
from tests.support.push_deliveries import Deliveries
from tests.support.service import SteppedClock, patient_instance

TARGET = StageTarget(url="https://b.example", source="https://a.example")


@dataclass(kw_only=True)
class Stages:
    """The source is that of `Deliveries`: `orders`, and its mirror `packing`. `pushes` are those with batches."""

    partitions: int = 1
    lanes: int = 1
    target: StageTarget = TARGET
    clock: SteppedClock = field(default_factory=SteppedClock)
    source: Deliveries = field(init=False)
    mirror: Instance = field(init=False)
    pushes: list[MirrorPush] = field(default_factory=list)
    is_away: bool = False
    holds: set[int] = field(default_factory=set)  # partitions whose batches do not arrive
    loses_answers: int = 0
    tellings: int = 0  # of offsets of groups
    loses_tellings: int = 0
    timer_calls: list[MirrorPush] = field(default_factory=list)
    loses_timers: int = 0

    def __post_init__(self) -> None:
        settings = {"start": "earliest", "backoff_ms_max": 60_000, "concurrency": self.lanes}
        self.source = Deliveries(clock=self.clock, partitions=self.partitions, target=self.target, settings=settings)
        self.mirror = patient_instance(self.clock, seed=7)
        targets = self.source.instance.stores.targets
        assert isinstance(targets, MemoryTargets)
        targets.stage = self._answer

    def run(self) -> None:
        """Let the source push all that it has."""
        self.source.run(600_000)

    def again(self) -> None:
        """Start the pushes by hand, as `penstock subscriptions resume` does."""
        resume_subscription(self.source.instance, self.source.subscription.name)
        self.run()

    def logs(self, partition: int = 0, topic: str = "orders") -> tuple[list[Any], list[Any]]:
        """All batches of both sides, by offset, as they are stored."""
        return batches(self.source.instance, "orders", partition), batches(self.mirror, topic, partition)

    def _answer(self, _target: StageTarget, push: MirrorPush) -> PushAnswer | Failed:
        self.pushes += [push] if push.parts and push.timers is None else []
        self.timer_calls += [push] if push.timers is not None else []
        if self.is_away or (push.parts and push.partition in self.holds and push.timers is None):
            return Failed(failure=Failure.AWAY, error="away")
        try:
            answer = append_push(self.mirror, push)
        except PenstockError as error:
            return Failed(failure=Failure.AWAY, error=str(error))
        if push.offsets is not None:
            self.tellings += 1
            if self.loses_tellings:
                self.loses_tellings -= 1
                return Failed(failure=Failure.AWAY, error="the answer was lost")
            return answer
        if push.timers is not None:
            if self.loses_timers:
                self.loses_timers -= 1
                return Failed(failure=Failure.AWAY, error="the answer was lost")
            return answer
        if self.loses_answers:
            self.loses_answers -= 1
            return Failed(failure=Failure.AWAY, error="the answer was lost")
        return answer


def batches(instance: Instance, topic: str, partition: int) -> list[Any]:
    """(base offset, bytes) of each batch, and its records."""
    offset = 0
    found: list[Any] = []
    while True:
        entry = FetchEntry(topic=topic, partition=partition, offset=offset, max_bytes=1_000_000)
        [fetched] = fetch(instance, [entry], max_bytes=1_000_000, min_bytes=0, wait_ms=0)
        if isinstance(fetched, PenstockError):
            assert fetched.code is ErrorCode.MOVED, fetched  # at its end
            return found
        for position, header in walk(fetched.data):
            data = bytes(fetched.data[position : position + header.length])
            found.append((header.base_offset, header.next_offset, data, [each.value for each in decode(data)]))
        if fetched.next_offset == offset:
            return found
        offset = Offset(fetched.next_offset)
