"""The month of a workload on Penstock: counts of all its requests, times the price table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock import prices
from penstock.cost.counted import Counted, Counts, add, counted, times
from penstock.cost.readers import (
    MirrorPushes,
    becomes_items,
    month_of_groups,
    month_of_mirrors,
    month_of_share_groups,
    month_of_subscriptions,
)
from penstock.cost.workload import SECONDS_PER_MONTH, Workload
from penstock.http.named_transport import AUTO, TransportName
from penstock_core.limits import (
    ARCHIVE_PART_BYTES,
    ARCHIVE_REF_BYTES,
    ARCHIVE_SEGMENT_BYTES,
    COMPACTION_BYTES_PER_DAY_DEFAULT,
    COMPACTION_DIRTY_SHARE_DEFAULT,
    EXPIRING_MARGIN_DAYS,
    MIB,
    TIERED_SWEEP_GRACE_MS,
    TIERING_MS_MAX,
)

_DAY_S = 86_400
ZONE_HOURS = (TIERING_MS_MAX + TIERED_SWEEP_GRACE_MS) / 3_600_000 + 2.0
"""The hours that bytes lie in S3 Express: until `tier` moves them, and until `sweep` has removed the copies."""

KEY_S = 300.0
"""A caller asks KMS for a store's key once in this time: DynamoDB for each table, S3 for each bucket and session."""
CLEANING_MS_PER_MIB = 100.0
"""The time of a function that cleans so much of a log, assumed: 15 to 75 ms were measured without S3's latency."""
CLEANING_GB = 1_769 / 1_024
_READS_OF_A_PASS = 2  # of a ref: for its keys or to see what goes, and to write the rest
FUNCTIONS = 13

_WHAT = {
    "API_REQUESTS": "API Gateway requests",
    "LAMBDA_REQUESTS": "Lambda requests",
    "LAMBDA_GB_SECONDS": "Lambda GB-seconds",
    "WRITE_UNITS": "DynamoDB write units",
    "READ_UNITS": "DynamoDB read units",
    "S3_PUTS": "S3 puts",
    "S3_GETS": "S3 gets",
    "EXPRESS_PUTS": "S3 Express puts",
    "EXPRESS_GETS": "S3 Express gets",
    "EXPRESS_UPLOADED_BYTES": "S3 Express bytes in",
    "EXPRESS_RETRIEVED_BYTES": "S3 Express bytes out",
    "LOGGED_BYTES": "log bytes",
    "APPSYNC_OPERATIONS": "wake-ups",
    "APPSYNC_MINUTES": "waiting minutes",
    "SQS_REQUESTS": "SQS requests",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """A line of a bill: the part of the work, what AWS bills, how much of it a month has, and the dollars."""

    part: str
    what: str
    quantity: float
    unit: str
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A month on one system: its lines, the dearest first."""

    system: str
    lines: Sequence[CostLine]
    note: str = ""

    @property
    def usd(self) -> float:
        """The dollars of the month."""
        return sum(line.usd for line in self.lines)


def by_price(lines: Sequence[CostLine]) -> tuple[CostLine, ...]:
    """The lines that cost something, the dearest first."""
    return tuple(sorted((line for line in lines if line.usd > 0), key=lambda line: -line.usd))


def line(part: str, what: str, quantity: float, price: prices.Price) -> CostLine:
    """So many units at that price."""
    return CostLine(part=part, what=what, quantity=quantity, unit=price.unit, usd=price.of(quantity))


def estimate(profile: str, workload: Workload, transport: TransportName = AUTO) -> Estimate:
    """The month on Penstock with that storage profile, by a transport. Raises LookupError for an unknown profile."""
    counts = counted(profile, transport)
    lines: list[CostLine] = []
    for part, found in monthly(counts, workload).items():
        lines += priced(part, found)
    lines += _storage(counts, workload)
    if workload.mirrors and workload.records_per_s:
        lines += _mirrored(counts, workload)
    lines.append(
        CostLine(
            part="idle",
            what="the stage, with its alarms",
            quantity=1,
            unit="month",
            usd=counts.idle_stage_usd_per_month,
        )
    )
    if workload.kms_key:
        busy = sum(each.quantity for each in lines if each.what == "Lambda GB-seconds") / SECONDS_PER_MONTH
        stores = 3 + max(1, counts.zones) + 1  # tables, zones, the archive
        lines.append(line("encrypt", "a key of yours", 1, prices.KMS_KEYS))
        asked = key_requests(FUNCTIONS + busy, stores)
        lines.append(line("encrypt", "KMS requests, at most", asked, prices.KMS_REQUESTS))
    by = "" if transport == AUTO else f" by {transport}"
    return Estimate(system=f"Penstock {profile}{by}", lines=by_price(lines))


def priced(part: str, counts: Mapping[str, float]) -> list[CostLine]:
    """Counts by the names of the price table as lines."""
    return [line(part, what, counts[name], getattr(prices, name)) for name, what in _WHAT.items() if counts.get(name)]


def key_requests(callers: float, stores: int) -> float:
    """The requests to KMS in a month, at most: that of so many callers which use all stores without a pause."""
    return SECONDS_PER_MONTH / KEY_S * callers * stores


def monthly(counts: Counted, workload: Workload) -> dict[str, Counts]:
    """The counts of a month by part of the work."""
    requests, size, partitions = workload.requests_per_s, workload.bytes_per_request, workload.partitions_per_request
    is_item = becomes_items(counts, workload)
    appended = counts.append_as_item(size, partitions) if is_item else counts.append(size, partitions)
    moved = {} if is_item else counts.tier(size)
    parts = {
        "produce": times(appended, requests * workload.busy_s),
        "move to the archive": times(moved, requests * workload.busy_s),
    }
    if workload.is_compacted:
        parts["clean"] = _cleaning(counts, workload)
    readers = (month_of_groups, month_of_share_groups, month_of_subscriptions, month_of_mirrors)
    for found in (each(counts, workload) for each in readers):
        parts |= {part: add(parts.get(part, {}), its) for part, its in found.items()}
    return {part: {name: each for name, each in its.items() if name != "INDEX_BYTES"} for part, its in parts.items()}


def _cleaning(counts: Counted, workload: Workload) -> Counts:
    """The counts of the task `clean` in a month: each pass over a log meets as many new bytes as its share asks for."""
    logs = workload.bytes_per_month / COMPACTION_DIRTY_SHARE_DEFAULT
    cleaned = min(logs, COMPACTION_BYTES_PER_DAY_DEFAULT * SECONDS_PER_MONTH / _DAY_S)
    new = cleaned * COMPACTION_DIRTY_SHARE_DEFAULT
    refs = new / min(workload.bytes_per_request, ARCHIVE_REF_BYTES) + (cleaned - new) / ARCHIVE_REF_BYTES
    return {
        "LAMBDA_GB_SECONDS": cleaned / MIB * CLEANING_MS_PER_MIB / 1_000 * CLEANING_GB,
        "EXPRESS_GETS" if counts.zones else "S3_GETS": refs * _READS_OF_A_PASS,
        "EXPRESS_RETRIEVED_BYTES": new * _READS_OF_A_PASS if counts.zones else 0.0,
        "S3_PUTS": cleaned / ARCHIVE_SEGMENT_BYTES * (2 + ARCHIVE_SEGMENT_BYTES / ARCHIVE_PART_BYTES),
    }


def _mirrored(counts: Counted, workload: Workload) -> list[CostLine]:
    """The lines of what other stages keep and move, and of the way there. The stages themselves are left out."""
    there = MirrorPushes.of(workload).workload
    size, requests = there.bytes_per_request, there.requests_per_s * there.busy_s
    moved = {} if becomes_items(counts, there) else times(counts.tier(size), requests)
    kept = priced("", {name: each for name, each in moved.items() if name != "INDEX_BYTES"}) + _storage(counts, there)
    if workload.is_compacted:
        kept += priced("", _cleaning(counts, there))
    lines = [
        replace(each, part="mirror: keep", quantity=each.quantity * workload.mirrors, usd=each.usd * workload.mirrors)
        for each in kept
    ]
    if workload.mirrors_in_region:
        return lines
    transferred = workload.mirrors * workload.bytes_per_month
    return [*lines, line("mirror: transfer", "bytes to other regions", transferred, prices.REGION_BYTES_OUT)]


def _storage(counts: Counted, workload: Workload) -> list[CostLine]:
    """The bytes of records and of the index, once the topics are as old as their retention."""
    retention_s = workload.retention_days * _DAY_S
    requests = workload.requests_per_s * workload.busy_s / SECONDS_PER_MONTH
    size, partitions = workload.bytes_per_request, workload.partitions_per_request
    index = counts.append(size, partitions)["INDEX_BYTES"]
    if becomes_items(counts, workload):
        item = counts.item_bytes(size, partitions)
        kept_bytes = requests * (index * retention_s + item * (retention_s + EXPIRING_MARGIN_DAYS * _DAY_S))
        return [line("store", "DynamoDB GB-months", kept_bytes / prices.GB, prices.TABLE_GB_MONTHS)]
    zone_s = min(retention_s, ZONE_HOURS * 3_600) if counts.zones else 0.0
    archive_s = max(0.0, retention_s - (TIERING_MS_MAX / 1_000 if counts.zones else 0.0))
    kept = counts.tier(size).get("INDEX_BYTES", index)
    young_s = min(retention_s, TIERING_MS_MAX / 1_000)
    index_bytes = requests * (index * young_s + kept * (retention_s - young_s))
    stored = workload.bytes_per_month / SECONDS_PER_MONTH / prices.GB
    return [
        line("store", "S3 Express GB-months", stored * zone_s * counts.zones, prices.EXPRESS_GB_MONTHS),
        line("store", "S3 GB-months", stored * archive_s, prices.S3_GB_MONTHS),
        line("store", "index, DynamoDB GB-months", index_bytes / prices.GB, prices.TABLE_GB_MONTHS),
    ]
