"""The month of a workload on Penstock: counts of all its requests, times the price table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock import prices
from penstock.cost.counted import Counted, Counts, counted
from penstock.cost.reading import reads_per_s
from penstock.cost.workload import HOURS_PER_MONTH, SECONDS_PER_MONTH, Workload
from penstock.http.named_transport import AUTO, TransportName
from penstock_core.limits import TIERED_SWEEP_GRACE_MS, TIERING_MS_MAX

COMMIT_S = 5.0  # between two commits of a consumer's offsets
ZONE_HOURS = (TIERING_MS_MAX + TIERED_SWEEP_GRACE_MS) / 3_600_000 + 2.0
"""The hours that bytes lie in S3 Express: until `tier` moves them, and until `sweep` has removed the copies."""

KEY_S = 300.0
"""A caller asks KMS for a store's key once in this time: DynamoDB for each table, S3 for each bucket and session."""
FUNCTIONS = 13

_WHAT = {
    "API_REQUESTS": "API Gateway requests",
    "LAMBDA_REQUESTS": "Lambda requests",
    "LAMBDA_GB_SECONDS": "Lambda time",
    "WRITE_UNITS": "DynamoDB writes",
    "READ_UNITS": "DynamoDB reads",
    "S3_PUTS": "S3 puts",
    "S3_GETS": "S3 gets",
    "EXPRESS_PUTS": "S3 Express puts",
    "EXPRESS_GETS": "S3 Express gets",
    "EXPRESS_UPLOADED_BYTES": "S3 Express uploads",
    "EXPRESS_RETRIEVED_BYTES": "S3 Express retrievals",
    "LOGGED_BYTES": "log lines",
    "APPSYNC_OPERATIONS": "wake-ups",
    "APPSYNC_MINUTES": "connections that wait",
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
    for part, found in _monthly(counts, workload).items():
        lines += priced(part, found)
    lines += _storage(counts, workload)
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
        busy = sum(each.quantity for each in lines if each.what == "Lambda time") / SECONDS_PER_MONTH
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


def _monthly(counts: Counted, workload: Workload) -> dict[str, Counts]:
    """The counts of a month by part of the work."""
    requests = workload.requests_per_s
    reads = reads_per_s(workload)
    consumers = workload.consumers
    produce = _scaled(counts.append(workload.bytes_per_request, workload.partitions_per_request), requests)
    produce.pop("INDEX_BYTES")
    parts = {"produce": produce}
    if reads.found and consumers:
        asked = min(workload.partitions, 100)
        fetch = counts.fetch(workload.bytes_per_s / reads.found, max(1.0, requests / reads.found), asked)
        parts["consume"] = _scaled(fetch, reads.found * consumers)
        parts["look for records"] = _scaled(counts.empty_fetch(asked), reads.empty * consumers)
        armed = min(workload.partitions_per_request, 100)
        woken = counts.arming_fetch(asked, armed)
        messages = min(woken.pop("WAKE_UPS"), armed)
        parts["wait"] = _scaled(woken, reads.sleeps * consumers)
        parts["wait"]["APPSYNC_OPERATIONS"] = _monthly_of(reads.sleeps * messages * (1 + consumers))
        touched = min(workload.partitions, requests * COMMIT_S * workload.partitions_per_request)
        commits = min(1 / COMMIT_S, requests)
        parts["commit"] = _scaled(counts.commit(max(1.0, touched)), commits * consumers)
    if consumers:
        idle = {name: value * HOURS_PER_MONTH * consumers for name, value in counts.idle_member_hour().items()}
        parts["idle"] = idle
    tier = _scaled(counts.tier(workload.bytes_per_request), requests)
    tier.pop("INDEX_BYTES", None)
    parts["move to the archive"] = tier
    return parts


def _storage(counts: Counted, workload: Workload) -> list[CostLine]:
    """The bytes of records and of the index, once the topic is as old as its retention."""
    retention_s = workload.retention_days * 86_400
    zone_s = min(retention_s, ZONE_HOURS * 3_600) if counts.zones else 0.0
    archive_s = max(0.0, retention_s - (TIERING_MS_MAX / 1_000 if counts.zones else 0.0))
    index = counts.append(workload.bytes_per_request, workload.partitions_per_request)["INDEX_BYTES"]
    kept = counts.tier(workload.bytes_per_request).get("INDEX_BYTES", index)
    young_s = min(retention_s, TIERING_MS_MAX / 1_000)
    index_bytes = workload.requests_per_s * (index * young_s + kept * (retention_s - young_s))
    stored = workload.bytes_per_s / prices.GB
    return [
        line("store", "S3 Express", stored * zone_s * counts.zones, prices.EXPRESS_GB_MONTHS),
        line("store", "S3", stored * archive_s, prices.S3_GB_MONTHS),
        line("store", "the index in DynamoDB", index_bytes / prices.GB, prices.TABLE_GB_MONTHS),
    ]


def _scaled(counts: Mapping[str, float], per_s: float) -> Counts:
    return {name: value * _monthly_of(per_s) for name, value in counts.items()}


def _monthly_of(per_s: float) -> float:
    return per_s * SECONDS_PER_MONTH
