"""The changes that would make a workload cheaper on Penstock, the one that saves most first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.cost.counted import PROFILES
from penstock.cost.estimate import Estimate, estimate
from penstock.cost.workload import ANSWER_MS, Workload
from penstock.http.named_transport import AUTO, TransportName
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, SDK_FETCH_INTERVAL_MS_MAX

LEAST_SHARE = 0.005
"""A lever that saves a smaller share of the month is not worth a line."""
LINGER_MS_MAX = 10_000.0
FETCH_INTERVAL_MS = 1_000.0
_LARGER = 10
_SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # of the wait within a latency that a producer may have
_JITTER = 1.1  # of a fetch interval, at most
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


def within_latency(profile: str, workload: Workload, latency_ms: float, transport: TransportName = AUTO) -> Workload:
    """The workload with the cheapest settings of its clients by which a record reaches its reader within that time.

    A record waits for the linger of its producer, for a fetch interval with its jitter, and for two answers. Raises
    PenstockError if the answers alone take longer.
    """
    rest_ms = latency_ms - 2 * ANSWER_MS
    if rest_ms < 0:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"--max-latency is {latency_ms:g} ms: an append and a fetch take {2 * ANSWER_MS:g}, so use that at least",
        )
    found = [_split(workload, rest_ms, share) for share in _SHARES]
    return min(found, key=lambda each: estimate(profile, each, transport).usd)


def _split(workload: Workload, rest_ms: float, share: float) -> Workload:
    """That share of the wait for the producer, and what remains for the reader."""
    linger_ms = math.floor(min(share * rest_ms, LINGER_MS_MAX))
    interval_ms = math.floor(min((rest_ms - linger_ms) / _JITTER, SDK_FETCH_INTERVAL_MS_MAX))
    return replace(workload, linger_ms=float(linger_ms), fetch_interval_ms=float(interval_ms))


def _changes(profile: str, workload: Workload, transport: TransportName) -> Iterator[tuple[str, Estimate]]:
    for other in PROFILES:
        if other != profile:
            yield f"storage profile {other}: {_PROMISES[other]}", estimate(other, workload, transport)
    for changes in (_of_producers, _of_readers, _of_the_stage):
        for change, changed in changes(workload):
            yield change, estimate(profile, changed, transport)


def _of_producers(workload: Workload) -> Iterator[tuple[str, Workload]]:
    larger = _with_larger_requests(workload)
    if larger is not None:
        yield larger
    fewer = _with_fewer_producers(workload)
    if fewer is not None:
        yield f"{fewer.producers} producers instead of {workload.producers}", fewer
    if workload.record_bytes > 1:
        yield "records of half the size", replace(workload, record_bytes=max(1, workload.record_bytes // 2))


def _of_readers(workload: Workload) -> Iterator[tuple[str, Workload]]:
    if workload.records_per_s and workload.fetch_interval_ms < FETCH_INTERVAL_MS:
        slower = replace(workload, fetch_interval_ms=FETCH_INTERVAL_MS)
        yield f"fetch_interval_ms={FETCH_INTERVAL_MS:g}: records come 0.4 s later", slower
    fewer = workload.all_members - workload.all_groups
    if fewer:
        yield f"one member in each group: {fewer:,} fewer", replace(workload, members=workload.all_groups)
    elif workload.groups > 1:
        yield "one group fewer", replace(workload, groups=workload.groups - 1, members=None)
    if workload.share_workers > workload.topics:
        workers = max(workload.topics, workload.share_workers // 2)
        change = f"{workers:,} share workers instead of {workload.share_workers:,}"
        yield change, replace(workload, share_workers=workers)
    if workload.worker_hours > workload.hours and workload.all_members + workload.share_workers:
        stopping = replace(workload, worker_hours=workload.hours)
        yield f"readers run {workload.hours:g} hours a day, as records come", stopping


def _of_the_stage(workload: Workload) -> Iterator[tuple[str, Workload]]:
    if not workload.has_items:
        yield "-c inline_bytes_max=auto: small requests go into DynamoDB", replace(workload, has_items=True)
    if workload.has_keys and workload.partitions > 1:
        partitions = max(1, workload.partitions // 2)
        change = f"{partitions:,} partitions instead of {workload.partitions:,}"
        yield change, replace(workload, partitions=partitions)
    if workload.retention_days > 1:
        yield "retention of 1 day", replace(workload, retention_days=1.0)


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
