"""Clean one partition of a topic with `cleanup_policy=compact`: keep the newest record of each key (core's cleaning).

A pass begins once enough is new, if the caller admits it. It has three steps:

1. It reads the keys of all pages that no pass has cleaned.
2. From the oldest page on, it rewrites each row of pages from which a record goes, one swap for each row.
3. After the last swap it notes the end of the pass as cleaned.

A pass that dies before step 3 is done again. So no tombstone is removed before the records that it deletes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock_core.compaction.cleaning import Cleaner, LatestOffsets, tombstone_horizon, with_cleaned
from penstock_core.compaction.merging import CompactionState, fits, is_worth_merging
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.limits import COMPACTION_PAGE_KEYS
from penstock_core.log.index import Page
from penstock_core.log.ref import stored_bytes
from penstock_core.log.retention import written_ms
from penstock_core.log.topic import Topic
from penstock_service.compaction.rewrite_run import Batch, CompactionRun, RewriteResult, read_batches, rewrite_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """What makes a partition worth a pass.

    `dirty_bytes` of the `log_bytes` of pages that are old enough have never been cleaned. Since `due_ms`, that share is
    large enough.
    """

    dirty_bytes: int
    log_bytes: int
    due_ms: int


Admission = Callable[[Dirt], bool]
"""Tells if a pass may begin. A pass reads the bytes of the log up to three times, and writes them once at most."""


def always(_dirt: Dirt) -> bool:
    """The Admission of each pass."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnd:
    """A pass that came to its end, with the lease's state after it.

    `batches_left_whole` counts batches that cannot be read or written record by record. While there are any, the pass
    notes nothing as cleaned. Then every pass begins at the same place, and tombstones stay. `are_keys_left`: memory did
    not hold all keys, and the next pass takes the rest.
    """

    lease: CompactionState
    batches_left_whole: int
    are_keys_left: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCutShort:
    """The time was up before the pass came to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DirtyKeys:
    """The newest offset of each key in the pages `[…, end_offset)` that no pass has cleaned."""

    latest: LatestOffsets
    end_offset: Offset
    are_keys_left: bool


def clean(
    run: CompactionRun, topic: Topic, admits: Admission = always
) -> Iterator[Dirt | RewriteResult | PassEnd | PassCutShort]:
    """One pass: what makes it due, the result of each rewritten row of pages, and last how the pass ended.

    It yields nothing if too little is new to be worth a pass. The end is missing if the caller does not admit the pass,
    or if a swap was refused, as each is once the topic is to keep more. Reads the index three times. Reads the pages up
    to the end of the pass once or twice, and those never cleaned once more. A rewritten row costs what `rewrite_run`
    costs, and a read. Raises as `rewrite_run` does: the pass is over then, and the next run begins it anew.
    """
    first_dirty = max(run.head.log_start_offset, *(each.end_offset for each in run.lease.cleaned), Offset(0))
    dirt = _dirt(run, first_dirty)
    if dirt is None:
        return
    yield dirt
    if not admits(dirt):
        return
    dirty = _read_keys(run, first_dirty)
    if dirty is None:
        yield PassCutShort()
        return
    now_ms = run.instance.clock.now_ms()
    horizon = tombstone_horizon(run.lease.cleaned, now_ms, topic.config.delete_retention_ms)
    left_whole = 0
    for row in _rows(run, dirty.end_offset):
        if run.is_time_up:
            yield PassCutShort()
            return
        done, row_left_whole = _clean_row(run, row, dirty.latest, horizon, partial(_keeps_no_more, run, topic))
        left_whole += row_left_whole
        if done is None:
            continue
        yield done
        if not done.is_swapped:
            return
    cleaned = run.lease.cleaned
    if not left_whole:
        cleaned = with_cleaned(cleaned, dirty.end_offset, run.instance.clock.now_ms(), topic.config.delete_retention_ms)
    lease = replace(run.lease, cleaned=cleaned)
    yield PassEnd(lease=lease, batches_left_whole=left_whole, are_keys_left=dirty.are_keys_left)


def _keeps_no_more(run: CompactionRun, topic: Topic) -> bool:
    """True if the topic, as it is now, may lose what it might when the pass began: hours ago, in a job. One read."""
    run.instance.topic_cache.forget(topic.name)
    now = run.instance.topic_cache.find(topic.name)
    return (
        now is not None
        and now.topic_id == topic.topic_id
        and now.config.is_compacted
        and now.config.delete_retention_ms <= topic.config.delete_retention_ms
    )


def _clean_row(
    run: CompactionRun, row: Sequence[Page], latest: LatestOffsets, horizon: int, may_swap: Callable[[], bool]
) -> tuple[RewriteResult | None, int]:
    """Rewrites the row if a record goes from it, or if it is worth merging anyway. Counts batches left whole."""
    if not is_worth_merging(row, run.settings):
        probe = Cleaner(latest, horizon)
        located = [each for page in row for each in page.located()]
        batches = read_batches(run, located, run.head.log_start_offset)
        for _ in probe.clean((offset, batch) for _, offset, batch in batches):
            pass
        if not probe.removed:
            return None, probe.left_whole
    cleaners: list[Cleaner] = []  # that of the row, and of its halves if one swap cannot take it

    def cleaned(found: Iterable[tuple[int, Batch]]) -> Iterable[tuple[int, Batch]]:
        cleaners.append(Cleaner(latest, horizon))
        return cleaners[-1].clean(found)

    done = rewrite_run(run, row, cleaned, run.head.log_start_offset, may_swap)
    return done, cleaners[0].left_whole


def _dirt(run: CompactionRun, first_dirty: Offset) -> Dirt | None:
    """The bytes that are new since the last pass; None if they are too few to be worth one."""
    total = dirty = 0
    due_ms: int | None = None
    for page in run.old_pages():
        size = stored_bytes(page.refs)
        total += size
        if page.end_offset > first_dirty:  # behind the clean pages: from here on, the dirty share only rises
            dirty += size
            if due_ms is None and dirty > 0 and dirty >= run.settings.dirty_share_min * total:
                due_ms = written_ms(page.refs[-1])
    return None if due_ms is None else Dirt(dirty_bytes=dirty, log_bytes=total, due_ms=due_ms)


def _read_keys(run: CompactionRun, first_dirty: Offset) -> _DirtyKeys | None:
    """The keys of the pages that no pass has cleaned, up to the page that fills memory; None if the time is up.

    Raises UNSUPPORTED_FORMAT for a first page that alone has more keys than memory holds.
    """
    latest, end = LatestOffsets(), first_dirty
    for page in run.old_pages():
        if page.end_offset <= first_dirty:
            continue
        if len(latest) >= run.settings.keys_max:
            return _DirtyKeys(latest=latest, end_offset=end, are_keys_left=True)
        if run.is_time_up:
            return None
        for _, offset, batch in read_batches(run, page.located(), run.head.log_start_offset):
            latest.add(batch, offset)
            if len(latest) > run.settings.keys_max + COMPACTION_PAGE_KEYS:
                if end > first_dirty:  # the page is the first one of the next pass
                    return _DirtyKeys(latest=latest, end_offset=end, are_keys_left=True)
                raise PenstockError(
                    ErrorCode.UNSUPPORTED_FORMAT,
                    f"the page [{page.base_offset}, {page.end_offset}) has {len(latest):,} keys or more, and memory "
                    "does not hold them: run the job compact with more --keys-max",
                )
        end = page.end_offset
    return _DirtyKeys(latest=latest, end_offset=end, are_keys_left=False)


def _rows(run: CompactionRun, end: Offset) -> Iterator[Sequence[Page]]:
    """All pages up to `end`, as many in each row as one swap takes."""
    row: list[Page] = []
    for page in run.old_pages():
        if page.end_offset > end:
            break
        if row and not fits(row, page, run.settings):
            yield row
            row = []
        row.append(page)
    if row:
        yield row
