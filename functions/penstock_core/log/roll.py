"""What leaves a head: refs by a roll, producers by an eviction (docs/adr/0019). Pure.

A roll moves exactly the first 16 refs of the tail to a page. So whoever rolls a tail with this base makes the same page
under the same key:

```
 1. put page [tail_base, E)      invisible: it begins at the tail base
 2. head: tail_base = E, 16 refs less, if the base and these refs are as in the page     both visible at once
```
"""

from collections.abc import Mapping
from dataclasses import replace

from penstock_core.limits import (
    EVICTION_PRODUCERS_MAX,
    EVICTION_PRODUCERS_MIN,
    EVICTION_RETRY_PRODUCERS,
    HEAD_PRODUCERS_KEPT,
    LONG_TAIL_ROLL_REFS,
    TAIL_ROLL_REFS,
)
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import stored_bytes
from penstock_core.log.retention import searched_ms
from penstock_core.records.producer_state import ProducerState, longest_silent


def is_roll_due(head: Head, appended_refs: int = 1) -> bool:
    """True if the writer of an append should roll. The append of `appended_refs` left `head` behind.

    A roll is due when the tail's length has reached a multiple of `TAIL_ROLL_REFS`, and in a tail twice as long a
    multiple of `LONG_TAIL_ROLL_REFS`. So of many concurrent writers one rolls. The next multiple tries again if that
    one failed or died.
    """
    length = len(head.tail)
    step = TAIL_ROLL_REFS if length < 2 * TAIL_ROLL_REFS else LONG_TAIL_ROLL_REFS
    return length >= TAIL_ROLL_REFS and length // step > (length - appended_refs) // step


def next_page(head: Head) -> Page | None:
    """The page that the next roll of `head` makes; None if the tail is shorter than a page."""
    refs = head.tail[:TAIL_ROLL_REFS]
    if len(refs) < TAIL_ROLL_REFS:
        return None
    return Page(
        base_offset=head.tail_base,
        refs=refs,
        max_timestamp_ms=max(head.rolled_max_timestamp_ms, *map(searched_ms, refs)),
        rolled_bytes=head.rolled_bytes + stored_bytes(refs),
    )


def with_bits_of(page: Page, other: Page) -> Page | None:
    """The page with the zones' bits of both, or None if they differ in anything else than bits."""
    refs = tuple(replace(ref, zones=0) for ref in page.refs)
    if page.base_offset != other.base_offset or refs != tuple(replace(ref, zones=0) for ref in other.refs):
        return None
    both = zip(page.refs, other.refs, strict=True)
    return replace(page, refs=tuple(replace(ref, zones=ref.zones | twin.zones) for ref, twin in both))


def shortened(head: Head, page: Page) -> Head | None:
    """The head without the refs of `page`, or None unless the tail begins with them, zones' bits included.

    Tail bases only rise. Behind a given base the tail changes at its end, by appends, and in its bits, by repairs.
    While it is shorter than a page, its refs may also move to the archive (compaction/tail_move.py).
    """
    if head.tail_base != page.base_offset or head.tail[: len(page.refs)] != page.refs:
        return None
    return replace(
        head,
        tail_base=page.end_offset,
        tail=head.tail[len(page.refs) :],
        rolled_max_timestamp_ms=page.max_timestamp_ms,
        rolled_bytes=page.rolled_bytes,
    )


def is_eviction_due(head: Head, added: int = 1) -> bool:
    """True if the writer whose append has added `added` producers to `head` should evict some.

    It is due at `HEAD_PRODUCERS_KEPT` and `EVICTION_PRODUCERS_MIN` producers together. A larger number tries again at
    each `EVICTION_RETRY_PRODUCERS`, in case the first one failed or died.
    """
    beyond = len(head.producers) - HEAD_PRODUCERS_KEPT - EVICTION_PRODUCERS_MIN
    return beyond >= 0 and beyond // EVICTION_RETRY_PRODUCERS > (beyond - added) // EVICTION_RETRY_PRODUCERS


def producers_to_evict(head: Head) -> Mapping[int, ProducerState]:
    """The next producers that leave `head`, so that `HEAD_PRODUCERS_KEPT` stay: `EVICTION_PRODUCERS_MAX` at most.

    They are the longest silent of those without a ref in the tail. `LogIndex.append_in_sequence` rests on that. None
    leaves if fewer than `EVICTION_PRODUCERS_MIN` are too many.
    """
    if len(head.producers) < HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN:
        return {}
    in_tail = {ref.sequence.producer_id for ref in head.tail if ref.sequence is not None}
    silent = {each: state for each, state in head.producers.items() if each not in in_tail}
    return longest_silent(silent, min(EVICTION_PRODUCERS_MAX, len(head.producers) - HEAD_PRODUCERS_KEPT))
