"""Refs of segments that nothing stored: for heads and pages alone."""

from penstock_core.ids import SegmentId
from penstock_core.log.ref import Ref
from penstock_core.records.producer_state import ProducerSequence


def ref_at(now_ms: int, sequence: ProducerSequence | None = None, *, length: int = 100, zones: int = 0b111) -> Ref:
    """A ref of one record of that time, in a segment of that time."""
    return Ref(
        segment_id=SegmentId(now_ms.to_bytes(6, "big") + bytes(10)),
        position=0,
        length=length,
        offset_span=1,
        record_count=1,
        max_timestamp_ms=now_ms,
        zones=zones,
        sequence=sequence,
    )


def one_sequence(producer_id: int, number: int) -> ProducerSequence:
    """The sequence of an append of one record, in a producer's first epoch."""
    return ProducerSequence(producer_id=producer_id, epoch=0, first_sequence=number, last_sequence=number)
