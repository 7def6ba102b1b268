"""Put one segment to every zone and wait for as many as `acks` asks for."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.ports import SegmentStore
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId, new_segment_id
from penstock_core.quorum import Acks, zones_needed
from penstock_core.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSegment:
    """Both bitmaps are by the configured order of zones, and together cover all."""

    segment_id: SegmentId
    zones: int
    unconfirmed_zones: int


def put_segment(broker: Broker, segment: Segment, acks: Acks) -> StoredSegment:
    """One put per zone, side by side.

    Raises NOT_ENOUGH_ZONES when too many zones failed; then no ref names the object, so nothing was appended.
    """
    segment_id = new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(SEGMENT_ID_BYTES - 6))
    zone_count = len(broker.zones)
    needed = zones_needed(acks, zone_count, zone_count)

    def is_decided(results: Sequence[bool | PenstockError | None]) -> bool:
        failed = sum(isinstance(result, PenstockError) for result in results)
        return _confirmed(results) >= needed or zone_count - failed < needed

    def put_to(zone: SegmentStore) -> bool:
        zone.put(segment_id, segment.body, segment.crc32c)
        return True

    results = broker.parallel.race(put_to, broker.zones, is_decided, broker.straggler_grace_ms)
    if _confirmed(results) < needed:
        raise PenstockError(
            ErrorCode.NOT_ENOUGH_ZONES,
            f"{_confirmed(results)} of {zone_count} zones stored the segment, acks={acks.value} needs {needed}: "
            f"nothing was appended, try again ({_reasons(broker, results)})",
        )
    zones = sum(1 << index for index, result in enumerate(results) if result is True)
    return StoredSegment(segment_id=segment_id, zones=zones, unconfirmed_zones=(1 << zone_count) - 1 - zones)


def _confirmed(results: Sequence[bool | PenstockError | None]) -> int:
    return sum(result is True for result in results)


def _reasons(broker: Broker, results: Sequence[bool | PenstockError | None]) -> str:
    return "; ".join(
        f"zone {store.zone}: {result.message}"
        for store, result in zip(broker.zones, results, strict=True)
        if isinstance(result, PenstockError)
    )
