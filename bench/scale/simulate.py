"""Runs a scenario, and says how long records took, what was the bottleneck, and what a month of it costs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import simpy

from bench.report.result import Row
from bench.scale.clients import Consumer, Measured, Partition, Producer
from bench.scale.latencies import Latencies
from bench.scale.scenario import Scenario
from bench.scale.service import Service
from penstock.cost.estimate import estimate
from penstock.cost.workload import SECONDS_PER_MONTH

WARM_UP_S = 3.0
_WHOLE = 0.95
"""A run that has appended a smaller share of what came is behind, and its latencies grow for ever."""
_BUSY = 0.05
"""If at least this share of requests was refused by a limit, it is the bottleneck."""
_NAMES = {
    "api": "API Gateway requests",
    "instances": "Lambda instances",
    "head": "DynamoDB writes of a key or the table",
    "puts": "S3 puts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a run. Latencies begin with a record's arrival in the producer. `share` is what was appended."""

    scenario: Scenario
    share: float
    request_bytes: float
    append_ms: tuple[float, float]
    consume_ms: tuple[float, float]
    requests_per_s: float
    instances: float
    bottleneck: str

    @property
    def is_kept_up(self) -> bool:
        """The service took all that came."""
        return self.share >= _WHOLE

    def row(self) -> Row:
        """One line of the table. A run that is behind has no latencies."""
        scenario = self.scenario
        shown = self.is_kept_up
        size = max(scenario.record_bytes, round(self.request_bytes))
        usd = estimate(scenario.profile, replace(scenario.workload, request_bytes=size), scenario.transport).usd
        gib = scenario.bytes_per_s * SECONDS_PER_MONTH / 1024**3
        return {
            "case": scenario.name,
            "taken_percent": round(100 * min(1.0, self.share)),
            "request_kb": float(f"{self.request_bytes / 1_000:.3g}"),
            "append_p50_p99_ms": _pair(self.append_ms) if shown else "grows",
            "consume_p50_p99_ms": _pair(self.consume_ms) if shown else "grows",
            "instances": round(self.instances),
            "nearest_limit": self.bottleneck,
            "usd_per_gib": float(f"{usd / gib:.3g}"),
        }


def simulate(whole: Scenario, *, seed: int = 1, latencies: Latencies | None = None) -> Outcome:
    """Simulates one slice of the scenario."""
    scenario = whole.slice()
    latencies = Latencies() if latencies is None else latencies
    environment = simpy.Environment()
    chance = Random(seed)
    service = Service(environment, scenario, latencies, chance)
    measured = Measured(from_ms=WARM_UP_S * 1_000)
    consumers = [Consumer(service, measured) for _ in range(scenario.consumers)]
    partitions = [Partition(consumers[each % len(consumers)]) for each in range(scenario.partitions)]
    for partition in partitions:
        partition.owner.partitions.append(partition)
    producers = [Producer(service, partitions, measured, chance) for _ in range(scenario.producers)]
    for run in (*(each.run() for each in producers), *(each.run() for each in consumers)):
        environment.process(run)
    end_ms = (WARM_UP_S + scenario.seconds) * 1_000
    environment.run(until=end_ms)
    share = measured.appended_bytes / (scenario.bytes_per_s * scenario.seconds)
    return Outcome(
        scenario=whole,
        share=share,
        request_bytes=measured.appended_bytes / max(1, measured.appends),
        append_ms=(quantile(measured.append_ms, 0.5), quantile(measured.append_ms, 0.99)),
        consume_ms=(quantile(measured.consume_ms, 0.5), quantile(measured.consume_ms, 0.99)),
        requests_per_s=service.asked["calls"] / end_ms * 1_000 * whole.slices(),
        instances=service.instances.busy_ms / end_ms * whole.slices(),
        bottleneck=_bottleneck(service, share, end_ms),
    )


def _pair(values: tuple[float, float]) -> str:
    return f"{values[0]:,.0f}, {values[1]:,.0f}"


def quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """The value below which that share of the weight lies, 0 for none."""
    left = share * sum(weight for _, weight in weighted)
    for value, weight in sorted(weighted):
        left -= weight
        if left <= 0:
            return value
    return 0.0


def _bottleneck(service: Service, share: float, end_ms: float) -> str:
    """The limit that refused most, else the one that is used most, with its share."""
    asked = max(1, service.asked["calls"])
    refused = [(count / asked, _NAMES[name]) for name, count in service.refused.items()]
    if refused and max(refused)[0] >= _BUSY:
        return f"{max(refused)[1]} (refuses)"
    scenario = service.scenario
    if share < _WHOLE:
        return f"a producer's {min(5, scenario.partitions)} requests at once"
    limits = scenario.limits
    key = max(each.taken for each in service.keys) / end_ms * 1_000
    used = [
        (service.asked["api"] / end_ms * 1_000 / limits.api_requests_per_s, "API Gateway requests"),
        (service.instances.busy_ms / end_ms / limits.instances, "Lambda instances"),
        (key / limits.key_units_per_s, "DynamoDB writes of a key"),
        (service.table.taken / end_ms * 1_000 / limits.table_units_per_s, "DynamoDB writes of the table"),
        (service.bucket.taken / end_ms * 1_000 / limits.bucket_puts_per_s, "S3 puts"),
    ]
    most, name = max(used)
    return f"{name} ({most:.0%})"
