"""Compaction: the pages that are worth rewriting, the refs of the new segment, and the swap of pages.

Pure. A *run* is a row of neighbouring pages, never the tail. One transaction exchanges it for pages with fewer refs,
all to one new segment (docs/adr/0013). Offsets stay, and so do the first and the last offset of the run:

```
 before   page [0,16) zonal   page [16,32) zonal  …  page [1008,1024) zonal     64 pages, 1,024 refs
 after    page [0,1024) archive                                                 1 page, 1 ref of at most 1 MiB
```
A page is rewritten while its refs are small, and left once they are large. Each rewriting makes at least `refs_min`
refs into half as many or fewer. So each record is rewritten a few times at most.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from penstock_core import limits
from penstock_core.ids import Offset, SegmentId, segment_time_ms
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import LocatedRef, Ref, Tier
from penstock_core.log.retention import written_ms
from penstock_core.records.producer_state import ProducerSequence

_U32_MAX = 2**32 - 1
_COMMON_ACTIONS = 4  # of a swap: its lease, the head, the retired segments, the sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Settings of compaction.

    - `age_ms_min`: a page is left alone until its newest segment was stored that long ago.
    - `refs_min`: a run has at least so many refs.
    - `segment_bytes`, `ref_bytes`: a segment and a ref have about so many bytes at most, give or take one batch.
    - `ref_ms_max`: the records of a ref were written within this time, so retention by time removes it not much later.
    - `lease_ms`: after a run's last sign of life, no other run begins for that long.
    - `dirty_share_min`: a log is cleaned once this share of its bytes is new since the last cleaning.
    - `keys_max`: a cleaning keeps about so many keys in memory.
    - `cleans`, `merges`: whether a run removes superseded records, and whether it merges pages for their refs or age.
    - `zonal_ms_max`: a page that has lain in the zones for so long is rewritten, however few or large its refs are. So
      is a tail (tail_move.py). None rewrites no page for its age, and no tail.
    """

    age_ms_min: int = limits.COMPACTION_AGE_MS_DEFAULT
    refs_min: int = limits.COMPACTION_REFS_MIN_DEFAULT
    segment_bytes: int = limits.ARCHIVE_SEGMENT_BYTES
    ref_bytes: int = limits.ARCHIVE_REF_BYTES
    ref_ms_max: int = limits.ARCHIVE_REF_MS_MAX
    dirty_share_min: float = limits.COMPACTION_DIRTY_SHARE_DEFAULT
    lease_ms: int = limits.COMPACTION_LEASE_MS
    keys_max: int = limits.COMPACTION_KEYS_MAX_DEFAULT
    zonal_ms_max: int | None = None
    cleans: bool = True
    merges: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningState:
    """Since `at_ms`, no record below `end_offset` is superseded by another record below `end_offset`."""

    end_offset: Offset
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionState:
    """A partition's compaction.

    A run holds the lease under `epoch` until `deadline_ms`. `cleaned` tells how far the log was cleaned when, oldest
    first.
    """

    epoch: int
    deadline_ms: int
    cleaned: tuple[CleaningState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSequence:
    """The offset of an idempotent producer's records whose ref was merged into one without a sequence."""

    sequence: ProducerSequence
    base_offset: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """An exchange of pages for others that cover the same offsets, and an extension of the lease to `deadline_ms`.

    Its conditions: the old pages are unchanged, the run still holds the lease under `epoch`, and the partition has a
    head whose tail base is not below the old pages' end. A mark takes the place of each old page whose end no new page
    has (docs/adr/0019).
    """

    old: tuple[Page, ...]
    new: tuple[Page, ...]
    epoch: int
    deadline_ms: int
    swapped_ms: int

    @property
    def retired(self) -> frozenset[SegmentId]:
        """The segments that this partition may name no more. Readers may hold refs to them for a while."""
        return frozenset(ref.segment_id for page in self.old for ref in page.refs)

    @property
    def sequences(self) -> tuple[MergedSequence, ...]:
        """The sequences of the old pages, which the new pages do not tell."""
        return merged_sequences(self.old)

    @property
    def merged_ends(self) -> tuple[tuple[Offset, ...], ...]:
        """The ends of old pages that no new page has, ascending: a row for each new page, of those right below it."""
        rows: list[tuple[Offset, ...]] = []
        start = Offset(0)
        new_ends = {page.end_offset for page in self.new}
        for end in sorted(new_ends):
            rows.append(tuple(each.end_offset for each in self.old if start < each.end_offset < end))
            start = end
        return tuple(rows)

    @property
    def actions(self) -> int:
        """The number of actions in the transaction."""
        return len({page.end_offset for page in (*self.old, *self.new)}) + _COMMON_ACTIONS


class RefCutter:
    """Forms the refs of the new segment from the batches that are written to it, in order."""

    def __init__(self, segment_id: SegmentId, settings: CompactionSettings) -> None:
        self._segment_id = segment_id
        self._settings = settings
        self._open: _OpenRef | None = None
        self._closed: list[Ref] = []
        self.position = 0

    def add(self, length: int, offset_span: int, record_count: int, time_ms: int, source: Ref) -> None:
        """Adds the batch that follows.

        `time_ms` is the timestamp of its newest record. `source` is the ref that its records come from. A merged ref
        has the tags of all its sources, if all tell theirs. It has the newest append time of them, and its records
        may expire if those of one source may.
        """
        stored_ms = written_ms(source)
        if self._open is not None and not self._open.takes(length, offset_span, stored_ms, self._settings):
            self._close()
        if self._open is None:
            self._open = _OpenRef(position=self.position, first_ms=stored_ms)
        self._open.note_source(source)
        self._open.length += length
        self._open.offset_span += offset_span
        self._open.record_count += record_count
        self._open.max_timestamp_ms = max(self._open.max_timestamp_ms, time_ms)
        self.position += length

    def refs(self) -> tuple[Ref, ...]:
        """All refs. Call it once, after the last batch."""
        self._close()
        return tuple(self._closed)

    def _close(self) -> None:
        if self._open is not None:
            self._closed.append(
                Ref(
                    segment_id=self._segment_id,
                    position=self._open.position,
                    length=self._open.length,
                    offset_span=self._open.offset_span,
                    record_count=self._open.record_count,
                    max_timestamp_ms=self._open.max_timestamp_ms,
                    zones=0,
                    tier=Tier.ARCHIVE,
                    tag_filter=self._open.tag_filter,
                    appended_ms=self._open.newest_ms,
                    is_delayed=self._open.is_delayed,
                    may_expire=self._open.may_expire,
                )
            )
            self._open = None


@dataclass(slots=True, kw_only=True)
class _OpenRef:
    position: int
    first_ms: int
    length: int = 0
    offset_span: int = 0
    record_count: int = 0
    max_timestamp_ms: int = -1
    newest_ms: int = -1
    is_delayed: bool = False
    may_expire: bool = False
    tag_filter: int | None = 0

    def note_source(self, source: Ref) -> None:
        self.newest_ms = max(self.newest_ms, written_ms(source))
        self.is_delayed |= source.is_delayed
        self.may_expire |= source.may_expire
        if self.tag_filter is None or source.tag_filter is None:
            self.tag_filter = None
        else:
            self.tag_filter |= source.tag_filter

    def takes(self, length: int, offset_span: int, stored_ms: int, settings: CompactionSettings) -> bool:
        return (
            self.length + length <= settings.ref_bytes
            and self.offset_span + offset_span <= _U32_MAX
            and stored_ms - self.first_ms <= settings.ref_ms_max
        )


def plan_runs(
    pages: Iterable[Page], head: Head, now_ms: int, settings: CompactionSettings
) -> Iterator[tuple[Page, ...]]:
    """Yields the runs worth merging among `pages`, which it takes one by one.

    It leaves young pages. It also leaves pages whose first ref lies below the log start: readers may have seen a part
    of them removed.
    """
    run: list[Page] = []
    before_ms: int | None = None
    for page in pages:
        is_large = _has_large_refs(page, before_ms, settings) and not _is_due(page, now_ms, settings)
        is_left = is_large or is_expiring(page, settings) or not is_mergeable(page, head, now_ms, settings)
        before_ms = written_ms(page.refs[-1])
        if run and (is_left or not fits(run, page, settings)):
            if is_worth_merging(run, settings) or any(_is_due(each, now_ms, settings) for each in run):
                yield tuple(run)
            run = []
        if not is_left:
            run.append(page)
    if is_worth_merging(run, settings) or any(_is_due(each, now_ms, settings) for each in run):
        yield tuple(run)


def zonal_bytes(refs: Iterable[Ref], now_ms: int, age_ms: int) -> int:
    """The bytes that the refs have had in zones, or in items that the sweep removes, for `age_ms` or longer.

    Expiring items stay where they are until their TTL.
    """
    unmoved = (ref for ref in refs if ref.tier in (Tier.ZONAL, Tier.INLINE))
    return sum(ref.length for ref in unmoved if now_ms - segment_time_ms(ref.segment_id) >= age_ms)


def is_expiring(page: Page, settings: CompactionSettings) -> bool:
    """True if a run by age leaves the page: DynamoDB removes all of its items by their TTL, at no cost."""
    return settings.zonal_ms_max is not None and all(ref.tier is Tier.EXPIRING for ref in page.refs)


def _is_due(page: Page, now_ms: int, settings: CompactionSettings) -> bool:
    return settings.zonal_ms_max is not None and zonal_bytes(page.refs, now_ms, settings.zonal_ms_max) > 0


def is_mergeable(page: Page, head: Head, now_ms: int, settings: CompactionSettings) -> bool:
    """True if readers may see all of the page, and it is old enough to be rewritten."""
    return is_old(page, now_ms, settings) and page.base_offset + page.refs[0].offset_span > head.log_start_offset


def is_old(page: Page, now_ms: int, settings: CompactionSettings) -> bool:
    """True if no segment of the page was appended within `age_ms_min`."""
    stored_ms = [segment_time_ms(ref.segment_id) for ref in page.refs if ref.tier is not Tier.ARCHIVE]
    return not stored_ms or now_ms - max(stored_ms) >= settings.age_ms_min


def fits(run: Sequence[Page], page: Page, settings: CompactionSettings) -> bool:
    """True if the page may follow in the same run.

    A transaction takes `COMPACTION_RUN_PAGES_MAX` pages, and a segment holds `segment_bytes`.
    """
    size = sum(ref.length for each in (*run, page) for ref in each.refs)
    return len(run) < limits.COMPACTION_RUN_PAGES_MAX and size <= settings.segment_bytes


def is_worth_merging(run: Sequence[Page], settings: CompactionSettings) -> bool:
    """True if the run has `refs_min` refs, and at most half of them would be left."""
    refs = [ref for page in run for ref in page.refs]
    if len(refs) < settings.refs_min:
        return False
    cutter = RefCutter(refs[0].segment_id, settings)
    for ref in refs:
        cutter.add(ref.length, ref.offset_span, ref.record_count, ref.max_timestamp_ms, ref)
    return 2 * len(cutter.refs()) <= len(refs)


def new_pages(old: Sequence[Page], refs: Sequence[Ref]) -> tuple[Page, ...]:
    """Pages of the refs that a run was rewritten to. They cover the offsets that the run covered.

    `rolled_bytes` ends as before, so the pages behind and the head need no change. Within the run it counts back from
    that end. `max_timestamp_ms` may be too high, which costs a search in vain. It is never too low.
    """
    groups = [refs[start : start + limits.TAIL_ROLL_REFS] for start in range(0, len(refs), limits.TAIL_ROLL_REFS)]
    sizes = [sum(ref.length for ref in group) for group in groups]
    rolled_bytes = old[-1].rolled_bytes - sum(sizes)
    pages: list[Page] = []
    base_offset = old[0].base_offset
    for group, size in zip(groups, accumulate(sizes), strict=True):
        end_offset = base_offset + sum(ref.offset_span for ref in group)
        covering = next(page for page in old if page.end_offset >= end_offset)
        pages.append(
            Page(
                base_offset=base_offset,
                refs=tuple(group),
                max_timestamp_ms=covering.max_timestamp_ms,
                rolled_bytes=rolled_bytes + size,
            )
        )
        base_offset = Offset(end_offset)
    return tuple(pages)


def same_but_for_zones(left: Sequence[Page], right: Sequence[Page]) -> bool:
    """True if the pages differ in zones' bits at most. A repair sets these meanwhile."""
    return [_without_zones(page) for page in left] == [_without_zones(page) for page in right]


def merged_sequences(pages: Sequence[Page]) -> tuple[MergedSequence, ...]:
    """The producers' sequences that the pages' refs tell.

    Neighbours that follow each other, in sequence and offset, become one.
    """
    found: list[MergedSequence] = []
    for located in (each for page in pages for each in page.located()):
        if located.ref.sequence is None:
            continue
        if found and _follows(found[-1], located):
            before = found.pop()
            sequence = ProducerSequence(
                producer_id=before.sequence.producer_id,
                epoch=before.sequence.epoch,
                first_sequence=before.sequence.first_sequence,
                last_sequence=located.ref.sequence.last_sequence,
            )
            found.append(MergedSequence(sequence=sequence, base_offset=before.base_offset))
        else:
            found.append(MergedSequence(sequence=located.ref.sequence, base_offset=located.base_offset))
    return tuple(found)


def find_sequence(merged: Iterable[MergedSequence], wanted: ProducerSequence) -> Offset | None:
    """The offset of the first of the wanted records, if one of `merged` covers them all."""
    for each in merged:
        have = each.sequence
        if (have.producer_id, have.epoch) == (wanted.producer_id, wanted.epoch) and (
            have.first_sequence <= wanted.first_sequence and wanted.last_sequence <= have.last_sequence
        ):
            return Offset(each.base_offset + wanted.first_sequence - have.first_sequence)
    return None


def _has_large_refs(page: Page, before_ms: int | None, settings: CompactionSettings) -> bool:
    """True if half of its refs have at least half of the bytes, or of the time, that a ref may have."""
    large = 0
    for ref in page.refs:
        newest_ms = written_ms(ref)
        spans_ms = 0 if before_ms is None or ref.tier is not Tier.ARCHIVE else newest_ms - before_ms
        large += 2 * ref.length >= settings.ref_bytes or 2 * spans_ms >= settings.ref_ms_max
        before_ms = newest_ms
    return 2 * large >= len(page.refs)


def _follows(before: MergedSequence, located: LocatedRef) -> bool:
    have, sequence = before.sequence, located.ref.sequence
    return (
        sequence is not None
        and (sequence.producer_id, sequence.epoch) == (have.producer_id, have.epoch)
        and sequence.first_sequence == have.last_sequence + 1
        and located.base_offset - before.base_offset == sequence.first_sequence - have.first_sequence
    )


def _without_zones(page: Page) -> tuple[Offset, tuple[Ref, ...]]:
    return page.base_offset, tuple(replace(ref, zones=0) for ref in page.refs)
