"""The changes that would make a workload cheaper on Penstock, the one that saves most first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.cost.counted import PROFILES
from penstock.cost.estimate import Estimate, estimate
from penstock.cost.workload import Workload
from penstock.http.named_transport import AUTO, TransportName
from penstock_core.limits import BATCH_BYTES_MAX

LEAST_SHARE = 0.005
"""A lever that saves a smaller share of the month is not worth a line."""
LINGER_MS_MAX = 10_000.0
FETCH_INTERVAL_MS = 1_000.0
_LARGER = 10
_PROMISES = {
    "express3": "three zones, a few ms",
    "express2": "two zones, a few ms",
    "standard1": "S3 Standard, some 30 ms more an append",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change, and the dollars of a month that it saves."""

    change: str
    saves_usd: float


def levers(profile: str, workload: Workload, transport: TransportName = AUTO) -> list[Lever]:
    """The changes that save something, the largest first."""
    now = estimate(profile, workload, transport)
    found = [
        Lever(change=change, saves_usd=now.usd - then.usd) for change, then in _changes(profile, workload, transport)
    ]
    return sorted((each for each in found if each.saves_usd > LEAST_SHARE * now.usd), key=lambda each: -each.saves_usd)


def _changes(profile: str, workload: Workload, transport: TransportName) -> Iterator[tuple[str, Estimate]]:
    for other in PROFILES:
        if other != profile:
            yield f"storage profile {other}: {_PROMISES[other]}", estimate(other, workload, transport)
    larger = _with_larger_requests(workload)
    if larger is not None:
        yield larger[0], estimate(profile, larger[1], transport)
    fewer = _with_fewer_producers(workload)
    if fewer is not None:
        yield f"{fewer.producers} producers instead of {workload.producers}", estimate(profile, fewer, transport)
    if workload.has_keys and workload.partitions > 1:
        yield (
            f"{max(1, workload.partitions // 2)} partitions instead of {workload.partitions}",
            estimate(profile, replace(workload, partitions=max(1, workload.partitions // 2)), transport),
        )
    if workload.records_per_s and workload.fetch_interval_ms < FETCH_INTERVAL_MS:
        slower = replace(workload, fetch_interval_ms=FETCH_INTERVAL_MS)
        yield (
            f"fetch_interval_ms={FETCH_INTERVAL_MS:g}: records come half a second later",
            estimate(profile, slower, transport),
        )
    if workload.retention_days > 1:
        yield "retention of 1 day", estimate(profile, replace(workload, retention_days=1.0), transport)
    if workload.consumers > 1:
        yield "one consumer fewer", estimate(profile, replace(workload, consumers=workload.consumers - 1), transport)
    if workload.record_bytes > 1:
        smaller = replace(workload, record_bytes=max(1, workload.record_bytes // 2))
        yield "records of half the size", estimate(profile, smaller, transport)


def _with_larger_requests(workload: Workload) -> tuple[str, Workload] | None:
    """Ten times the bytes of a request, by the linger that gathers them."""
    if workload.request_bytes is not None:
        size = min(_LARGER * workload.request_bytes, BATCH_BYTES_MAX)
        return (
            None
            if size == workload.request_bytes
            else (f"requests of {size:,} bytes", replace(workload, request_bytes=size))
        )
    if not workload.records_per_s:
        return None
    gathers_ms = _LARGER * workload.records_per_request * workload.producers / workload.records_per_s * 1_000
    larger = replace(workload, linger_ms=float(math.ceil(min(gathers_ms, LINGER_MS_MAX))))
    if larger.records_per_request <= workload.records_per_request:
        return None
    return f"linger_ms={larger.linger_ms:g}: requests of {larger.bytes_per_request:,.0f} bytes", larger


def _with_fewer_producers(workload: Workload) -> Workload | None:
    """So many producers that each gathers ten times the records for a request."""
    alone = replace(workload, producers=1)
    wanted = _LARGER * workload.records_per_request
    producers = max(1, int(alone.records_per_request / wanted))
    fewer = replace(workload, producers=producers)
    return fewer if fewer.records_per_request > workload.records_per_request else None
