"""Scan: read on behind records that a filter does not take, within the bounds of one call.

```
refs by pages and tail   r1   r2   r3   r4   r5 …
may_match_ref            yes  no   no   yes  yes       r2 and r3 are passed over unread, by their tags
window                   ╰── r1, r4 read together ──╯  then twice as many bytes, while the answer has room
batches                  decoded, filtered, kept as smaller batches
next_offset              behind the last batch or ref that was looked at, matching or not
```
A scan ends when its answer is full, at the head's end, at an error, or when a bound is reached: bytes read or decoded,
records and headers filtered, pages of the index. At each of them `next_offset` has moved, so the next call goes on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock_core.errors import PenstockError
from penstock_core.filters.filter import Filter, may_match_ref
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import (
    FETCH_BYTES_DEFAULT_MAX,
    FETCH_REFS_MAX,
    FILTER_SCAN_BYTES_MAX,
    FILTER_SCAN_PAGES_MAX,
    INDEX_FETCH_PAGES,
)
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef
from penstock_core.records.record_batch import stamp, walk
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_refs import RefContents, read_refs_singly, with_gaps

if TYPE_CHECKING:
    from penstock_core.filters.filtered_batch import FilterBudget


@dataclass(slots=True, kw_only=True, eq=False)
class Scan:
    """One partition's scan from `next_offset` on, and what it has found: batches, an error, or only a later offset.

    `scanned_bytes` are those of the stored batches that it has filtered, and not left for the next call.
    """

    key: PartitionKey
    head: Head
    wanted: Filter
    max_bytes: int
    next_offset: Offset
    data: bytearray = field(default_factory=bytearray)
    scanned_bytes: int = 0
    error: PenstockError | None = None
    has_moved: bool = False
    is_done: bool = False

    def move_to(self, offset: int) -> None:
        """Everything below `offset` was looked at."""
        self.has_moved = self.has_moved or offset > self.next_offset
        self.next_offset = Offset(max(self.next_offset, offset))

    def end(self, error: PenstockError | None = None) -> None:
        """Nothing more is read in this call."""
        self.is_done, self.error = True, error


@dataclass(slots=True, kw_only=True)
class _Bounds:
    """What the call may still read, in all partitions together."""

    answer_bytes: int
    scan_bytes: int = FILTER_SCAN_BYTES_MAX
    refs: int = FETCH_REFS_MAX
    pages: int = FILTER_SCAN_PAGES_MAX
    has_data: bool = False

    @property
    def is_spent(self) -> bool:
        is_full = self.answer_bytes <= 0 and self.has_data
        return is_full or self.scan_bytes <= 0 or self.refs <= 0 or self.pages <= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A ref that the scan reaches. It is passed over if its tags exclude a match."""

    located: LocatedRef
    is_read: bool


def scan(instance: Instance, scans: Sequence[Scan], max_bytes: int) -> None:
    """Fill the scans, `max_bytes` of answer in all, except that the first batch of all is always there.

    Costs the ranged gets of the refs that may match, one query for each 16 pages below the tail, and CPU for each
    record of these refs. All of it is bounded by the `FILTER_…_MAX` of limits.py and `FETCH_REFS_MAX`. An error of a
    partition is that scan's, and stays only if the scan has not moved.
    """
    from penstock_core.filters.filtered_batch import FilterBudget  # the codec, which other fetches do not need

    budget, bounds = FilterBudget(), _Bounds(answer_bytes=max_bytes)
    window_bytes = max(max_bytes, FETCH_BYTES_DEFAULT_MAX)
    while not bounds.is_spent and not budget.is_spent:
        open_scans = [each for each in scans if not each.is_done]
        if not open_scans:
            return
        plans: list[tuple[Scan, list[_Step]]] = []
        for each in open_scans:
            try:
                plans.append((each, list(_plan(instance, each, bounds, window_bytes // len(open_scans)))))
            except PenstockError as error:
                each.end(error)
        wanted = [(each.key, [step.located for step in steps if step.is_read]) for each, steps in plans]
        contents = read_refs_singly(instance, [located for _, refs in wanted for located in refs])
        contents = with_gaps(instance, contents, wanted)
        for each, steps in plans:
            _take(each, steps, contents, bounds, budget)
        window_bytes *= 2


def _plan(instance: Instance, each: Scan, bounds: _Bounds, window_bytes: int) -> Iterator[_Step]:
    """The refs up to `window_bytes`, one at least. Marks the scan done if they reach the end of the log."""
    is_first = True
    for located in _refs(instance, each, bounds):
        if located.end_offset <= each.next_offset:
            continue
        if not may_match_ref(each.wanted, located.ref):
            yield _Step(located=located, is_read=False)
            continue
        window_bytes -= located.ref.length
        if bounds.refs <= 0 or bounds.scan_bytes <= 0 or (window_bytes < 0 and not is_first):
            return
        bounds.refs -= 1
        bounds.scan_bytes -= located.ref.length
        is_first = False
        yield _Step(located=located, is_read=True)
    each.is_done = bounds.pages > 0


def _refs(instance: Instance, each: Scan, bounds: _Bounds) -> Iterator[LocatedRef]:
    """The refs from the scan's offset on. Stops short when the call has read enough pages."""
    pages = pages_forward(instance.stores.log, each.key, each.head, each.next_offset, INDEX_FETCH_PAGES)
    for page in pages:
        bounds.pages -= 1
        yield from page.located()
        if bounds.pages <= 0:
            return
    yield from each.head.located_tail()


def _take(each: Scan, steps: Sequence[_Step], contents: RefContents, bounds: _Bounds, budget: "FilterBudget") -> None:
    """Filter what was read, in order. Ends the scan where it must stop before the last of the steps."""
    for step in steps:
        if not step.is_read:
            each.move_to(step.located.end_offset)
            continue
        content = contents[step.located]
        if isinstance(content, PenstockError):
            each.end(content)
            return
        if not _take_ref(each, step.located, content, bounds, budget):
            each.end()
            return


def _take_ref(each: Scan, located: LocatedRef, content: memoryview, bounds: _Bounds, budget: "FilterBudget") -> bool:
    """False if the answer is full or a bound is reached before the end of the ref."""
    from penstock_core.filters.filtered_batch import filter_batch

    stamped = bytearray(content)
    stamp(stamped, located.base_offset)
    for position, header in walk(stamped):
        if header.next_offset <= each.next_offset:
            continue
        if budget.is_spent:
            return False
        batch = memoryview(stamped)[position : position + header.length]
        found = filter_batch(batch, header, each.wanted, each.next_offset, budget)
        if found.data is not None:
            room = min(bounds.answer_bytes, each.max_bytes - len(each.data))
            if len(found.data) > room and (bounds.has_data or each.data):
                return False
            each.data += found.data
            bounds.answer_bytes -= len(found.data)
            bounds.has_data = True
        each.scanned_bytes += header.length
        each.move_to(found.next_offset)
        if found.next_offset < header.next_offset:
            return False
    each.move_to(located.end_offset)
    return True
