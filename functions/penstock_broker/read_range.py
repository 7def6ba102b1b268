"""Read one range of a segment from whichever zone has it whole: the fastest first, then the others."""

from penstock_broker.broker import Broker
from penstock_broker.ports import SegmentStore
from penstock_broker.zone_latency import FAILURE_MS
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.read_plan import SegmentRange
from penstock_core.record_batch import check_stored


def read_range(broker: Broker, wanted: SegmentRange) -> bytes:
    """The range's bytes, every batch in it checked by its CRC-32C.

    One ranged get, and one more for each zone that fails. Raises CORRUPT_SEGMENT if every zone answered and none had
    the bytes right, else STORAGE_UNAVAILABLE.
    """
    errors: list[PenstockError] = []
    for store in _in_order(broker, wanted):
        started_ms = broker.clock.monotonic_ms()
        try:
            data = store.get(wanted.segment_id, wanted.position, wanted.length)
            _check(data, wanted)
        except PenstockError as error:
            broker.latency.observe(store.zone, FAILURE_MS)
            errors.append(error)
        else:
            broker.latency.observe(store.zone, broker.clock.monotonic_ms() - started_ms)
            return data
    is_corrupt = all(error.code is ErrorCode.CORRUPT_SEGMENT for error in errors)
    raise PenstockError(
        ErrorCode.CORRUPT_SEGMENT if is_corrupt else ErrorCode.STORAGE_UNAVAILABLE,
        f"no zone could serve segment {wanted.segment_id.hex()}: " + "; ".join(error.message for error in errors),
    )


def _in_order(broker: Broker, wanted: SegmentRange) -> list[SegmentStore]:
    """Zones that confirmed the segment before those that may have got it since; within each, the fastest first."""
    by_name = {store.zone: store for store in broker.zones}
    confirmed = [store.zone for index, store in enumerate(broker.zones) if wanted.zones >> index & 1]
    others = [zone for zone in by_name if zone not in confirmed]
    order = broker.latency.fastest_first(confirmed) + broker.latency.fastest_first(others)
    return [by_name[zone] for zone in order]


def _check(data: bytes, wanted: SegmentRange) -> None:
    view = memoryview(data)
    for located in wanted.refs:
        start = located.ref.position - wanted.position
        check_stored(view[start : start + located.ref.length], located.ref.offset_span)
