"""Rewrite a row of pages: write its batches into one new segment of the archive, then exchange the pages at once.

A crash, or a second process at the same pages, harms nothing, for these reasons:

1. The upload comes first. If the run dies after it, an object is left that no ref names, and the sweep removes it.
2. One transaction exchanges the pages. Before it, readers meet the old refs; after it, the new ones.
3. The transaction needs the old pages as the run has read them, and the lease's epoch. If another process has changed
   a page, this swap is refused.
4. A repair may set zone bits in the old refs meanwhile. That changes no record, so the swap is tried again with them.
5. If the answer of a swap is lost, the next look finds exactly the new pages: the swap has succeeded.
6. The swap comes at most `COMPACTION_RUN_MS_MAX` after the segment got its id. That is far less than the sweep's grace,
   so the sweep cannot take the new segment for garbage before a ref names it.

Memory holds one window of batches (`COMPACTION_WINDOW_BYTES`) and one part of the upload, however long the row is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_core.compaction.merging import (
    CompactionSettings,
    CompactionState,
    RefCutter,
    Swap,
    is_old,
    new_pages,
    same_but_for_zones,
)
from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, PartitionKey, new_segment_id, segment_time_ms
from penstock_core.limits import (
    COMPACTION_RUN_MS_MAX,
    COMPACTION_SWAP_ATTEMPTS_MAX,
    COMPACTION_WINDOW_BYTES,
    COMPACTION_WINDOW_REFS,
    INDEX_RUN_PAGES,
    TRANSACTION_ACTIONS_MAX,
)
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import LocatedRef, Ref, stored_bytes
from penstock_core.log.retention import written_ms
from penstock_core.log.segment import TocEntry, encode_end
from penstock_core.records.codec import empty_batch
from penstock_core.records.record_batch import BytesLike, parse_header, walk
from penstock_service.index.reader import pages_between, pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.segments.read_refs import read_refs, with_gaps

Batch = BytesLike
Transform = Callable[[Iterator[tuple[int, Batch]]], Iterable[tuple[int, Batch]]]


"""Takes batches with their base offsets, and gives batches with theirs, which together cover the same offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteResult:
    """The counts of one row. If not `is_swapped`, another process has changed the pages or has the lease by now.

    Or the topic is to keep more than when the run began.
    """

    is_swapped: bool
    refs_before: int = 0
    refs_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_after: int = 0

    def plus(self, other: "RewriteResult") -> "RewriteResult":
        """The result of this row and the row behind it."""
        return RewriteResult(
            is_swapped=self.is_swapped and other.is_swapped,
            refs_before=self.refs_before + other.refs_before,
            refs_after=self.refs_after + other.refs_after,
            bytes_before=self.bytes_before + other.bytes_before,
            bytes_after=self.bytes_after + other.bytes_after,
            records_after=self.records_after + other.records_after,
        )


def as_it_is(batches: Iterator[tuple[int, Batch]]) -> Iterable[tuple[int, Batch]]:
    """The Transform of a merge: every batch byte for byte, with its header and its producer's numbers."""
    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRun:
    """One run over one partition, from the head that it read first.

    `lease` is the run's lease and what earlier runs have cleaned. At `deadline_ms` of the monotonic clock the run ends
    between two swaps.
    """

    instance: Instance
    key: PartitionKey
    head: Head
    lease: CompactionState
    settings: CompactionSettings
    deadline_ms: float

    @property
    def is_time_up(self) -> bool:
        """Tells if the run has to end before its next step."""
        return self.instance.clock.monotonic_ms() >= self.deadline_ms

    def pages(self) -> Iterator[Page]:
        """The pages from the log start to the tail, read as the caller takes them: one query for each 64 pages."""
        return pages_forward(self.instance.stores.log, self.key, self.head, self.head.log_start_offset, INDEX_RUN_PAGES)

    def old_pages(self) -> Iterator[Page]:
        """`pages` up to the first one that is too young."""
        for page in self.pages():
            if not is_old(page, self.instance.clock.now_ms(), self.settings):
                return
            yield page


def rewrite_run(
    run: CompactionRun,
    row: Sequence[Page],
    transform: Transform = as_it_is,
    log_start: int = 0,
    may_swap: Callable[[], bool] = lambda: True,
) -> RewriteResult:
    """Rewrites the pages of `row` into one segment and exchanges them, if `may_swap` says so right before.

    One or more gets for each segment that the row names, one upload, and one transaction; one query more if that is
    refused. If the exchange would take more than `TRANSACTION_ACTIONS_MAX` actions, the row is rewritten by halves, and
    the first upload is garbage for the sweep. Raises what reading raises: STORAGE_UNAVAILABLE, or CORRUPT_SEGMENT also
    if retention has removed a part of the row meanwhile.
    """
    instance = run.instance
    segment_id = new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(SEGMENT_ID_BYTES - 6))
    cutter = RefCutter(segment_id, run.settings)
    located = [each for page in row for each in page.located()]
    sources = _Sources()
    batches = transform(sources.noted(read_batches(run, located, log_start)))
    instance.stores.archive.upload(segment_id, _chunks(run.key, batches, sources, cutter))
    refs = cutter.refs()
    swap = Swap(old=tuple(row), new=new_pages(row, refs), epoch=run.lease.epoch, deadline_ms=0, swapped_ms=0)
    if swap.actions > TRANSACTION_ACTIONS_MAX and len(row) > 1:
        middle = len(row) // 2
        first = rewrite_run(run, row[:middle], transform, log_start, may_swap)
        return first.plus(rewrite_run(run, row[middle:], transform, log_start, may_swap)) if first.is_swapped else first
    return RewriteResult(
        is_swapped=may_swap() and _swap(run, swap, segment_time_ms(segment_id)),
        refs_before=len(located),
        refs_after=len(refs),
        bytes_before=sum(each.ref.length for each in located),
        bytes_after=stored_bytes(refs),
        records_after=sum(ref.record_count for ref in refs),
    )


def read_batches(
    run: CompactionRun, located: Sequence[LocatedRef], log_start: int = 0
) -> Iterator[tuple[LocatedRef, int, Batch]]:
    """Every batch of the refs in order, with its ref and base offset, read ahead in windows of bounded size.

    Refs wholly below `log_start` are not read, because their objects may be gone: one empty batch stands for each, as
    for a ref whose item has expired. Raises the error of a ref that cannot be read.
    """
    for window in _windows(located):
        live = [each for each in window if each.end_offset > log_start]
        contents = with_gaps(run.instance, read_refs(run.instance, live), [(run.key, live)])
        for each in window:
            if each.end_offset <= log_start:
                yield each, each.base_offset, empty_batch(each.ref.offset_span)
                continue
            content, offset = contents[each], int(each.base_offset)
            if isinstance(content, PenstockError):
                raise content
            for position, header in walk(content):
                yield each, offset, content[position : position + header.length]
                offset += header.offset_span


def _windows(located: Sequence[LocatedRef]) -> Iterator[list[LocatedRef]]:
    window: list[LocatedRef] = []
    size = 0
    for each in located:
        if window and (size + each.ref.length > COMPACTION_WINDOW_BYTES or len(window) == COMPACTION_WINDOW_REFS):
            yield window
            window, size = [], 0
        window.append(each)
        size += each.ref.length
    if window:
        yield window


class _Sources:
    """Remembers from which refs the batches came, as long as a transform may hold the batches back."""

    def __init__(self) -> None:
        self._refs: list[LocatedRef] = []

    def noted(self, batches: Iterable[tuple[LocatedRef, int, Batch]]) -> Iterator[tuple[int, Batch]]:
        """The batches without their refs, each noted as the caller takes it."""
        for located, offset, batch in batches:
            if not self._refs or self._refs[-1] is not located:
                self._refs.append(located)
            yield offset, batch

    def up_to(self, end_offset: int) -> list[Ref]:
        """The refs that cover offsets from the last call's end to this one. It forgets those that end here."""
        found = [each.ref for each in self._refs if each.base_offset < end_offset]
        self._refs = [each for each in self._refs if each.end_offset > end_offset]
        return found


def _chunks(
    key: PartitionKey, batches: Iterable[tuple[int, Batch]], sources: _Sources, cutter: RefCutter
) -> Iterator[bytes]:
    """The bytes of the new segment. `cutter` forms its refs on the way."""
    span, newest_ms = 0, -1
    for offset, batch in batches:
        header = parse_header(batch)
        # One empty batch may stand for batches of many refs. It counts from the newest append among them, so that it
        # expires no sooner than they would.
        ref = max(sources.up_to(offset + header.offset_span), key=written_ms)
        time_ms = min(header.max_timestamp_ms, ref.max_timestamp_ms)  # which bounds what a batch may claim
        cutter.add(header.length, header.offset_span, header.record_count, time_ms, ref)
        span, newest_ms = span + header.offset_span, max(newest_ms, time_ms)
        yield bytes(batch)
    yield encode_end(
        [
            TocEntry(
                topic_id=key.topic_id,
                partition=key.partition,
                position=0,
                length=cutter.position,
                offset_span=span,
                max_timestamp_ms=newest_ms,
            )
        ]
    )


def _swap(run: CompactionRun, swap: Swap, begun_ms: int) -> bool:
    """Exchanges the pages; false if another process has changed them. The numbers are those of the module's list."""
    compaction, log = run.instance.stores.compaction, run.instance.stores.log
    for _ in range(COMPACTION_SWAP_ATTEMPTS_MAX):
        now_ms = run.instance.clock.now_ms()
        if swap.actions > TRANSACTION_ACTIONS_MAX or now_ms - begun_ms > COMPACTION_RUN_MS_MAX:
            return False  # 6: the machine may have slept since the upload
        swap = replace(swap, swapped_ms=now_ms, deadline_ms=now_ms + run.settings.lease_ms)
        if compaction.swap(run.key, swap):
            return True
        found = tuple(pages_between(log, run.key, swap.old[0].base_offset, swap.old[-1].end_offset, INDEX_RUN_PAGES))
        if found == swap.new:
            return True  # 5: by an attempt whose answer was lost
        if found == swap.old or not same_but_for_zones(found, swap.old):
            return False  # 3
        swap = replace(swap, old=found)  # 4
    return False
