"""One append: a segment by quorum, then one update per partition (design.md §3). Every kind of produce uses it.

Where the stage says so, a small segment is one item of DynamoDB instead (put_inline.py).

A crash before an update leaves an object that no ref names. A crash after it leaves nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.ref import Ref
from penstock_core.log.retention import indexed_ms
from penstock_core.log.segment import Segment, SegmentPart, build_segment
from penstock_core.outcomes import Outcomes
from penstock_core.records.record_batch import BatchesSummary
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import Moment
from penstock_service.records.append_in_sequence import AppendOutcome, append_in_sequence
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.records.wake_readers import wake_beside, wake_ups_after
from penstock_service.segments.put_segment import StoredSegment, is_inline, item_days, put_inline, put_segment


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBatches:
    """Validated batches for one partition.

    `is_draining`: the partition took no new records when its topic was read. Its head alone decides about an append.
    `kept_days` is what a small segment's TTL needs, by the topic as it was read at `topic_read` or later; 0 for none.
    """

    key: PartitionKey
    data: memoryview | bytes
    summary: BatchesSummary
    min_insync_zones: int = 1
    tag_filter: int | None = None
    may_expire: bool = False
    is_draining: bool = False
    kept_days: int = 0
    topic_read: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedRange:
    """The records of one partition have the offsets `[base_offset, next_offset)`.

    This append gave them these offsets, or, if it repeats an earlier append of its producer, the earlier one did.
    """

    base_offset: Offset
    next_offset: Offset


def append(instance: Instance, batches: Sequence[PartitionBatches], acks: Acks) -> Outcomes[AppendedRange]:
    """Append to each partition, which succeeds or fails by itself. One outcome per partition, in request order.

    `batches` names each partition once. One put per zone, or one of an item, and one update per partition, plus what
    `shorten_heads` costs.
    If readers wait for the records, it also costs what `wake_beside` costs.

    Raises NOT_ENOUGH_ZONES or STORAGE_UNAVAILABLE when nothing was appended anywhere.
    """
    stored, refs = put_batches(instance, batches, acks)
    results = instance.executor.map(
        lambda pair: _append_ref(instance, *pair, stored), [*zip(batches, refs, strict=True)]
    )
    grown = [
        GrownHead(key=outcome.key, head=outcome.head, added_producers=int(outcome.added_producer))
        for outcome in results.ok
        if outcome.head is not None
    ]
    wake_ups = wake_ups_after([batch.key for batch in batches], results)
    wake_beside(instance, wake_ups, lambda: shorten_heads(instance, stored.window, grown))
    return results.map_ok(
        lambda outcome: AppendedRange(base_offset=outcome.base_offset, next_offset=outcome.next_offset)
    )


def put_batches(instance: Instance, batches: Sequence[PartitionBatches], acks: Acks) -> tuple[StoredSegment, list[Ref]]:
    """Put one segment with all the batches. The result is the segment and one ref for each part, to be appended.

    One put per zone, or one of an item; both if DynamoDB throttles the item. Raises NOT_ENOUGH_ZONES and
    STORAGE_UNAVAILABLE.
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
    stored = _put(instance, batches, segment, acks)
    return stored, [
        Ref(
            segment_id=stored.segment_id,
            position=entry.position,
            length=entry.length,
            offset_span=batch.summary.offset_span,
            record_count=batch.summary.record_count,
            max_timestamp_ms=indexed_ms(batch.summary.max_timestamp_ms, stored.segment_id),
            zones=stored.zones,
            tier=stored.tier,
            kept_days=stored.kept_days,
            sequence=batch.summary.sequence,
            tag_filter=batch.tag_filter,
            may_expire=batch.may_expire,
        )
        for batch, entry in zip(batches, segment.toc, strict=True)
    ]


def _put(instance: Instance, batches: Sequence[PartitionBatches], segment: Segment, acks: Acks) -> StoredSegment:
    """As an item if the segment is small and DynamoDB does not throttle its put, else into the zones."""
    kept_days = item_days(instance, (batch.kept_days for batch in batches))
    if is_inline(instance, len(batches), sum(len(batch.data) for batch in batches), kept_days):
        read = [batch.topic_read for batch in batches if batch.topic_read is not None]
        oldest = max(read, key=lambda moment: moment.age_ms(instance.clock), default=None)
        try:
            return put_inline(instance, segment, kept_days, oldest)
        except PenstockError as error:
            if error.code is not ErrorCode.THROTTLED:
                raise
        instance.telemetry.count("small_appends_throttled")
    return put_segment(instance, segment, acks, max(batch.min_insync_zones for batch in batches))


def is_head_gone(result: object) -> bool:
    """True if an append was refused because its partition has no head: its topic was deleted since the look-up."""
    return isinstance(result, PenstockError) and result.code is ErrorCode.UNKNOWN_PARTITION


def is_head_closed(result: object) -> bool:
    """True if an append was refused because its partition takes no new records."""
    return isinstance(result, PenstockError) and result.code is ErrorCode.PARTITION_CLOSED


def _append_ref(instance: Instance, batch: PartitionBatches, ref: Ref, stored: StoredSegment) -> AppendOutcome:
    if ref.sequence is not None:
        return append_in_sequence(instance, batch.key, ref, stored, ref.sequence, batch.data)
    stored.window.check()
    done = instance.stores.log.append(batch.key, ref, stored.unconfirmed_zones)
    return AppendOutcome.of_append(batch.key, ref, done)
