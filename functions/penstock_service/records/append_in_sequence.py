"""One append of an idempotent producer to one partition (docs/adr/0010).

In the usual case it is one update, whose condition is the head's entry for the producer. The update fails for a repeat,
for a batch that is out of order, and for a producer that is new to the head or has left it. The append then looks the
producer up, and tries again on condition that this producer cannot have written since (docs/adr/0019).

```
 the head has the producer  ──▶ its entry precedes the batch ──▶ appended
                                else                         ──▶ repeat: its offsets · gap · fenced
 the head does not have it  ──▶ evictions = 0 and first sequence 0 ──▶ appended
                                else: read producer#<id>, then append while tail_base <= next_offset as seen
```
"""

from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import APPEND_ATTEMPTS_MAX
from penstock_core.log.index import Head, HeadAppend, partition_closed
from penstock_core.log.read_plan import join_ranges
from penstock_core.log.ref import LocatedRef, Ref
from penstock_core.outcomes import errors_maybe_applied, errors_of_a_late_attempt
from penstock_core.records.producer_state import (
    ProducerSequence,
    ProducerState,
    Verdict,
    ends_with_same_batch,
    is_newest,
    judge,
    other_bytes,
)
from penstock_core.records.record_batch import BatchHeader, BytesLike, parse_header, walk
from penstock_service.index.reader import find_ref
from penstock_service.instance.instance import Instance
from penstock_service.segments.put_segment import StoredSegment
from penstock_service.segments.read_range import is_expired, read_range


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOutcome:
    """The records of one append have the offsets `[base_offset, next_offset)` of the partition.

    `head` is the one that this append left behind, None if an earlier append had the records. `added_producer`: the
    head may not have known the producer before. `must_wake`: a reader may wait for the records.
    """

    key: PartitionKey
    base_offset: Offset
    next_offset: Offset
    head: Head | None
    added_producer: bool = False
    must_wake: bool = False

    @classmethod
    def of_append(
        cls, key: PartitionKey, ref: Ref, done: HeadAppend, *, added_producer: bool = False
    ) -> "AppendOutcome":
        """The outcome of an append of `ref` that was done."""
        head = done.head
        return cls(
            key=key,
            base_offset=Offset(head.next_offset - ref.offset_span),
            next_offset=head.next_offset,
            head=head,
            added_producer=added_producer,
            must_wake=done.took_waiter,
        )

    @classmethod
    def of_repeat(cls, key: PartitionKey, ref: Ref, base_offset: Offset) -> "AppendOutcome":
        """The outcome of an append of `ref` whose records have been in the log since `base_offset`.

        The first try may have died between its update and its wake-up.
        """
        next_offset = Offset(base_offset + ref.offset_span)
        return cls(key=key, base_offset=base_offset, next_offset=next_offset, head=None, must_wake=True)


def append_in_sequence(
    instance: Instance, key: PartitionKey, ref: Ref, stored: StoredSegment, sequence: ProducerSequence, data: BytesLike
) -> AppendOutcome:
    """Append the ref to a segment as `stored`, whose sequence this is, or find the offsets of its earlier append.

    `data` are the batches. One update. If the head lacks the producer and some producer has left the head, two updates
    and a read. For a repeat, one update, a query for each 100 pages down to it, and a ranged get unless it repeats the
    whole newest append. A closed partition still answers repeats. Raises OUT_OF_ORDER_SEQUENCE, also for a repeat with
    other bytes, PRODUCER_FENCED, DUPLICATE_SEQUENCE for a repeat that cannot be found, PARTITION_CLOSED, THROTTLED, and
    the errors of the log.
    """
    stores = instance.stores
    looked_at: Offset | None = None
    maybe_applied = False
    for _ in range(APPEND_ATTEMPTS_MAX):
        stored.window.check()
        done = stores.log.append_in_sequence(key, ref, stored.unconfirmed_zones, sequence, looked_at)
        if done.is_appended:
            is_added = looked_at is not None or sequence.first_sequence == 0
            return AppendOutcome.of_append(key, ref, done, added_producer=is_added)
        head = done.head
        maybe_applied |= done.maybe_applied
        with errors_maybe_applied(), errors_of_a_late_attempt(maybe_applied=maybe_applied):
            state = head.producers.get(sequence.producer_id)
            if state is None:
                state = stores.log.evicted_producer(key, sequence.producer_id)
            if _verdict(head, state, key, sequence) is Verdict.REPEATS and state is not None:
                repeat = _Repeat(key=key, head=head, state=state, sequence=sequence, data=data)
                return AppendOutcome.of_repeat(key, ref, _find(instance, repeat))
            if head.is_closed:
                raise partition_closed(key)
        looked_at = head.next_offset
    raise PenstockError(
        ErrorCode.THROTTLED,
        f"partition {key} has taken so many appends meanwhile that {APPEND_ATTEMPTS_MAX} attempts at one of producer "
        f"{sequence.producer_id} failed: try again",
        maybe_applied=maybe_applied,
    )


def _verdict(head: Head, state: ProducerState | None, key: PartitionKey, sequence: ProducerSequence) -> Verdict:
    """As `judge`. A gap in a mirrored log is no gap of the producer: its source may have what is missing here.

    A producer that was told of a gap would go on under another id, and its source would append the records twice.
    """
    try:
        return judge(state, sequence)
    except PenstockError as error:
        if head.mirror and error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE:
            raise partition_closed(key) from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repeat:
    """An append of sequences that the partition has taken before, by the `state` of their producer."""

    key: PartitionKey
    head: Head
    state: ProducerState
    sequence: ProducerSequence
    data: BytesLike


def _find(instance: Instance, repeat: _Repeat) -> Offset:
    """The offset of the sequence's first record. Raises OUT_OF_ORDER_SEQUENCE if its bytes were others."""
    key, sequence = repeat.key, repeat.sequence
    has_same_end = ends_with_same_batch(repeat.state, sequence)
    is_single = parse_header(repeat.data).length == len(repeat.data)
    found = find_ref(instance.stores.log, key, repeat.head, lambda ref: _holds(ref, sequence))
    if found is not None and found.ref.sequence is not None and found.end_offset > repeat.head.log_start_offset:
        try:
            if not (has_same_end and is_single):
                _compare(instance, found, repeat)
        except PenstockError as error:
            raise _unknown(sequence) if is_expired(error) else error from error
        return Offset(found.base_offset + sequence.first_sequence - found.ref.sequence.first_sequence)
    if is_newest(repeat.state, sequence) and not has_same_end:
        raise other_bytes(repeat.state, sequence, maybe_applied=not is_single)
    merged = instance.stores.compaction.find_merged(key, sequence)  # read last: refs go there from the pages
    if merged is not None:
        return merged
    raise _unknown(sequence)


def _unknown(sequence: ProducerSequence) -> PenstockError:
    return PenstockError(
        ErrorCode.DUPLICATE_SEQUENCE,
        f"sequences {sequence.first_sequence} to {sequence.last_sequence} of producer {sequence.producer_id} were "
        "appended before, and not again; where, is not known: they have expired, were merged long ago, or were not "
        "sent together then",
    )


def _compare(instance: Instance, found: LocatedRef, repeat: _Repeat) -> None:
    """Holds the batches against the stored ones of the ref, by their CRCs. One ranged get."""
    [wanted] = join_ranges([found])
    stored = {header.base_sequence: _identity(header) for _, header in walk(read_range(instance, wanted))}
    same = [stored.get(header.base_sequence) == _identity(header) for _, header in walk(repeat.data)]
    if not all(same):
        raise other_bytes(repeat.state, repeat.sequence, maybe_applied=any(same))


def _identity(header: BatchHeader) -> tuple[int, int]:
    return header.crc, header.record_count


def _holds(ref: Ref, sequence: ProducerSequence) -> bool:
    stored = ref.sequence
    return (
        stored is not None
        and (stored.producer_id, stored.epoch) == (sequence.producer_id, sequence.epoch)
        and stored.first_sequence <= sequence.first_sequence
        and sequence.last_sequence <= stored.last_sequence
    )
