"""A producer in simulated milliseconds: the SDK's own accumulator, driven by events in place of threads."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from bench.scale.service import Service, Steps, ThrottledError
from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.producer.settings import ProducerSettings
from penstock.retry import NEVER_MS
from penstock_core.errors import ErrorCode, PenstockError

VALUE = b"x" * 100
BATCH_BYTES_MAX = 1_048_576


@dataclass(slots=True)
class Counted:
    """The counts of a run after its warm-up. A latency is that of a request's oldest record."""

    from_ms: float
    latencies_ms: list[float] = field(default_factory=list)
    arrived: int = 0
    delivered: int = 0
    appends: int = 0
    refused: int = 0


class SdkProducer:
    """Gets records at chance times, and sends them to one partition as the SDK does."""

    def __init__(self, service: Service, settings: ProducerSettings, counted: Counted, chance: Random) -> None:
        self._service = service
        self._environment = service.environment
        self._counted = counted
        self._chance = chance
        scenario = service.scenario
        self._mean_ms = 1_000 * scenario.producers * scenario.record_bytes / scenario.bytes_per_s
        self._accumulator = Accumulator(settings.accumulator(), chance.randrange)
        self._topic = TopicQueues("hot")
        self._topic.update(1, settings.batch_bytes, BATCH_BYTES_MAX)
        self._woken = self._environment.event()
        self._sleeps_until_ms = NEVER_MS

    def unpaced(self, settings: ProducerSettings) -> None:
        """From now on a partition never rests, as before there was a rest."""
        self._accumulator = Accumulator(replace(settings.accumulator(), pacing=None), self._chance.randrange)

    def arrive(self) -> Steps:
        """Records come for ever."""
        while True:
            yield self._environment.timeout(self._chance.expovariate(1 / self._mean_ms))
            now_ms = self._environment.now
            batch = self._accumulator.append(self._topic, 0, None, VALUE, (), 0, int(now_ms))
            if now_ms >= self._counted.from_ms:
                self._counted.arrived += 1
            if batch is not None:
                batch.followers.append(now_ms)
            if self._accumulator.wake_at_ms < self._sleeps_until_ms:
                self._wake()

    def send(self) -> Steps:
        """Requests leave for ever, when the accumulator has one."""
        while True:
            now_ms = int(self._environment.now)
            if not self._accumulator.expire(now_ms):
                entries = self._accumulator.drain(now_ms)
                if entries:
                    self._environment.process(self._carry(entries))
                    continue
                yield from self._sleep(now_ms)

    def _sleep(self, now_ms: int) -> Steps:
        self._woken = self._environment.event()
        self._sleeps_until_ms = self._accumulator.wake_at_ms
        if self._sleeps_until_ms >= NEVER_MS:
            yield self._woken
        else:
            yield self._woken | self._environment.timeout(max(1, self._sleeps_until_ms - now_ms))

    def _wake(self) -> None:
        self._sleeps_until_ms = 0
        if not self._woken.triggered:
            self._woken.succeed()

    def _carry(self, entries: Sequence[Entry]) -> Steps:
        size = sum(batch.size_bytes for entry in entries for batch in entry.batches)
        result: int | PenstockError = 0
        try:
            yield from self._service.produce(0, size)
        except ThrottledError:
            result = PenstockError(ErrorCode.THROTTLED, "the partition is hot")
        now_ms = self._environment.now
        if now_ms >= self._counted.from_ms:
            self._counted.appends += result == 0
            self._counted.refused += result != 0
        for batch in self._accumulator.complete(entries, [result] * len(entries), int(now_ms), self._chance.random()):
            self._note(batch.followers, now_ms)
        self._wake()

    def _note(self, arrivals_ms: Sequence[float], now_ms: float) -> None:
        counted = [arrival for arrival in arrivals_ms if arrival >= self._counted.from_ms]
        self._counted.delivered += len(counted)
        self._counted.latencies_ms += [now_ms - arrival for arrival in counted]
