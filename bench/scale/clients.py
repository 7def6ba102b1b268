"""Producers and consumers in simulated milliseconds, as the SDK's clients behave with their defaults."""

from dataclasses import dataclass, field
from random import Random

import simpy

from bench.scale.service import Append, Service, Steps, ThrottledError
from penstock.cost.workload import IN_FLIGHT, TURN_BYTES
from penstock_core.limits import BATCH_BYTES_MAX

BACKOFF_MS = (100.0, 5_000.0)  # of a producer between two tries, the first and the longest, with full jitter
SAMPLES = 3  # records of a request whose latency is kept


@dataclass(slots=True)
class Measured:
    """Latencies of records, each with the number of records that it stands for, after the warm-up."""

    from_ms: float
    append_ms: list[tuple[float, float]] = field(default_factory=list)
    consume_ms: list[tuple[float, float]] = field(default_factory=list)
    appended_bytes: float = 0.0
    appends: int = 0

    def note(self, into: list[tuple[float, float]], append: Append, now_ms: float, record_bytes: float) -> None:
        """Keeps the latencies of the append's records."""
        weight = append.size / record_bytes / len(append.arrivals_ms)
        into += [(now_ms - arrival, weight) for arrival in append.arrivals_ms if arrival >= self.from_ms]


class Partition:
    """A partition, with the appends that wait for its reader."""

    def __init__(self, owner: "Consumer") -> None:
        self.waiting: list[Append] = []
        self.owner = owner


class Producer:
    """Gathers records, and has up to `IN_FLIGHT` requests under way, to a partition each.

    Records come at a steady rate, and the first one at a chance time. They stick to a partition for
    `TURN_BYTES`, and move on to one that is in no request. A request takes all that have come, up to what the
    service takes.
    """

    def __init__(self, service: Service, partitions: list[Partition], measured: Measured, chance: Random) -> None:
        self._service = service
        self._environment = service.environment
        self._scenario = service.scenario
        self._partitions = partitions
        self._measured = measured
        self._chance = chance
        self._busy: set[int] = set()
        self._answered = self._environment.event()
        self._partition = chance.randrange(len(partitions))
        self._left_bytes = float(TURN_BYTES)
        self._bytes_per_ms = self._scenario.bytes_per_s / self._scenario.producers / 1_000
        self._since_ms = chance.random() * self._scenario.record_bytes / self._bytes_per_ms

    @property
    def waiting_bytes(self) -> float:
        """The bytes that have come and are in no request."""
        return max(0.0, self._environment.now - self._since_ms) * self._bytes_per_ms

    def run(self) -> Steps:
        """Sends requests for ever."""
        record_ms = self._scenario.record_bytes / self._bytes_per_ms
        while True:
            first_ms = self._since_ms + record_ms
            if first_ms > self._environment.now:
                yield self._environment.timeout(first_ms - self._environment.now)
            yield self._environment.timeout(self._scenario.linger_ms)
            while not self._has_room():
                filled_ms = max(1.0, (self._left_bytes - self.waiting_bytes) / self._bytes_per_ms)
                yield self._answered | self._environment.timeout(filled_ms)
            whole = int(self.waiting_bytes / self._scenario.record_bytes)
            records = max(1, min(whole, BATCH_BYTES_MAX // self._scenario.record_bytes))
            until_ms = self._since_ms + records * record_ms
            arrivals = tuple(
                self._since_ms + (1 + int(self._chance.random() * records)) * record_ms for _ in range(SAMPLES)
            )
            append = Append(size=records * self._scenario.record_bytes, arrivals_ms=arrivals)
            self._since_ms = until_ms
            self._left_bytes -= append.size
            self._busy.add(self._partition)
            self._environment.process(self._send(append, self._partition))

    def _has_room(self) -> bool:
        """Moves on if the partition has had its bytes. True if its next request may begin."""
        if len(self._busy) >= IN_FLIGHT:
            return False
        if self._left_bytes <= 0:
            idle = [each for each in range(len(self._partitions)) if each not in self._busy]
            if not idle:
                return False
            self._partition, self._left_bytes = self._chance.choice(idle), float(TURN_BYTES)
        elif self._partition in self._busy and self.waiting_bytes >= self._left_bytes:
            self._left_bytes = 0.0  # the waiting records fill its turn: the next partition takes them
            return self._has_room()
        return self._partition not in self._busy

    def _send(self, append: Append, partition: int) -> Steps:
        wait_ms, longest_ms = BACKOFF_MS
        while True:
            try:
                yield from self._service.produce(partition, append.size)
                break
            except ThrottledError:
                yield self._environment.timeout(self._chance.random() * wait_ms)
                wait_ms = min(longest_ms, 2 * wait_ms)
        now_ms = self._environment.now
        self._measured.note(self._measured.append_ms, append, now_ms, self._scenario.record_bytes)
        if now_ms >= self._measured.from_ms:
            self._measured.appended_bytes += append.size
            self._measured.appends += 1
        self._partitions[partition].waiting.append(append)
        self._partitions[partition].owner.wake()
        self._busy.discard(partition)
        self._answered.succeed()
        self._answered = self._environment.event()


class Consumer:
    """A member that fetches as long as there is something, and waits to be woken at the end."""

    def __init__(self, service: Service, measured: Measured) -> None:
        self._service = service
        self._environment = service.environment
        self._measured = measured
        self.partitions: list[Partition] = []
        self._woken = self._environment.event()
        self._is_waiting = False

    def wake(self) -> None:
        """An append to a partition of this member."""
        if self._is_waiting:
            self._is_waiting = False
            self._environment.process(self._tell(self._woken))

    def run(self) -> Steps:
        """Reads for ever."""
        while True:
            full = [each for each in self.partitions if each.waiting]
            if not full:
                self._woken = self._environment.event()
                self._is_waiting = True
                yield self._woken
                continue
            yield from self._fetch(full)

    def _tell(self, woken: simpy.Event) -> Steps:
        yield self._environment.timeout(self._service.latencies.wake_up.draw(self._service.chance))
        woken.succeed()

    def _fetch(self, full: list[Partition]) -> Steps:
        """One fetch of all partitions: their queues become one, the oldest append first."""
        waiting = sorted((append for each in full for append in each.waiting), key=lambda append: append.arrivals_ms)
        for each in full:
            each.waiting = []
        found: list[Append] = []
        wait_ms = BACKOFF_MS[0]
        while True:
            try:
                yield from self._service.fetch(waiting, found)
                break
            except ThrottledError:
                yield self._environment.timeout(self._service.chance.random() * wait_ms)
                wait_ms = min(BACKOFF_MS[1], 2 * wait_ms)
        full[0].waiting = waiting + full[0].waiting
        for append in found:
            self._measured.note(
                self._measured.consume_ms, append, self._environment.now, self._service.scenario.record_bytes
            )
