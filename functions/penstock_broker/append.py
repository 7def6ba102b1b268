"""One append: a segment by quorum, then one update per partition (design.md §3). Verb behind every kind of produce.

A crash before an update leaves an object that no ref names; a crash after it leaves nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_broker.append_in_sequence import Taken, append_in_sequence
from penstock_broker.broker import Broker
from penstock_broker.put_segment import StoredSegment, put_segment
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.index import roll_due
from penstock_core.keys import PartitionKey
from penstock_core.quorum import Acks
from penstock_core.record_batch import BatchesSummary
from penstock_core.ref import Ref
from penstock_core.segment import SegmentPart, build_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBatches:
    """Validated batches for one partition."""

    key: PartitionKey
    data: memoryview | bytes
    summary: BatchesSummary
    min_insync_zones: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The records of one partition have the offsets `[base_offset, next_offset)`, since now or, if their producer
    repeats itself, since before."""

    base_offset: Offset
    next_offset: Offset


def append(broker: Broker, batches: Sequence[PartitionBatches], acks: Acks) -> list[Appended | PenstockError]:
    """Appends to every partition or tells why not, each for itself, in request order; a partition stands once.

    One put per zone and one update per partition, plus a roll (one transaction) per partition every 16th append.
    Raises NOT_ENOUGH_ZONES or STORAGE_UNAVAILABLE when nothing was appended anywhere.
    """
    stored, refs = put_batches(broker, batches, acks)
    keys = [batch.key for batch in batches]
    results = broker.parallel.map(
        lambda pair: _append_ref(broker, *pair, stored.unconfirmed_zones), list(zip(keys, refs, strict=True))
    )
    _roll_tails(broker, keys, results)
    return [
        result
        if isinstance(result, PenstockError)
        else Appended(base_offset=result.base_offset, next_offset=Offset(result.base_offset + ref.offset_span))
        for result, ref in zip(results, refs, strict=True)
    ]


def put_batches(broker: Broker, batches: Sequence[PartitionBatches], acks: Acks) -> tuple[StoredSegment, list[Ref]]:
    """Puts one segment with all the batches; it, and the refs that are to name their parts. One put per zone.

    Raises NOT_ENOUGH_ZONES or STORAGE_UNAVAILABLE.
    """
    segment = build_segment(
        [
            SegmentPart(
                topic_id=batch.key.topic_id,
                partition=batch.key.partition,
                data=(batch.data,),
                offset_span=batch.summary.offset_span,
                max_timestamp_ms=batch.summary.max_timestamp_ms,
            )
            for batch in batches
        ]
    )
    stored = put_segment(broker, segment, acks, max(batch.min_insync_zones for batch in batches))
    return stored, [
        Ref(
            segment_id=stored.segment_id,
            position=entry.position,
            length=entry.length,
            offset_span=batch.summary.offset_span,
            record_count=batch.summary.record_count,
            max_timestamp_ms=batch.summary.max_timestamp_ms,
            zones=stored.zones,
            sequence=batch.summary.sequence,
        )
        for batch, entry in zip(batches, segment.toc, strict=True)
    ]


def _append_ref(broker: Broker, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Taken:
    if ref.sequence is not None:
        return append_in_sequence(broker, key, ref, unconfirmed_zones, ref.sequence)
    head = broker.log.append(key, ref, unconfirmed_zones)
    return Taken(base_offset=Offset(head.next_offset - ref.offset_span), head=head)


def _roll_tails(broker: Broker, keys: Sequence[PartitionKey], results: Sequence[Taken | PenstockError]) -> None:
    """Keeps heads small. A roll that fails costs nothing but a longer head: a later append tries again."""
    due = [
        (key, roll)
        for key, result in zip(keys, results, strict=True)
        if isinstance(result, Taken) and result.head is not None and (roll := roll_due(result.head)) is not None
    ]
    broker.parallel.map(lambda pair: broker.log.roll(*pair), due)


def head_is_gone(result: object) -> bool:
    """Whether an append was refused because its partition has no head: deleted since its topic was looked up."""
    return isinstance(result, PenstockError) and result.code is ErrorCode.UNKNOWN_PARTITION
