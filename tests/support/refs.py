"""Refs of segments that nothing stored: for heads and pages alone."""

from penstock_core.ids import new_segment_id
from penstock_core.log.ref import Ref, Tier
from penstock_core.records.producer_state import ProducerSequence


def ref_at(
    timestamp_ms: int,
    sequence: ProducerSequence | None = None,
    *,
    stored_ms: int | None = None,
    length: int = 100,
    span: int = 1,
    zones: int = 0b111,
    tier: Tier = Tier.ZONAL,
) -> Ref:
    """A ref of `span` records, the newest of that time. Its segment is of the same time, unless `stored_ms` says."""
    return Ref(
        segment_id=new_segment_id(timestamp_ms if stored_ms is None else stored_ms, bytes(10)),
        position=0,
        length=length,
        offset_span=span,
        record_count=span,
        max_timestamp_ms=timestamp_ms,
        zones=zones,
        tier=tier,
        sequence=sequence,
    )


def one_sequence(producer_id: int, number: int) -> ProducerSequence:
    """The sequence of an append of one record, in a producer's first epoch."""
    return ProducerSequence(producer_id=producer_id, epoch=0, first_sequence=number, last_sequence=number)
