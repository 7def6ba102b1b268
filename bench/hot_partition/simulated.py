"""One partition of Penstock on AWS, by simulation: what it takes, and how long records wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import simpy

from bench.hot_partition.sdk_producer import Counted, SdkProducer
from bench.report.result import Row, load_results
from bench.scale.latencies import Latencies
from bench.scale.scenario import Scenario
from bench.scale.service import Service
from bench.scale.simulate import quantile
from penstock.producer.settings import ProducerSettings

RECORD_BYTES = 100
_CROWDS = (20, 100, 500)  # producers whose appends were counted by bench.crowded_head


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPartition(Scenario):
    """Producers that each send `records_per_s` to one partition. `units` are the write units of an append."""

    records_per_s: float = 20.0
    units: float = 1.4
    is_paced: bool = True

    @property
    def write_units(self) -> float:
        return self.units


def scenario_of(
    producers: int, linger_ms: float, records_per_s: float, seconds: float, *, is_paced: bool
) -> HotPartition:
    """The case of so many producers, with the write units that an append costs when so many share a head."""
    return HotPartition(
        name=f"{producers:,} producers, linger_ms={linger_ms:g}",
        bytes_per_s=producers * records_per_s * RECORD_BYTES,
        partitions=1,
        producers=producers,
        record_bytes=RECORD_BYTES,
        linger_ms=linger_ms,
        seconds=seconds,
        records_per_s=records_per_s,
        units=append_units(producers),
        is_paced=is_paced,
    )


def append_units(producers: int) -> float:
    """The write units of an append to a head that so many producers share: a head keeps 20 of them.

    By the committed run of `bench.crowded_head`, in straight lines between its counts.
    """
    crowded = load_results()["crowded_head"]
    rate = crowded.parameters["appends_per_s"]
    points: list[tuple[int, float]] = []
    for count in _CROWDS:
        units = crowded.find("one_partition", {"producers": count}, "write_units_per_s_mean")
        points.append((count, float(units or 0) / float(str(rate))))
    if producers <= points[0][0]:
        return points[0][1]
    for (low, before), (high, behind) in pairwise(points):
        if producers <= high:
            return before + (behind - before) * (producers - low) / (high - low)
    return points[-1][1]


def simulate(case: HotPartition, seed: int, warm_up_s: float) -> Row:
    """The row of one case."""
    environment = simpy.Environment()
    chance = Random(seed)
    service = Service(environment, case, Latencies(), chance)
    counted = Counted(from_ms=warm_up_s * 1_000)
    settings = ProducerSettings(linger_ms=int(case.linger_ms), compression_type="none")
    for _ in range(case.producers):
        producer = SdkProducer(service, settings, counted, chance)
        if not case.is_paced:
            producer.unpaced(settings)
        environment.process(producer.arrive())
        environment.process(producer.send())
    environment.run(until=(warm_up_s + case.seconds) * 1_000)
    return row_of(case, counted)


def row_of(case: HotPartition, counted: Counted) -> Row:
    """Rates a second after the warm-up. A run whose records wait longer and longer has taken fewer than came."""
    tried = counted.appends + counted.refused
    return {
        "producers": case.producers,
        "linger_ms": round(case.linger_ms),
        "rests": "yes" if case.is_paced else "no",
        "appends_per_s": round(counted.appends / case.seconds),
        "refused_percent": round(100 * counted.refused / max(1, tried), 1),
        "records_per_append": round(counted.delivered / max(1, counted.appends), 1),
        "taken_percent": round(100 * counted.delivered / max(1, counted.arrived)),
        "p50_p99_ms": cuts(counted.latencies_ms),
    }


def cuts(latencies_ms: Sequence[float]) -> str:
    """p50 and p99 of latencies, such as `1,026, 2,053`."""
    weighted = [(each, 1.0) for each in latencies_ms]
    return f"{quantile(weighted, 0.5):,.0f}, {quantile(weighted, 0.99):,.0f}"
