"""Rewrite a run of pages: its batches into one segment of the archive, then one transaction that exchanges the pages.

A crash before the transaction leaves an object that no ref names, which the sweep removes; after it, nothing to do.
What is in memory at a time is what is being read (`_WINDOW_BYTES`) and a part of the upload, however large the run is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock_broker.broker import Broker
from penstock_broker.read_range import read_range
from penstock_core.compaction import (
    CompactionSettings,
    RefCutter,
    Swap,
    batch_time_ms,
    new_pages,
    same_but_for_zones,
)
from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, Offset, new_segment_id, segment_time_ms
from penstock_core.index import Page
from penstock_core.keys import PartitionKey
from penstock_core.limits import COMPACTION_RUN_MS_MAX, MIB
from penstock_core.read_plan import join_ranges
from penstock_core.record_batch import BytesLike, parse_header, walk
from penstock_core.records import empty_batch
from penstock_core.ref import LocatedRef
from penstock_core.retention import written_ms
from penstock_core.segment import TocEntry, encode_end

_WINDOW_BYTES = 8 * MIB
_WINDOW_REFS = 64
_SWAP_ATTEMPTS_MAX = 3
ACTIONS_MAX = 100  # of one transaction

Batch = BytesLike
Transform = Callable[[Iterator[tuple[int, Batch]]], Iterable[tuple[int, Batch]]]
"""Batches with their base offsets in, batches with theirs out, which together cover the same offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What became of a run. Not `is_swapped`: somebody else was at these pages, or the lease is another's by now."""

    is_swapped: bool
    refs_before: int = 0
    refs_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_after: int = 0


def as_it_is(batches: Iterator[tuple[int, Batch]]) -> Iterable[tuple[int, Batch]]:
    """The Transform of a merge: every batch verbatim, with its header and its producer's numbers."""
    return batches


def rewrite_run(
    broker: Broker,
    key: PartitionKey,
    epoch: int,
    run: Sequence[Page],
    settings: CompactionSettings,
    transform: Transform = as_it_is,
    log_start: int = 0,
) -> Rewritten:
    """One or more gets for each segment of the run, an upload, and one transaction; a query more if that is refused.

    Raises what reading raises: STORAGE_UNAVAILABLE or CORRUPT_SEGMENT also if retention has removed a part meanwhile.
    """
    segment_id = new_segment_id(broker.clock.now_ms(), broker.chance.random_bytes(SEGMENT_ID_BYTES - 6))
    cutter = RefCutter(segment_id, settings)
    located = [each for page in run for each in page.located()]
    broker.archive.upload(segment_id, _chunks(broker, key, located, cutter, transform, log_start))
    refs = cutter.refs()
    before = sum(each.ref.length for each in located)
    swap = Swap(
        old=tuple(run),
        new=new_pages(run, refs),
        epoch=epoch,
        deadline_ms=0,
        swapped_ms=0,
    )
    return Rewritten(
        is_swapped=_swap(broker, key, swap, segment_time_ms(segment_id), settings.lease_ms),
        refs_before=len(located),
        refs_after=len(refs),
        bytes_before=before,
        bytes_after=sum(ref.length for ref in refs),
        records_after=sum(ref.record_count for ref in refs),
    )


def read_batches(
    broker: Broker, located: Sequence[LocatedRef], log_start: int = 0
) -> Iterator[tuple[LocatedRef, int, Batch]]:
    """Every batch of the refs in order, with its ref and base offset, read ahead in windows of bounded size. Refs
    wholly below `log_start`, whose objects may be gone, are not read: an empty batch stands for each."""
    for window in _windows(located):
        ranges = join_ranges([each for each in window if each.end_offset > log_start])
        broker.zone_directory.find_for_reading()
        results = broker.parallel.map(lambda wanted: read_range(broker, wanted), ranges)
        contents: dict[int, memoryview] = {}
        for wanted, data in zip(ranges, results, strict=True):
            if isinstance(data, PenstockError):
                raise data
            for each in wanted.refs:
                start = each.ref.position - wanted.position
                contents[each.base_offset] = memoryview(data)[start : start + each.ref.length]
        for each in window:
            if each.end_offset <= log_start:
                yield each, each.base_offset, empty_batch(each.ref.offset_span)
                continue
            content, offset = contents[each.base_offset], int(each.base_offset)
            for position, header in walk(content):
                yield each, offset, content[position : position + header.length]
                offset += header.offset_span


def _windows(located: Sequence[LocatedRef]) -> Iterator[list[LocatedRef]]:
    window: list[LocatedRef] = []
    size = 0
    for each in located:
        if window and (size + each.ref.length > _WINDOW_BYTES or len(window) == _WINDOW_REFS):
            yield window
            window, size = [], 0
        window.append(each)
        size += each.ref.length
    if window:
        yield window


def _chunks(
    broker: Broker,
    key: PartitionKey,
    located: Sequence[LocatedRef],
    cutter: RefCutter,
    transform: Transform,
    log_start: int,
) -> Iterator[bytes]:
    """The bytes of the new segment, whose refs `cutter` forms on the way."""
    times = _Times()
    span, newest_ms = 0, -1
    for offset, batch in transform(times.noted(read_batches(broker, located, log_start))):
        header = parse_header(batch)
        # The last, where an empty batch stands for those of many refs: they expire no sooner for being empty.
        ref = times.ref_at(offset + header.offset_span - 1)
        time_ms = batch_time_ms(header.max_timestamp_ms, ref.ref)
        cutter.add(header.length, header.offset_span, header.record_count, time_ms, written_ms(ref.ref))
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


class _Times:
    """Remembers of which refs batches came, as long as a transform may hold them back."""

    def __init__(self) -> None:
        self._refs: list[LocatedRef] = []

    def noted(self, batches: Iterable[tuple[LocatedRef, int, Batch]]) -> Iterator[tuple[int, Batch]]:
        for located, offset, batch in batches:
            if not self._refs or self._refs[-1] is not located:
                self._refs.append(located)
            yield offset, batch

    def ref_at(self, offset: int) -> LocatedRef:
        """The ref that covers the offset; those before it are forgotten, as offsets rise."""
        while self._refs[0].end_offset <= offset:
            self._refs.pop(0)
        return self._refs[0]


def _swap(broker: Broker, key: PartitionKey, swap: Swap, begun_ms: int, lease_ms: int) -> bool:
    """Whether the pages were exchanged. A repair may set bits of the old refs meanwhile: then it is tried again."""
    for _ in range(_SWAP_ATTEMPTS_MAX):
        now_ms = broker.clock.now_ms()
        # Before the sweep can take the new segment for garbage: a machine may have slept since.
        if swap.actions > ACTIONS_MAX or now_ms - begun_ms > COMPACTION_RUN_MS_MAX:
            return False
        swap = replace(swap, swapped_ms=now_ms, deadline_ms=now_ms + lease_ms)
        if broker.compaction.swap(key, swap):
            return True
        found = _pages_between(broker, key, swap.old[0].base_offset, swap.old[-1].end_offset)
        if found == swap.new:
            return True  # by an attempt whose answer was lost
        if found == swap.old or not same_but_for_zones(found, swap.old):
            return False
        swap = replace(swap, old=found)
    return False


def _pages_between(broker: Broker, key: PartitionKey, start: Offset, end: Offset) -> tuple[Page, ...]:
    found: list[Page] = []
    while not found or found[-1].end_offset < end:
        pages = broker.log.pages(key, found[-1].end_offset if found else start, ACTIONS_MAX)
        if not pages:
            break
        found += pages
    return tuple(page for page in found if page.end_offset <= end)
