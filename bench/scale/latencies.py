"""The time that each step of a request takes: lognormal, some of them slow, each with its source.

`basis` says how far a number can be trusted: "measured" here, "published" by AWS or by users of it, or "assumed". The
lognormal shape is always assumed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import exp, log
from random import Random

from bench.report.result import Row

MIB = 1024**2
_SLOW_SIGMA = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A lognormal time by its median and sigma. Of all draws, `slow_share` come from around `slow_ms` instead."""

    median_ms: float
    sigma: float
    basis: str
    source: str
    slow_ms: float = 0.0
    slow_share: float = 0.0

    def draw(self, chance: Random) -> float:
        """One time in ms."""
        if self.slow_share and chance.random() < self.slow_share:
            return exp(chance.normalvariate(log(self.slow_ms), _SLOW_SIGMA))
        return exp(chance.normalvariate(log(self.median_ms), self.sigma))


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The steps of a request. A client in the same region, on an open connection."""

    gateway: Latency = Latency(
        median_ms=10,
        sigma=0.4,
        basis="published",
        source="smplogs.com/patterns/apigateway/high-latency: 10 to 30 ms for REST, somewhat less for HTTP APIs",
    )
    invoke: Latency = Latency(median_ms=5, sigma=0.4, basis="assumed", source="from API Gateway into a warm instance")
    direct_invoke: Latency = Latency(
        median_ms=8, sigma=0.4, basis="assumed", source="from a client by Lambda's API into a warm instance, and back"
    )
    cold_start: Latency = Latency(
        median_ms=770, sigma=0.2, basis="measured", source="bench/results/cold_start.json, wall time here"
    )
    express_put: Latency = Latency(
        median_ms=6,
        sigma=0.3,
        slow_ms=22,
        slow_share=0.02,
        basis="published",
        source="quickwit.io/blog/s3-express-speculations: about 5 ms; AWS: single-digit ms; slow ones assumed",
    )
    express_get: Latency = Latency(
        median_ms=5,
        sigma=0.3,
        slow_ms=22,
        slow_share=0.02,
        basis="published",
        source="quickwit.io/blog/s3-express-speculations: about 5 ms; AWS: single-digit ms; slow ones assumed",
    )
    standard_put: Latency = Latency(
        median_ms=30,
        sigma=0.45,
        slow_ms=120,
        slow_share=0.02,
        basis="published",
        source="quickwit.io/blog/s3-express-speculations: a GET up to 30 ms, a tail of 80; a PUT is assumed like it",
    )
    standard_get: Latency = Latency(
        median_ms=25,
        sigma=0.45,
        slow_ms=120,
        slow_share=0.02,
        basis="published",
        source="quickwit.io/blog/s3-express-speculations: up to 30 ms, a tail of 80",
    )
    update: Latency = Latency(
        median_ms=5, sigma=0.35, basis="published", source="AWS: single-digit ms for DynamoDB; the spread is assumed"
    )
    read: Latency = Latency(
        median_ms=4, sigma=0.35, basis="published", source="AWS: single-digit ms for DynamoDB; the spread is assumed"
    )
    wake_up: Latency = Latency(
        median_ms=30, sigma=0.35, basis="assumed", source="AppSync Events, publish to a subscriber: 20 to 50 ms"
    )

    def rows(self) -> Iterator[Row]:
        """The table of all steps."""
        for each in fields(self):
            step: Latency = getattr(self, each.name)
            yield {
                "step": each.name.replace("_", " "),
                "median_ms": step.median_ms,
                "sigma": step.sigma,
                "slow_ms": step.slow_ms or None,
                "slow_percent": round(100 * step.slow_share) or None,
                "basis": step.basis,
                "source": step.source,
            }


REQUEST_CPU_MS = 5.1  # of a small produce, measured on the local stack on 2026-11-22, commit aefbd15
PRODUCE_CPU_MS_PER_MIB = 11.4  # of the handler, measured on the local stack in November 2026
FETCH_CPU_MS_PER_MIB = 5.5  # as above
NETWORK_BYTES_PER_MS = 75_000.0  # one function instance has 600 Mbit/s: users' measurements, from memory


def moving_ms(size: float) -> float:
    """The milliseconds that one instance needs to move so many bytes."""
    return size / NETWORK_BYTES_PER_MS
