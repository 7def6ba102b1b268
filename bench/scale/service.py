"""The service in simulated milliseconds: buckets of tokens, function instances, and the heads of partitions."""

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from random import Random
from typing import Any

import simpy

from bench.scale.latencies import (
    FETCH_CPU_MS_PER_MIB,
    MIB,
    PRODUCE_CPU_MS_PER_MIB,
    REQUEST_CPU_MS,
    Latencies,
    Latency,
    moving_ms,
)
from bench.scale.scenario import Scenario

Steps = Generator[Any, Any, None]

ATTEMPTS = 5  # of the driver on a throttled write, with full jitter below
DRIVER_WAIT_MS = (10.0, 200.0)


class ThrottledError(Exception):
    """AWS took no more. The caller comes again."""


class Tokens:
    """A rate with a burst: a request takes tokens, or is refused."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_ms = per_s / 1_000
        self._burst = burst
        self.left = burst
        self._at_ms = 0.0
        self.taken = 0.0

    def take(self, count: float, now_ms: float) -> bool:
        """True if there were so many."""
        self.left = min(self._burst, self.left + (now_ms - self._at_ms) * self._per_ms)
        self._at_ms = now_ms
        if self.left < count:
            return False
        self.left -= count
        self.taken += count
        return True


class Instances:
    """Function instances. Each serves one request at a time; a new one begins with a cold start."""

    def __init__(self, environment: simpy.Environment, most: int) -> None:
        self._environment = environment
        self.most = most
        self.busy = 0
        self.warm = 0
        self.busy_ms = 0.0
        self.cold_starts = 0

    def enter(self) -> bool:
        """Takes an instance: True if it is cold. Raises ThrottledError if all are busy."""
        if self.busy >= self.most:
            raise ThrottledError("instances")
        self.busy += 1
        if self.warm > 0:
            self.warm -= 1
            return False
        self.cold_starts += 1
        return True

    def leave(self, began_ms: float) -> None:
        """Gives it back."""
        self.busy -= 1
        self.warm += 1
        self.busy_ms += self._environment.now - began_ms


@dataclass(slots=True)
class Append:
    """A produce request that was acknowledged: its bytes, and the arrival times of some of its records."""

    size: float
    arrivals_ms: tuple[float, ...]


class Service:
    """Produce and fetch, as the functions do them, and what each limit was asked for."""

    def __init__(
        self, environment: simpy.Environment, scenario: Scenario, latencies: Latencies, chance: Random
    ) -> None:
        self.environment = environment
        self.scenario = scenario
        self.latencies = latencies
        self.chance = chance
        self.refused: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        limits = scenario.limits
        self.api = Tokens(limits.api_requests_per_s, limits.api_burst)
        self.table = Tokens(limits.table_units_per_s, limits.table_units_per_s)
        self.keys = [Tokens(limits.key_units_per_s, limits.key_units_per_s) for _ in range(scenario.partitions)]
        self.bucket = Tokens(limits.bucket_puts_per_s, limits.bucket_puts_per_s)
        self.instances = Instances(environment, limits.instances)
        self.zones = {"express3": 3, "express2": 2, "standard1": 1}[scenario.profile]
        self._put = latencies.standard_put if scenario.profile == "standard1" else latencies.express_put
        self._get = latencies.standard_get if scenario.profile == "standard1" else latencies.express_get

    def produce(self, partition: int, size: float) -> Steps:
        """One produce request to a partition. Raises ThrottledError."""
        yield from self._called(self._append(partition, size))

    def fetch(self, waiting: list[Append], found: list[Append]) -> Steps:
        """One fetch that moves what waits for a reader into `found`, as it is when the heads are read."""
        yield from self._called(self._read(waiting, found))

    def _called(self, work: Steps) -> Steps:
        """By the scenario's transport to the handlers, and back."""
        self.asked["calls"] += 1
        match self.scenario.transport:
            case "embedded":
                yield self.environment.timeout(REQUEST_CPU_MS)
                yield from work
                return
            case "lambda":
                yield self.environment.timeout(self._draw("direct_invoke"))
            case "http":
                self.asked["api"] += 1
                if not self.api.take(1, self.environment.now):
                    yield self.environment.timeout(self._draw("gateway") / 2)
                    raise self._refusal("api")
                yield self.environment.timeout(self._draw("gateway") + self._draw("invoke"))
        yield from self._in_instance(work)

    def _in_instance(self, work: Steps) -> Steps:
        self.asked["instances"] += 1
        try:
            is_cold = self.instances.enter()
        except ThrottledError:
            raise self._refusal("instances") from None
        began_ms = self.environment.now
        try:
            if is_cold:
                yield self.environment.timeout(self._draw("cold_start"))
            yield self.environment.timeout(REQUEST_CPU_MS)
            yield from work
        finally:
            self.instances.leave(began_ms)

    def _append(self, partition: int, size: float) -> Steps:
        chance, zones = self.chance, self.zones
        yield self.environment.timeout(size / MIB * PRODUCE_CPU_MS_PER_MIB)
        if not self.bucket.take(1, self.environment.now):
            raise self._refusal("puts")
        puts = sorted(self._put.draw(chance) for _ in range(zones))
        yield self.environment.timeout(puts[zones // 2] + moving_ms(size * zones))
        for attempt in range(ATTEMPTS):
            self.asked["writes"] += 1
            yield self.environment.timeout(self._draw("update"))
            units, now_ms = self.scenario.write_units, self.environment.now
            if self.keys[partition].take(units, now_ms) and self.table.take(units, now_ms):
                return
            low_ms, high_ms = DRIVER_WAIT_MS
            yield self.environment.timeout(chance.random() * min(high_ms, low_ms * 2**attempt))
        raise self._refusal("head")

    def _read(self, waiting: list[Append], found: list[Append]) -> Steps:
        yield self.environment.timeout(self._draw("read"))
        size = 0.0
        while waiting and size + waiting[0].size <= 4 * MIB:
            size += waiting[0].size
            found.append(waiting.pop(0))
        if found:
            gets = max(self._get.draw(self.chance) for _ in found[:16])
            yield self.environment.timeout(gets + moving_ms(2 * size) + size / MIB * FETCH_CPU_MS_PER_MIB)

    def _draw(self, step: str) -> float:
        latency: Latency = getattr(self.latencies, step)
        return latency.draw(self.chance)

    def _refusal(self, by: str) -> ThrottledError:
        self.refused[by] += 1
        return ThrottledError(by)
