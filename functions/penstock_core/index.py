"""The index of one partition: its head (the sequencer), its tail, and the pages that refs roll into.

Invariants: the refs of pages and tail, in order, cover every offset from the first page's base to the head's
`next_offset` without gap or overlap; a page is never changed by an append; `log_start_offset` only rises.

```
 page [0,900)   page [900,1700)   head: tail_base=1700  tail=[ref ref ref]  next_offset=1763
 16 refs        16 refs                 0 to about 16 refs
```

A page is keyed by the end of its range (docs/adr/0001), so one ascending query finds the page that covers an
offset and those behind it. `max_timestamp_ms` of a page is the largest of everything up to the page's end, so it
never falls from page to page, and a time can be found by bisection. `rolled_bytes` counts all bytes up to the page's
end in the same way, so that how much a partition holds is known without reading its pages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, segment_time_ms
from penstock_core.keys import PartitionKey
from penstock_core.limits import PAGE_REFS_MAX, TAIL_ROLL_REFS
from penstock_core.producer_state import ProducerSequence, ProducerState, longest_silent, precedes, state_after
from penstock_core.ref import LocatedRef, Ref, locate, span, stored_bytes

NEVER = -1  # no count of evictions

_BEGINNING = Offset(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A partition's head as one consistent read shows it.

    `settling_offset` is a log start that was seen at `settling_since_ms`, and so has held ever since (docs/adr/0005).
    `producers` are the idempotent producers that wrote lately, by id; `evictions` rises whenever some of them leave the
    head for items of their own (docs/adr/0010).
    """

    next_offset: Offset
    log_start_offset: Offset
    tail_base: Offset
    tail: tuple[Ref, ...]
    rolled_max_timestamp_ms: int
    rolled_bytes: int = 0
    settling_offset: Offset = _BEGINNING
    settling_since_ms: int = 0
    producers: Mapping[int, ProducerState] = field(default_factory=dict)
    evictions: int = 0

    @property
    def high_watermark(self) -> Offset:
        """The offset behind the last committed record: the same as `next_offset`, as nothing else is ever visible."""
        return self.next_offset

    def located_tail(self) -> tuple[LocatedRef, ...]:
        return tuple(locate(self.tail_base, self.tail))


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
        return Offset(self.base_offset + span(self.refs))

    def located(self) -> tuple[LocatedRef, ...]:
        return tuple(locate(self.base_offset, self.refs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """Move the tail's oldest refs to `page`, on condition that the tail still starts at the page's base, and the
    producers `evicted` to items of their own, on condition that none of them has written since.

    The first condition is enough for the refs: the tail changes only at its end (appends) and by rolls, and a roll
    changes its base.
    """

    page: Page
    evicted: Mapping[int, ProducerState] = field(default_factory=dict)

    @property
    def ref_count(self) -> int:
        return len(self.page.refs)


def roll_due(head: Head, appended_refs: int = 1) -> Roll | None:
    """The roll that the append of so many refs which left `head` behind should try, if any.

    Due when the tail's length has reached a multiple of `TAIL_ROLL_REFS`, so that of many concurrent writers one tries,
    and the next multiple tries again if that one failed or died. Takes the whole tail, up to `PAGE_REFS_MAX`: with a
    fixed number, every roll that ever failed would leave the head longer for good.
    """
    length = len(head.tail)
    if not length or length // TAIL_ROLL_REFS <= (length - appended_refs) // TAIL_ROLL_REFS:
        return None
    refs = head.tail[:PAGE_REFS_MAX]
    newest = max(head.rolled_max_timestamp_ms, *(ref.max_timestamp_ms for ref in refs))
    rolled_bytes = head.rolled_bytes + stored_bytes(refs)
    page = Page(base_offset=head.tail_base, refs=refs, max_timestamp_ms=newest, rolled_bytes=rolled_bytes)
    return Roll(page=page, evicted=longest_silent(head.producers))


def appended(head: Head, ref: Ref) -> Head:
    """The head after `ref` was appended to it."""
    producers = head.producers
    if ref.sequence is not None:
        producers = {**producers, ref.sequence.producer_id: state_written(ref, ref.sequence)}
    return replace(
        head, next_offset=Offset(head.next_offset + ref.offset_span), tail=(*head.tail, ref), producers=producers
    )


def state_written(ref: Ref, sequence: ProducerSequence) -> ProducerState:
    """What a head knows of the producer after `ref`, which has `sequence`; the time is that of the segment's id."""
    return state_after(sequence, segment_time_ms(ref.segment_id))


def appended_in_sequence(head: Head, ref: Ref, sequence: ProducerSequence, unlisted_since: int) -> Head | None:
    """The head after `ref`, with `sequence`, was appended, or None where the condition does not hold: that the head's
    entry of the producer is the one before it; or that there is none, and the count of evictions is the one at which
    that was known to be right, `unlisted_since` (`NEVER`: it was not)."""
    state = head.producers.get(sequence.producer_id)
    holds = head.evictions == unlisted_since if state is None else precedes(state, sequence)
    return appended(head, ref) if holds else None


def rolled(head: Head, roll: Roll) -> Head | None:
    """The head after `roll`, or None where its conditions do not hold."""
    if head.tail_base != roll.page.base_offset:
        return None
    if any(head.producers.get(producer_id) != state for producer_id, state in roll.evicted.items()):
        return None
    return replace(
        head,
        tail_base=roll.page.end_offset,
        tail=head.tail[roll.ref_count :],
        rolled_max_timestamp_ms=roll.page.max_timestamp_ms,
        rolled_bytes=roll.page.rolled_bytes,
        producers={each: state for each, state in head.producers.items() if each not in roll.evicted},
        evictions=head.evictions + bool(roll.evicted),
    )


def unknown_partition(key: PartitionKey) -> PenstockError:
    """The error for a partition without a head."""
    return PenstockError(ErrorCode.UNKNOWN_PARTITION, f"partition {key} does not exist")


def with_zones_marked(
    base_offset: Offset, refs: Sequence[Ref], wanted: LocatedRef, zones: int
) -> tuple[int, Ref] | None:
    """Where among `refs`, the first beginning at `base_offset`, `wanted` stands, and what it is with the bits `zones`
    set; None if it is not there. Zone bits are no part of what makes a ref the same."""
    for index, found in enumerate(locate(base_offset, refs)):
        if found.base_offset == wanted.base_offset:
            is_same = replace(found.ref, zones=0) == replace(wanted.ref, zones=0)
            return (index, replace(found.ref, zones=found.ref.zones | zones)) if is_same else None
    return None


def with_log_start(head: Head, offset: Offset) -> Head:
    """The head with its log start raised to `offset`; unchanged if it is there already.

    Raises OFFSET_OUT_OF_RANGE, with the bounds, above the high watermark.
    """
    if offset > head.high_watermark:
        raise PenstockError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is above the high watermark {head.high_watermark}: nothing was truncated",
            log_start_offset=head.log_start_offset,
            high_watermark=head.high_watermark,
        )
    return replace(head, log_start_offset=max(offset, head.log_start_offset))


def settled_offset(head: Head, now_ms: int, grace_ms: int) -> Offset:
    """Below it nobody reads any more, and nobody will: it was the log start `grace_ms` ago, longer than any function
    that might still hold an older head may run. What lies wholly below may be removed."""
    is_settled = now_ms - head.settling_since_ms >= grace_ms
    return head.settling_offset if is_settled else _BEGINNING
