"""Prices small appends as items of DynamoDB next to puts to zones, from the append to the end of their bytes.

One idempotent producer sends records one by one to one partition. The handlers run in this process on moto, and each
call is captured and priced, as in `bench.bill`. An item with a TTL is not moved: DynamoDB keeps it for the topic's
14 days and 9 more, and removes it for nothing. After four hours `tier` moves other records to the archive, and the
sweep removes the rest. The fixed cost of a run of `tier` or of the sweep is left out. S3 takes nothing
for a deletion. DynamoDB takes as many write units as for the put, so an item is billed to its end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import click

from bench.bill.deployment import Bill, BilledDeployment, BilledProfile, BillError, billed_profile
from bench.bill.metered_calls import Lines
from bench.bill.requests import MILLION, PROFILES, TOPIC, with_topic
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Producer, prices
from penstock_core.ids import SegmentId
from penstock_core.limits import (
    EXPIRING_MARGIN_DAYS,
    INLINE_BYTES_MAX,
    KIB,
    RETENTION_MS_DEFAULT,
    TAIL_ROLL_REFS,
    TIERING_MS_MAX,
)
from penstock_core.log.ref import DAY_MS, Tier
from penstock_core.storage.item import Item, item_bytes
from penstock_core.storage.page_item import expiring_item, inline_item
from penstock_service.compaction.tier import tier
from tests.support.service import key_of, refs_of

RECORD_BYTES = (500, 800, 1_000, 1_800, 2_800)
ZONAL_RECORD_BYTES = (500, 1_000, 2_800)  # S3 takes the same for a put of either
APPENDS = 8 * TAIL_ROLL_REFS
# An item lives for the 4 h to its move, an hour to the run that moves it, the 12 h of grace, and 3 h to the next sweep.
# A sweep each 3 h lists it so often. A list is a query, and reads whole items at half a unit for each 4 KB.
LISTS = 6
_READ_UNIT_BYTES = 4 * KIB
_BUDGET_MS = 1e9
_BOUNDS = {Tier.ZONAL: "0", Tier.INLINE: f"0,{INLINE_BYTES_MAX}", Tier.EXPIRING: f"{INLINE_BYTES_MAX},0"}
_KEPT_DAYS = RETENTION_MS_DEFAULT // DAY_MS + EXPIRING_MARGIN_DAYS
_OF_FUNCTIONS = ("api", "lambda", "logs")  # a program that embeds the service has none of them


@click.command(help=__doc__)
@reported("inline_appends")
def main(report: Report) -> None:
    report.conditions.append(f"List prices of {prices.REGION}, {prices.DATE}, without free tiers.")
    report.conditions.append(f"{APPENDS} appends, moved by one run.")
    lives = [(size, bill_life(billed_profile("express3"), size, Tier.EXPIRING)) for size in RECORD_BYTES]
    report.show("an append as an item with a TTL, a million", [life_row(size, life) for size, life in lives])
    swept = [(size, bill_life(billed_profile("express3"), size, Tier.INLINE)) for size in RECORD_BYTES]
    report.show("an append as an item, a million", [life_row(size, life) for size, life in swept])
    zonal = [
        (name, size, bill_life(billed_profile(name), size, Tier.ZONAL))
        for name in PROFILES
        for size in ZONAL_RECORD_BYTES
    ]
    report.show(
        "an append to zones, a million", [{"profile": name, **life_row(size, life)} for name, size, life in zonal]
    )
    of_zones = {(name, size): life for name, size, life in zonal}
    [smallest] = [life for size, life in lives if size == RECORD_BYTES[0]]
    report.judge(holds=smallest.embedded < of_zones["express3", RECORD_BYTES[0]].embedded)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendLife:
    """Dollars of a million appends of one record, one by one to a busy partition, from the append to the end.

    `by_http` is what API, function and logs add to the append, and `by_lambda` the same without the API. `appended`,
    `moved` and `removed` are storage alone, and `kept` the days of an item with a TTL.
    """

    item_bytes: int
    by_http: float
    by_lambda: float
    kept: float
    appended: float
    moved: float
    removed: float

    @property
    def embedded(self) -> float:
        """The sum for a program that embeds the service."""
        return self.appended + self.moved + self.removed + self.kept

    @property
    def direct(self) -> float:
        """The sum for a program that invokes the function past API Gateway."""
        return self.embedded + self.by_lambda

    @property
    def http(self) -> float:
        """The sum for a program that sends requests."""
        return self.embedded + self.by_http


def bill_life(profile: BilledProfile, record_bytes: int, kind: Tier, *, appends: int = APPENDS) -> AppendLife:
    """The life of so many appends. Raises BillError if they do not go where they should, or are not moved."""
    with (
        with_topic(profile, inline_bytes_max=_BOUNDS[kind]) as deployment,
        Producer(transport=deployment, linger_ms=0, compression_type="none") as producer,
    ):
        producer.send(TOPIC, b"").result()
        deployment.take()
        for _ in range(appends):
            producer.send(TOPIC, b"x" * record_bytes).result()
        appended = deployment.take()
        ids = _ids(deployment, kind)
        bodies = deployment.instance.stores.inline.get_expiring(ids[-1:])
        size = max((item_bytes(_item(kind, *each)) for each in bodies.items()), default=0)
        moved = _moved(deployment)
        removed = _removed(deployment, ids, size) if kind is Tier.INLINE else Lines()
        _ids(deployment, kind if kind is Tier.EXPIRING else Tier.ARCHIVE)
    per_million = MILLION / appends
    by_http = sum(appended.lines[name] for name in _OF_FUNCTIONS) * per_million
    kept = prices.TABLE_GB_MONTHS.of(size * MILLION / prices.GB * _KEPT_DAYS / prices.DAYS_PER_MONTH)
    return AppendLife(
        item_bytes=size,
        by_http=by_http,
        by_lambda=by_http - appended.lines["api"] * per_million,
        kept=kept if kind is Tier.EXPIRING else 0.0,
        appended=_storage(appended.lines) * per_million,
        moved=0.0 if kind is Tier.EXPIRING else _storage(moved.lines) * per_million,
        removed=removed.total() * per_million,
    )


def _item(kind: Tier, segment_id: SegmentId, body: bytes) -> Item:
    return expiring_item(segment_id, body, _KEPT_DAYS) if kind is Tier.EXPIRING else inline_item(segment_id, body)


def _ids(deployment: BilledDeployment, tier_of_all: Tier) -> Sequence[SegmentId]:
    instance = deployment.instance
    refs = [each.ref for each in refs_of(instance, key_of(instance, TOPIC))]
    if {ref.tier for ref in refs} != {tier_of_all}:
        raise BillError(f"not all refs are of {tier_of_all.name}: {refs}")
    return [ref.segment_id for ref in refs]


def _moved(deployment: BilledDeployment) -> Bill:
    """The bill of the run of `tier` that moves all."""
    deployment.clock.sleep_ms(TIERING_MS_MAX)
    deployment.take()
    with deployment.billed("hourly", moved_bytes=0):
        done = tier(deployment.instance, budget_ms=_BUDGET_MS)
    if done.failures or not done.is_finished:
        raise BillError(f"not all was moved: {done}")
    return deployment.take()


def _removed(deployment: BilledDeployment, ids: Sequence[SegmentId], size: int) -> Lines:
    """The dollars of the sweep for the items: their deletion, and their part of each list."""
    deployment.take()
    with deployment.billed("sweep", moved_bytes=0):
        deployment.instance.stores.inline.delete(ids)
    lines = Lines()
    lines["dynamodb"] = deployment.take().lines["dynamodb"]
    lines["lists"] = prices.READ_UNITS.of(LISTS * len(ids) * size / _READ_UNIT_BYTES / 2)
    return lines


def _storage(lines: Lines) -> float:
    return sum(usd for name, usd in lines.items() if name not in _OF_FUNCTIONS)


def write_units(size: int) -> int:
    """The write units of an item of that size."""
    return max(1, math.ceil(size / KIB))


def life_row(record_bytes: int, life: AppendLife) -> Row:
    """The parts of a life: storage alone, which is the sum for a program that embeds the service, and by HTTP."""
    item: Row = {"item_bytes": life.item_bytes, "write_units": write_units(life.item_bytes)} if life.item_bytes else {}
    return {
        "record_bytes": record_bytes,
        **item,
        "append_usd": round(life.appended, 2),
        "move_usd": round(life.moved, 2),
        "removal_usd": round(life.removed, 2),
        "kept_usd": round(life.kept, 2),
        "embedded_sum_usd": round(life.embedded, 2),
        "past_api_gateway_sum_usd": round(life.direct, 2),
        "by_http_sum_usd": round(life.http, 2),
    }


if __name__ == "__main__":
    main()
