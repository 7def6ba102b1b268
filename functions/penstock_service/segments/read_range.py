"""Read one range of a segment from a zone that has it whole: the fastest zone first, hedged to the next ones.

If a zone takes longer than it usually does, the reader asks the next zone too, and the first good answer wins. A
segment of the archive tier is in the archive only, and that of an item in the log table only. Compaction gives merged
batches a new id, so no tier stands in for another.

An item that DynamoDB has removed by its TTL has expired. Its ref may be there until retention has passed it.
"""

import threading
from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.log.read_plan import SegmentRange
from penstock_core.log.ref import Tier
from penstock_core.log.repair import Repair
from penstock_core.log.retention_raise import may_have_expired
from penstock_core.outcomes import Outcome
from penstock_core.records.record_batch import check_stored
from penstock_core.zones.zone_state import read_order
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore

# A read fails so if the segment is damaged or out of reach, but also if retention has removed it since the plan.
MAY_BE_REMOVED = (ErrorCode.CORRUPT_SEGMENT, ErrorCode.STORAGE_UNAVAILABLE)
_WHO_FAILED = {
    Tier.ZONAL: "no zone could",
    Tier.ARCHIVE: "the archive could not",
}


def read_range(instance: Instance, wanted: SegmentRange) -> bytes:
    """The range's bytes, every batch in it checked by its CRC-32C.

    One ranged get, and one more for each zone that fails or takes longer than usual. The read goes by the states of
    zones that the instance remembers. Raises CORRUPT_SEGMENT if every zone that should have the bytes answered and had
    them wrong, else STORAGE_UNAVAILABLE. If one copy is bad or missing and another is good, the bad one is reported
    for repair. The range of an item costs what `read_items` costs, and raises its errors.
    """
    if wanted.tier.is_item:
        [found] = read_items(instance, [wanted])
        if isinstance(found, PenstockError):
            raise found
        return found
    return _read_of_stores(instance, wanted)


def _read_of_stores(instance: Instance, wanted: SegmentRange) -> bytes:
    stores = _in_order(instance, wanted)
    begun: list[tuple[SegmentStore, float]] = []
    # The instance may be frozen from its answer on, and a read that ends after that says nothing of its zone.
    race_is_over = threading.Event()

    def get(store: SegmentStore) -> bytes:
        started_ms = instance.clock.monotonic_ms()
        begun.append((store, started_ms))
        try:
            data = store.get(wanted.segment_id, wanted.position, wanted.length)
            check_range(data, wanted)
        except PenstockError:
            if not race_is_over.is_set():
                instance.zone_latency.observe_failure(store.zone)
            raise
        duration_ms = instance.clock.monotonic_ms() - started_ms  # first: a freeze may follow at any point
        if not race_is_over.is_set():
            instance.zone_latency.observe(store.zone, duration_ms)
        return data

    def is_read(results: Sequence[bytes | PenstockError | None]) -> bool:
        return any(isinstance(result, bytes) for result in results)

    results = instance.executor.first_of(
        get,
        stores,
        is_read,
        0,
        lanes=[store.zone for store in stores],
        hedge_delays_ms=[
            instance.zone_latency.hedge_delay_ms(store.zone, wanted.length, instance.tuning.hedge_floor_ms)
            for store in stores
        ],
    )
    race_is_over.set()
    by_zone = dict(zip((store.zone for store in stores), results, strict=True))
    now_ms = instance.clock.monotonic_ms()
    for store, started_ms in begun:
        if by_zone[store.zone] is None:  # overtaken: the next read begins elsewhere
            instance.zone_latency.observe_failure(store.zone, now_ms - started_ms)
            instance.telemetry.count("reads_hedged")
    for result in results:
        if isinstance(result, bytes):
            _report_bad_copies(instance, wanted, by_zone)
            return result
    errors = [result for result in results if isinstance(result, PenstockError)]
    is_corrupt = all(error.code is ErrorCode.CORRUPT_SEGMENT for error in errors)
    who = _WHO_FAILED[wanted.tier]
    raise PenstockError(
        ErrorCode.CORRUPT_SEGMENT if is_corrupt else ErrorCode.STORAGE_UNAVAILABLE,
        f"{who} serve segment {wanted.segment_id.hex()}: " + "; ".join(error.message for error in errors),
        **({"is_missing": True} if all(map(is_missing, errors)) else {}),
    )


def read_items(instance: Instance, ranges: Sequence[SegmentRange]) -> list[Outcome[bytes]]:
    """The checked bytes of each range of items, or its error, in their order.

    One consistent BatchGetItem for each 100 segments. A segment that is not there is STORAGE_UNAVAILABLE, with the fact
    `is_missing`, and `is_expired` if its TTL is over. Raises what the read of all of them raises.
    """
    inline = dict.fromkeys(each.segment_id for each in ranges if each.tier is Tier.INLINE)
    expiring = dict.fromkeys(each.segment_id for each in ranges if each.tier is Tier.EXPIRING)
    bodies = {
        **(instance.stores.inline.get_wholes([*inline]) if inline else {}),
        **(instance.stores.inline.get_expiring([*expiring]) if expiring else {}),
    }
    return [_item_outcome(each, bodies, instance.clock.now_ms()) for each in ranges]


def _item_outcome(wanted: SegmentRange, bodies: Mapping[SegmentId, bytes], now_ms: int) -> Outcome[bytes]:
    body = bodies.get(wanted.segment_id)
    if body is None:
        is_over = all(may_have_expired(located.ref, now_ms) for located in wanted.refs)
        return PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE,
            f"the log table has no segment {wanted.segment_id.hex()}",
            is_missing=True,
            **({"is_expired": True} if is_over else {}),
        )
    data = body[wanted.position : wanted.position + wanted.length]
    try:
        check_range(data, wanted)
    except PenstockError as error:
        return error
    return data


def is_expired(outcome: object) -> bool:
    """Tells if a read has found that DynamoDB has removed the item by its TTL."""
    return isinstance(outcome, PenstockError) and bool(outcome.facts.get("is_expired"))


def is_missing(error: PenstockError) -> bool:
    """Tells if the store answered that it has no such segment."""
    return bool(error.facts.get("is_missing"))


def check_range(data: bytes, wanted: SegmentRange) -> None:
    """Raises CORRUPT_SEGMENT unless the range's bytes are what its refs say, by the CRC-32C of each batch."""
    view = memoryview(data)
    for located in wanted.refs:
        check_stored(view[wanted.place_of(located)], located.ref.offset_span)


def _in_order(instance: Instance, wanted: SegmentRange) -> list[SegmentStore]:
    """The stores to ask, in order.

    Zones that confirmed the segment come first, then zones that may have got it since, then zones that are out. Within
    each kind, the fastest comes first. For a segment of another tier it is the one store that has it.
    """
    if wanted.tier is Tier.ARCHIVE:
        return [instance.stores.archive]
    by_name = {store.zone: store for store in instance.stores.zones}
    confirmed = frozenset(store.zone for index, store in enumerate(instance.stores.zones) if wanted.zones >> index & 1)
    order = read_order(instance.zone_cache.remembered, instance.zone_latency.fastest_first(by_name), confirmed)
    return [by_name[zone] for zone in order]


def _report_bad_copies(
    instance: Instance, wanted: SegmentRange, results: Mapping[ZoneName, bytes | PenstockError | None]
) -> None:
    """Reports the zones that answered and have the range wrong, or not at all.

    A zone that is out is not reported, because it is caught up as a whole. A fallback zone needs no copy.
    """
    written = instance.zone_cache.remembered.written(instance.stores.zone_names) & instance.stores.regular_zones
    for index, zone in enumerate(instance.stores.zone_names):
        result = results.get(zone)
        is_bad = isinstance(result, PenstockError) and (result.code is ErrorCode.CORRUPT_SEGMENT or is_missing(result))
        if is_bad and written >> index & 1:
            report_copy(instance, wanted.segment_id, zone)


def report_copy(instance: Instance, segment_id: SegmentId, zone: ZoneName) -> None:
    """One send, if the copy was not reported within the last minute. Raises nothing."""
    if not instance.repair_throttle.take(segment_id, zone):
        return
    try:
        instance.stores.repair_queue.send(Repair(segment_id=segment_id, zones=frozenset((zone,))))
    except PenstockError as error:
        instance.telemetry.log("copy_report_failed", segment=segment_id.hex(), zone=zone, error=str(error))
    else:
        instance.telemetry.count("copies_reported")
