"""Read one range of a segment from whichever zone has it whole: the fastest first, hedged to the others.

When a zone takes longer than it usually does, the next is asked too and the first good answer wins. A segment of the
archive tier is in the archive only: compaction gives what it merges a new id, so neither tier stands in for the other.
"""

from collections.abc import Mapping, Sequence

from penstock_broker.broker import Broker
from penstock_broker.ports import SegmentStore
from penstock_broker.report_copy import report_copy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import ZoneName
from penstock_core.read_plan import SegmentRange
from penstock_core.record_batch import check_stored
from penstock_core.ref import Tier
from penstock_core.zone_state import read_order

# How a read fails of what is damaged or out of reach, but also of what retention has removed since it was planned.
MAY_BE_REMOVED = (ErrorCode.CORRUPT_SEGMENT, ErrorCode.STORAGE_UNAVAILABLE)


def read_range(broker: Broker, wanted: SegmentRange) -> bytes:
    """The range's bytes, every batch in it checked by its CRC-32C.

    One ranged get, and one more for each zone that fails or takes longer than usual. Zones' states are taken as they
    are remembered. Raises CORRUPT_SEGMENT if whoever should have them answered and had the bytes not right, else
    STORAGE_UNAVAILABLE. A copy that was found bad or missing is reported for repair once another was read.
    """
    stores = _in_order(broker, wanted)
    begun: list[tuple[SegmentStore, float]] = []

    def get(store: SegmentStore) -> bytes:
        started_ms = broker.clock.monotonic_ms()
        begun.append((store, started_ms))
        try:
            data = store.get(wanted.segment_id, wanted.position, wanted.length)
            _check(data, wanted)
        except PenstockError:
            broker.latency.observe_failure(store.zone)
            raise
        broker.latency.observe(store.zone, broker.clock.monotonic_ms() - started_ms)
        return data

    def is_read(results: Sequence[bytes | PenstockError | None]) -> bool:
        return any(isinstance(result, bytes) for result in results)

    results = broker.parallel.race(
        get,
        stores,
        is_read,
        0,
        places=[store.zone for store in stores],
        patience_ms=[broker.latency.patience_ms(store.zone, wanted.length, broker.hedge_floor_ms) for store in stores],
    )
    by_zone = dict(zip((store.zone for store in stores), results, strict=True))
    now_ms = broker.clock.monotonic_ms()
    for store, started_ms in begun:
        if by_zone[store.zone] is None:  # overtaken: what comes next begins elsewhere
            broker.latency.observe_failure(store.zone, now_ms - started_ms)
            broker.events.count("reads_hedged")
    for result in results:
        if isinstance(result, bytes):
            _report_bad_copies(broker, wanted, by_zone)
            return result
    errors = [result for result in results if isinstance(result, PenstockError)]
    is_corrupt = all(error.code is ErrorCode.CORRUPT_SEGMENT for error in errors)
    who = "no zone could" if wanted.tier is Tier.ZONAL else "the archive could not"
    raise PenstockError(
        ErrorCode.CORRUPT_SEGMENT if is_corrupt else ErrorCode.STORAGE_UNAVAILABLE,
        f"{who} serve segment {wanted.segment_id.hex()}: " + "; ".join(error.message for error in errors),
        **({"is_missing": True} if all(map(is_missing, errors)) else {}),
    )


def is_missing(error: PenstockError) -> bool:
    """Whether whoever was asked answered that there is no such segment."""
    return bool(error.facts.get("is_missing"))


def _in_order(broker: Broker, wanted: SegmentRange) -> list[SegmentStore]:
    """Zones that confirmed the segment before those that may have got it since, then those that are out; within each,
    the fastest first. Of a segment of the archive tier, the archive."""
    if wanted.tier is Tier.ARCHIVE:
        return [broker.archive]
    by_name = {store.zone: store for store in broker.zones}
    confirmed = frozenset(store.zone for index, store in enumerate(broker.zones) if wanted.zones >> index & 1)
    order = read_order(broker.zone_directory.remembered, broker.latency.fastest_first(by_name), confirmed)
    return [by_name[zone] for zone in order]


def _report_bad_copies(
    broker: Broker, wanted: SegmentRange, results: Mapping[ZoneName, bytes | PenstockError | None]
) -> None:
    """Of zones that answered and do not have the range right, unless they are out: those are caught up as a whole."""
    written = broker.zone_directory.remembered.written(broker.zone_names)
    for index, zone in enumerate(broker.zone_names):
        result = results.get(zone)
        is_bad = isinstance(result, PenstockError) and (result.code is ErrorCode.CORRUPT_SEGMENT or is_missing(result))
        if is_bad and written >> index & 1:
            report_copy(broker, wanted.segment_id, zone)


def _check(data: bytes, wanted: SegmentRange) -> None:
    view = memoryview(data)
    for located in wanted.refs:
        start = located.ref.position - wanted.position
        check_stored(view[start : start + located.ref.length], located.ref.offset_span)
