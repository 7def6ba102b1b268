"""A surge from 10 to 10,000 appends a second, and the availability that AWS's agreements add up to.

A fluid model: requests are amounts, and nothing is drawn. Lambda adds instances at its published rate, and DynamoDB
takes twice the peak of the last half hour. Refused requests come again after the SDK's backoff. Penstock has not run on
AWS.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import comb

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.scale.clients import BACKOFF_MS
from bench.scale.latencies import Latencies
from bench.scale.scenario import DEFAULT, Limits
from bench.scale.service import Tokens
from penstock import prices
from penstock.cost.counted import counted

BEFORE_PER_S, SURGE_PER_S = 10.0, 10_000.0
HOLD_MS = 35.0  # an append in a warm instance: two puts in parallel, and an update (bench/results/scale.json)
STEP_MS = 10.0
NEW_INSTANCES_PER_S = 100.0  # Lambda: 1,000 for each function every 10 s, refilled all the time, not saved up
NEW_INSTANCES_AT_ONCE = 1_000.0
PEAK_MS = 1_800_000.0  # DynamoDB on demand takes twice its peak, once the peak is half an hour old
MEMORY_GB = 0.5
MONTH_MINUTES = 730 * 60
_TRIES = 8
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Surge:
    """A stage that gets a surge of appends of 1 KB. `table_units` it takes at once, `ready` instances are warm."""

    name: str
    limits: Limits = DEFAULT
    table_units: float = 4_000.0
    ready: int = 1
    uses_api: bool = True
    partitions: int = 100


@dataclass(slots=True)
class Course:
    """The course of a surge: the seconds in which each limit refused some, and the most that waited at once."""

    refused_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    last_refused_s: float = 0.0
    most_waiting: float = 0.0
    instances: float = 0.0


_API_RAISED = replace(DEFAULT, api_requests_per_s=20_000, api_burst=10_000)
SURGES = (
    Surge(name="a new stage"),
    Surge(name="13,900 write units kept warm", table_units=13_900),
    Surge(name="and 20,000 API requests/s", table_units=13_900, limits=_API_RAISED),
    Surge(name="and 400 instances provisioned", table_units=13_900, limits=_API_RAISED, ready=400),
    Surge(name="transport lambda, 13,900 units", table_units=13_900, uses_api=False),
    Surge(name="transport lambda, 27,800 units", table_units=27_800, uses_api=False),
)


class Stage:
    """The amounts of one moment: instances that are warm, busy and starting, and requests that come again."""

    def __init__(self, surge: Surge) -> None:
        self.course = Course()
        self._surge = surge
        self._units = counted("express3").append(1_024)["WRITE_UNITS"]
        self._api = Tokens(surge.limits.api_requests_per_s, surge.limits.api_burst)
        self._ending: list[deque[tuple[float, float]]] = [deque(), deque()]  # warm and cold runs: when, and how many
        self._warm, self._busy, self._room = float(surge.ready), 0.0, NEW_INSTANCES_AT_ONCE
        self._waiting = [0.0] * _TRIES  # refused requests, by their number of refusals
        self._table_units, self._peak_since_ms = surge.table_units, 0.0

    def pass_on(self, now_ms: float) -> bool:
        """One step of time. True while anything waits."""
        self._free(now_ms)
        offered = [SURGE_PER_S * STEP_MS / 1_000, *(0.0 for _ in self._waiting)]
        for tries, count in enumerate(self._waiting):
            pause_ms = min(BACKOFF_MS[1], BACKOFF_MS[0] * 2**tries) / 2
            offered[tries + 1] = count * min(1.0, STEP_MS / pause_ms)
            self._waiting[tries] -= offered[tries + 1]
        refused = 1 - self._served(sum(offered), now_ms) / sum(offered)
        for tries, count in enumerate(offered):
            self._waiting[min(tries, _TRIES - 1)] += count * refused
        self.course.most_waiting = max(self.course.most_waiting, sum(self._waiting))
        self.course.instances = max(self.course.instances, self._busy + self._warm)
        if refused > _NOTHING:
            self.course.last_refused_s = now_ms / 1_000
        return refused > _NOTHING or sum(self._waiting) > 1

    def _free(self, now_ms: float) -> None:
        self._room = min(NEW_INSTANCES_AT_ONCE, self._room + NEW_INSTANCES_PER_S * STEP_MS / 1_000)
        for runs in self._ending:
            while runs and runs[0][0] <= now_ms:
                count = runs.popleft()[1]
                self._busy -= count
                self._warm += count
        if now_ms - self._peak_since_ms >= PEAK_MS:
            peak = min(self._table_units, SURGE_PER_S * self._units)
            self._table_units, self._peak_since_ms = max(self._table_units, 2 * peak), now_ms

    def _served(self, asked: float, now_ms: float) -> float:
        """The part of the requests that API Gateway, Lambda and DynamoDB let through, one after the other."""
        limits, left = self._surge.limits, asked
        if self._surge.uses_api:
            self._api.take(0.0, now_ms)
            let = min(left, self._api.left)
            self._api.take(let, now_ms)
            left = self._refuse("API Gateway", left, let)
        free = min(self._warm, left)
        added = max(0.0, min(left - free, self._room, limits.instances - self._busy - free))
        left = self._refuse("Lambda", left, free + added)
        self._warm, self._room, self._busy = self._warm - free, self._room - added, self._busy + free + added
        self._ending[0].append((now_ms + HOLD_MS, free))
        self._ending[1].append((now_ms + HOLD_MS + Latencies().cold_start.median_ms, added))
        units_per_s = min(self._surge.partitions * limits.key_units_per_s, self._table_units)
        return self._refuse("DynamoDB", left, min(left, units_per_s * STEP_MS / 1_000 / self._units))

    def _refuse(self, limit: str, asked: float, let: float) -> float:
        if asked > let * (1 + _NOTHING):
            self.course.refused_s[limit] += STEP_MS / 1_000
        return let


def play(surge: Surge, seconds: float = 5_400.0) -> Course:
    """The course of the surge, until nothing waits any more, or for so long."""
    stage = Stage(surge)
    for step in range(1, int(seconds * 1_000 / STEP_MS) + 1):
        if not stage.pass_on(step * STEP_MS) and step * STEP_MS > 5_000:
            break
    return stage.course


def row(surge: Surge) -> Row:
    """A row of the table: the refusals, their seconds, and the price of the reserve."""
    course = play(surge)
    reserve = prices.PROVISIONED_GB_SECONDS.of(surge.ready * MEMORY_GB * 3_600) if surge.ready > 1 else 0.0
    refused = ", ".join(
        f"{limit} {seconds:,.1f}" for limit, seconds in sorted(course.refused_s.items(), key=lambda each: -each[1])
    )
    return {
        "case": surge.name,
        "seconds_with_refusals": refused or "none",
        "last_refusal_s": round(course.last_refused_s, 1),
        "most_waiting": round(course.most_waiting),
        "instances": round(course.instances),
        "reserve_usd_per_hour": round(reserve, 2),
    }


AGREED = {
    "API Gateway": 99.95,
    "Lambda": 99.95,
    "DynamoDB": 99.99,
    "S3 Standard": 99.9,
    "a zone of S3 Express": 99.9,
    "SQS": 99.9,
    "EventBridge": 99.99,
    "AppSync": 99.95,
}
"""The monthly uptime in percent below which AWS gives credits: its service level agreements, as of November 2026."""


def _zones(profile: str, needed: int) -> float:
    """The share of time in which so many zones answer, if they fail apart."""
    if profile == "standard1":
        return AGREED["S3 Standard"] / 100
    up = AGREED["a zone of S3 Express"] / 100
    return sum(comb(3, count) * up**count * (1 - up) ** (3 - count) for count in range(needed, 4))


def availability_rows() -> Iterator[Row]:
    """The services that each promise needs, and the product of their agreements: a floor without any retry."""
    front = {"http": ("API Gateway", "Lambda"), "lambda": ("Lambda",), "embedded": ()}
    for promise, zones, more in (
        ("append, acks=quorum", 2, ()),
        ("append, acks=all", 3, ()),
        ("fetch", 1, ()),
        ("fetch, woken at once", 1, ("AppSync",)),
        ("push to a target", 1, ("SQS",)),
        ("delayed record in time", 1, ("EventBridge",)),
    ):
        for transport, before in front.items():
            is_of_stage = promise.startswith(("push", "delayed"))
            if is_of_stage and transport != "http":
                continue
            needs = [*(("Lambda",) if is_of_stage else before), "DynamoDB", *more]
            product = 1.0
            for each in needs:
                product *= AGREED[each] / 100
            values: Row = {}
            for profile in ("express3", "standard1"):
                share = product * _zones(profile, zones)
                values[f"{profile}_percent"] = round(100 * share, 3)
                values[f"{profile}_minutes_per_month"] = round((1 - share) * MONTH_MINUTES)
            yield {
                "promise": promise,
                "transport": "-" if is_of_stage else transport,
                "needs": ", ".join(needs),
                **values,
            }


@click.command(help=__doc__)
@reported("surge")
def main(report: Report) -> None:
    report.conditions += [
        "A model: Penstock has not run on AWS. Appends of 1 KB in express3, over 100 partitions, from 10 to 10,000 a "
        "second at once, and for 90 minutes. Refused requests wait in their producers and come again: none is lost. "
        "The SDK would gather more records in a request meanwhile; the model does not.",
        "Availability is the product of AWS's agreements, as if all failed apart and nobody tried again. It is what "
        "AWS pays credits for, and no measurement.",
    ]
    report.show("A surge", [row(each) for each in SURGES])
    report.show("The availability that AWS agrees to", list(availability_rows()))


if __name__ == "__main__":
    main()
