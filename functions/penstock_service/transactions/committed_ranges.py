"""The offsets of a transaction that was committed, by this try or by an earlier one."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey, SegmentId
from penstock_core.log.index import Head
from penstock_core.records.record_batch import validate
from penstock_service.index.refs import find_ref
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.transactions.begin_transactions import TransactionPart


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """The transaction's records of one partition have the offsets `[base_offset, next_offset)`."""

    topic: str
    partition: int
    base_offset: Offset
    next_offset: Offset


def spans_of(instance: Instance, last: TransactionPart, stage_count: int) -> dict[PartitionKey, tuple[str, int]]:
    """The topic's name and the number of offsets for each partition of the transaction.

    Without those of a topic that is gone. None at all if stages are gone: nobody knows where their records begin.
    """
    stages = instance.stores.transactions.stages(last.producer, last.number, last.nonce) if stage_count else []
    if len(stages) < stage_count:
        return {}
    parts = [
        (each.key, each.topic, each.ref.offset_span)
        for staged in stages[:stage_count]
        for each in staged
        if each.place is None
    ]
    for entry in (each for each in last.entries if each.timer is None):
        try:
            _, key = instance.topic_cache.get_partition(entry.topic, entry.partition)
        except PenstockError as error:
            if error.code.is_retriable:
                raise
            continue
        parts.append((key, entry.topic, validate(entry.data).offset_span))
    spans: dict[PartitionKey, tuple[str, int]] = {}
    for key, topic, count in parts:
        spans[key] = topic, count + spans.get(key, (topic, 0))[1]
    return spans


def committed_ranges(
    log: LogIndex,
    spans: Mapping[PartitionKey, tuple[str, int]],
    heads: Mapping[PartitionKey, Head],
    segments: set[SegmentId],
) -> list[CommittedRange]:
    """Where the records of these partitions lie, by the `segments` that hold them.

    One query for each 100 pages down to them. A partition whose records have expired is missing.
    """
    found = {key: _find_end(log, key, heads.get(key), segments) for key in spans}
    return [
        CommittedRange(
            topic=spans[key][0],
            partition=key.partition,
            base_offset=Offset(end_offset - spans[key][1]),
            next_offset=end_offset,
        )
        for key, end_offset in found.items()
        if end_offset is not None
    ]


def _find_end(log: LogIndex, key: PartitionKey, head: Head | None, segments: set[SegmentId]) -> Offset | None:
    """The end offset of the transaction's records in the partition, None if they have expired or it is gone.

    Its refs lie side by side there, in `segments`: those of the attempt that was applied.
    """
    last = None if head is None else find_ref(log, key, head, lambda ref: ref.segment_id in segments)
    return None if last is None else last.end_offset
