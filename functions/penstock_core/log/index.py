"""The index of one partition: its head (the sequencer), its tail, and the pages that refs roll into.

Invariants:
- The refs of the pages below the tail base, and of the tail, in order, cover every offset from the first page's base to
  the head's `next_offset`, without gap or overlap. A page that begins at the tail base is not there yet: its roll has
  put it, and has not shortened the tail (roll.py).
- An append never changes a page.
- `log_start_offset` only rises.

```
 page [0,900)   page [900,1700)   head: tail_base=1700  tail=[ref ref ref]  next_offset=1763
 16 refs        16 refs                 0 to about 18 refs
```

A page is keyed by the end of its range (docs/adr/0001). So one ascending query finds the page that covers an offset,
and those behind it. A page's `max_timestamp_ms` is the largest of everything up to the page's end. It never falls from
page to page, so a time can be found by bisection. `rolled_bytes` counts all bytes up to the page's end in the same way.
So a reader of the head knows how much a partition holds, without reading its pages.

A jump: offsets that no record will ever have, because a restore could have given them twice (docs/adr/0078).

A restore brings a log back to an older end. Readers may have read up to the newer, lost end. So the log goes on behind
every offset that was ever given. The head notes the offsets in between, and one ref for each jump covers them. The ref
holds an empty batch, as compaction leaves them:

```
 harmed     … 2999 │ 3000 … 4999                       next offset 5000
 restored   … 2999 │                                   next offset 3000
 after      … 2999 │ jump [3000, 6000) │ 6000 …        a reader at 3000 goes on at 6000, one at 4500 is told so
```
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey, segment_time_ms
from penstock_core.limits import JUMP_MARGIN_OFFSETS, JUMP_OFFSETS_MAX, LOST_HEAD_JUMP_OFFSETS
from penstock_core.log.ref import LocatedRef, Ref, locate, span
from penstock_core.records.producer_state import ProducerSequence, ProducerState, state_after

_BEGINNING = Offset(0)


class Waiter(Enum):
    """Who waits for the next append to a head, by the attribute of its item."""

    READER = "waiter"
    PUSH = "push_waiter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """The offsets `[start, end)`, which no record has. A reader that has read all below `start` goes on at `end`."""

    start: Offset
    end: Offset

    def holds(self, offset: int) -> bool:
        """True if a position lies within: its reader has read records that are lost. `start` itself is before it."""
        return self.start < offset < self.end


def jumps_over(next_offset: Offset, harmed_next_offset: Offset | None) -> tuple[Jump, ...]:
    """The jump of a log that ends at `next_offset`, cut into pieces of `JUMP_OFFSETS_MAX`, as one batch may cover.

    `harmed_next_offset` is where the log ended when it was harmed, None if it is not known.
    """
    margin = LOST_HEAD_JUMP_OFFSETS if harmed_next_offset is None else JUMP_MARGIN_OFFSETS
    end = max(next_offset, harmed_next_offset or 0) + margin
    starts = range(next_offset, end, JUMP_OFFSETS_MAX)
    return tuple(Jump(start=Offset(start), end=Offset(min(end, start + JUMP_OFFSETS_MAX))) for start in starts)


def past(jumps: Sequence[Jump], offset: int) -> Offset:
    """The first offset from this one on that no jump holds. `jumps` are in order, as all lists of them here."""
    for jump in jumps:
        if jump.start <= offset < jump.end:
            offset = jump.end
    return Offset(offset)


def ranges_of(jumps: Sequence[Jump]) -> tuple[tuple[int, int], ...]:
    """The offsets of the jumps, as half-open ranges."""
    return tuple((jump.start, jump.end) for jump in jumps)


def count_between(jumps: Sequence[Jump], start: int, end: int) -> int:
    """The number of offsets in `[start, end)` that lie in no jump."""
    jumped = sum(max(0, min(end, jump.end) - max(start, jump.start)) for jump in jumps)
    return max(0, end - start - jumped)


def advanced(jumps: Sequence[Jump], offset: int, count: int) -> int:
    """The position behind `count` offsets from this one on, those in jumps not counted. It lies in no jump."""
    for jump in jumps:
        if offset + count <= jump.start or jump.end <= offset:
            continue
        count -= max(0, jump.start - offset)
        offset = jump.end
    return offset + count


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A partition's head as one consistent read shows it.

    - `noted_log_start` is a log start that was seen at `log_start_noted_ms`, and so has held ever since
      (docs/adr/0005).
    - `producers` are the idempotent producers that wrote lately, by id.
    - `evictions` rises whenever some of them leave the head for items of their own (docs/adr/0019).
    - `waiter_ms` is when a reader armed the head, None if no reader waits for the next append (docs/adr/0025).
    - `has_push_waiter`: a subscription waits. Every write that raises `next_offset` takes it out (docs/adr/0042).
    - `closed_ms` is when the partition was closed: it takes no append and no transaction since. None while it is open.
    - `layout` is the topic's layout that closed or opened it last, 0 if none has (docs/adr/0046).
    - `closed_offset` was the next offset when the partition was closed. Only timers deliver behind it. None while it is
      open, and for a partition that an older release closed.
    - `jumps` are the offsets that restores have left out, in order, and `restore` names the last one (jump.py).
    - `log_id` names the log to its mirrors, "" before the first push. A restore draws another one (docs/adr/0088).
    - `mirror` names the mirror whose pushes alone grow the log, "" for a log that takes appends. `promoted_at` is where
      a mirrored log ended when it was promoted.
    - `move` is the number of the move that has ended the log for good, 0 for none: its mirror takes the appends.
      `reopened_move` is the last move that was given up. No move up to that number ends the log again.
    - `reader_changes` rises when a reader gets a place, or goes back, in a topic with `retention=acknowledged`.
    """

    next_offset: Offset
    log_start_offset: Offset
    tail_base: Offset
    tail: tuple[Ref, ...]
    rolled_max_timestamp_ms: int
    rolled_bytes: int = 0
    noted_log_start: Offset = _BEGINNING
    log_start_noted_ms: int = 0
    producers: Mapping[int, ProducerState] = field(default_factory=dict)
    evictions: int = 0
    waiter_ms: int | None = None
    has_push_waiter: bool = False
    closed_ms: int | None = None
    layout: int = 0
    closed_offset: Offset | None = None
    jumps: tuple[Jump, ...] = ()
    restore: str = ""
    log_id: str = ""
    mirror: str = ""
    promoted_at: Offset | None = None
    move: int = 0
    reopened_move: int = 0
    reader_changes: int = 0

    @property
    def is_closed(self) -> bool:
        """The head refuses appends. Timers that it has accepted before still come."""
        return self.closed_ms is not None

    @property
    def high_watermark(self) -> Offset:
        """The offset behind the last committed record. It equals `next_offset`: nothing else is ever visible."""
        return self.next_offset

    def next_readable(self, offset: int) -> Offset:
        """The position itself if it is one, or where its reader goes on: it has read records that a restore has lost.

        The log start is always a position, even if a truncation has set it into a jump.
        """
        is_lost = offset > self.log_start_offset and any(jump.holds(offset) for jump in self.jumps)
        return past(self.jumps, offset) if is_lost else Offset(offset)

    def next_record(self, offset: int) -> Offset:
        """The first offset from this one on that a record has or will have, by log start and jumps."""
        return past(self.jumps, max(offset, self.log_start_offset))

    def count_from(self, offset: int) -> int:
        """The number of offsets from this one on that a reader has still to read: a lag."""
        return count_between(self.jumps, max(offset, self.log_start_offset), self.next_offset)

    @property
    def stored_bytes(self) -> int:
        """The bytes of the records that the partition holds, each counted once, as the head knows them.

        It is exact until the log start rises into the pages, and then an estimate: the head knows the bytes of all that
        ever rolled, and takes the share of the offsets that are left. Compaction does not lower that sum.
        """
        in_tail = sum(each.ref.length for each in self.located_tail() if each.end_offset > self.log_start_offset)
        in_pages = count_between(self.jumps, 0, self.tail_base)
        held = count_between(self.jumps, self.log_start_offset, self.tail_base)
        return in_tail + (self.rolled_bytes * held // in_pages if in_pages else 0)

    def located_tail(self) -> tuple[LocatedRef, ...]:
        """The tail's refs with their base offsets."""
        return tuple(locate(self.tail_base, self.tail))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadAppend:
    """What happened to one append to a head: whether it was done, and the head then.

    `took_waiter`: the append has taken a waiter out of the head, so its writer must send a wake-up.
    `maybe_applied`: it was refused, and an attempt before that one may still come.
    """

    is_appended: bool
    head: Head
    took_waiter: bool = False
    maybe_applied: bool = False


HELD_LAYOUT = 2**53  # above all that a topic has: no layout opens such a head


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldHead:
    """A head that only the pushes of `mirror` grow: it is closed to all else, since `closed_ms`."""

    mirror: str
    closed_ms: int


EMPTY_HEAD = Head(
    next_offset=Offset(0), log_start_offset=Offset(0), tail_base=Offset(0), tail=(), rolled_max_timestamp_ms=-1
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Refs that have left the head; covers `[base_offset, end_offset)`."""

    base_offset: Offset
    refs: tuple[Ref, ...]
    max_timestamp_ms: int
    rolled_bytes: int = 0

    @property
    def end_offset(self) -> Offset:
        """The offset behind the page's last record."""
        return Offset(self.base_offset + span(self.refs))

    def located(self) -> tuple[LocatedRef, ...]:
        """The page's refs with their base offsets."""
        return tuple(locate(self.base_offset, self.refs))


def appended(head: Head, ref: Ref) -> Head:
    """The head after `ref` was appended to it, without a push waiter.

    A reader's waiter stays: an append alone takes it, a transaction does not.
    """
    producers = head.producers
    if ref.sequence is not None:
        producers = {**producers, ref.sequence.producer_id: state_written(ref, ref.sequence)}
    return replace(
        head,
        next_offset=Offset(head.next_offset + ref.offset_span),
        tail=(*head.tail, ref),
        producers=producers,
        has_push_waiter=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadJump:
    """The jump of a head that ends at `seen_next_offset`: a ref for each of `jumps`. `restore` names the restore.

    `log_id` is the new one of a log that has one, else "".
    """

    seen_next_offset: Offset
    jumps: tuple[Jump, ...]
    refs: tuple[Ref, ...]
    restore: str
    log_id: str = ""


def without_waiter(head: Head) -> Head:
    """The head after an append has taken the reader's waiter out of it."""
    return head if head.waiter_ms is None else replace(head, waiter_ms=None)


def is_armed_at(head: Head, offset: Offset) -> bool:
    """The next append wakes a reader at this offset, and there is nothing for it to read before."""
    return head.waiter_ms is not None and head.next_offset == offset


def state_written(ref: Ref, sequence: ProducerSequence) -> ProducerState:
    """The head's entry of a producer after `ref`, which has `sequence`. Its time is that of the segment's id."""
    return state_after(sequence, segment_time_ms(ref.segment_id))


def partition_closed(
    key: PartitionKey, writable_partitions: int | None = None, first_writable: int = 0
) -> PenstockError:
    """The error for an append to a closed head. This attempt appended nothing.

    It tells which partitions of the topic take records, if that is known.
    """
    error = PenstockError(
        ErrorCode.PARTITION_CLOSED,
        f"partition {key} takes no new records: its topic has other writable partitions now. Read the metadata of the "
        "topic, and send the records to one of its writable_partitions",
    )
    if writable_partitions is not None:
        error.facts |= {"writable_partitions": writable_partitions, "first_writable_partition": first_writable}
    return error


def unknown_partition(key: PartitionKey) -> PenstockError:
    """The error for a partition without a head."""
    return PenstockError(ErrorCode.UNKNOWN_PARTITION, f"partition {key} does not exist")


def check_position(head: Head, partition: int, offset: int) -> None:
    """Raises OFFSET_OUT_OF_RANGE for a position within a jump. Its fact `to` is where the reader goes on."""
    to = head.next_readable(offset)
    if to != offset:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of partition {partition} was lost when the stage was restored to an earlier time: the "
            f"records that came after that begin at {to}",
            log_start_offset=head.log_start_offset,
            high_watermark=head.high_watermark,
            to=to,
        )


def with_zones_marked(
    base_offset: int, refs: Sequence[Ref], marks: Mapping[LocatedRef, int]
) -> tuple[tuple[Ref, ...], int]:
    """The refs, with the bits set that `marks` has for some of them, and how many of `marks` are among them.

    The first of `refs` begins at `base_offset`. Two refs are the same if they differ in zone bits at most.
    """
    wanted = {located.base_offset: (replace(located.ref, zones=0), zones) for located, zones in marks.items()}
    marked: list[Ref] = []
    found = 0
    for located in locate(base_offset, refs):
        ref = located.ref
        same, zones = wanted.get(located.base_offset, (None, 0))
        if replace(ref, zones=0) == same:
            found += 1
            ref = replace(ref, zones=ref.zones | zones)
        marked.append(ref)
    return tuple(marked), found


def with_log_start(head: Head, offset: Offset) -> Head:
    """The head with its log start raised to `offset`, or unchanged if that is there already.

    Raises OFFSET_OUT_OF_RANGE, with the bounds, for an offset above the high watermark.
    """
    if offset > head.high_watermark:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is above the high watermark {head.high_watermark}: nothing was truncated",
            log_start_offset=head.log_start_offset,
            high_watermark=head.high_watermark,
        )
    return replace(head, log_start_offset=max(offset, head.log_start_offset))


def safe_log_start(head: Head, now_ms: int, grace_ms: int) -> Offset:
    """The offset below which no function reads any more, now or later. Refs wholly below it may be removed.

    It was the log start `grace_ms` ago. A function that still holds an older head runs less long than that.
    """
    is_settled = now_ms - head.log_start_noted_ms >= grace_ms
    return head.noted_log_start if is_settled else _BEGINNING
