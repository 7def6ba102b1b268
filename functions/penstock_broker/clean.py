"""Clean one partition of a topic with `cleanup_policy=compact`: the newest record of each key stays (core/cleaning.py).

A pass reads the pages that were never cleaned for their keys, then rewrites every run of pages up to their end from
which something goes, from the oldest on, one swap each. Only when all of it is done is the end noted as cleaned: so a
pass that dies is done again, and a tombstone never goes before what it deletes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock_broker.broker import Broker
from penstock_broker.rewrite_run import Rewritten, read_batches, rewrite_run
from penstock_broker.walk_pages import walk_pages
from penstock_core.cleaning import Cleaner, LatestOffsets, tombstone_horizon, with_cleaned
from penstock_core.compaction import CompactionSettings, CompactionState, fits, is_old, is_worth_merging
from penstock_core.ids import Offset
from penstock_core.index import Head, Page
from penstock_core.keys import PartitionKey
from penstock_core.topic import TopicConfig

_PAGES_PER_QUERY = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnd:
    """How a pass came to its end. `batches_left_whole` cannot be read or written record by record: while there are any,
    nothing is noted as cleaned, so every pass begins at the same place, and tombstones stay. `are_keys_left`: there are
    more keys than were kept in memory, and the rest is the next pass's."""

    state: CompactionState
    batches_left_whole: int
    are_keys_left: bool


def clean(
    broker: Broker,
    key: PartitionKey,
    head: Head,
    state: CompactionState,
    config: TopicConfig,
    settings: CompactionSettings,
    is_time_up: Callable[[], bool],
) -> Iterator[Rewritten | PassEnd]:
    """What became of each run, and at last, if the pass came to its end, how, with the state then.

    Reads the index twice and the pages up to the end of the pass once or twice, those never cleaned once more; what is
    rewritten costs what `rewrite_run` costs. Raises as that does: the pass ends then, and begins anew the next time.
    """
    first_dirty = max(head.log_start_offset, *(each.end_offset for each in state.cleaned), Offset(0))
    total = dirty = 0
    for page in _old_pages(broker, key, head, settings):
        size = sum(ref.length for ref in page.refs)
        total, dirty = total + size, dirty + (size if page.end_offset > first_dirty else 0)
    if not dirty or dirty < settings.dirty_share_min * total:
        return
    latest, end, are_keys_left = _latest(broker, key, head, first_dirty, settings, is_time_up)
    horizon = tombstone_horizon(state.cleaned, broker.clock.now_ms(), config.delete_retention_ms)
    left_whole = 0
    for run in _runs(broker, key, head, end, settings):
        if is_time_up():
            return
        located = [each for page in run for each in page.located()]
        probe = Cleaner(latest, horizon)
        batches = read_batches(broker, located, head.log_start_offset)
        for _ in probe.clean((offset, batch) for _, offset, batch in batches):
            pass
        left_whole += probe.left_whole
        if not probe.removed and not is_worth_merging(run, settings):
            continue
        cleaner = Cleaner(latest, horizon)
        done = rewrite_run(broker, key, state.epoch, run, settings, cleaner.clean, head.log_start_offset)
        yield done
        if not done.is_swapped:
            return
    cleaned = state.cleaned
    if not left_whole:
        cleaned = with_cleaned(cleaned, end, broker.clock.now_ms(), config.delete_retention_ms)
    state = CompactionState(epoch=state.epoch, deadline_ms=state.deadline_ms, cleaned=cleaned)
    yield PassEnd(state=state, batches_left_whole=left_whole, are_keys_left=are_keys_left)


def _latest(
    broker: Broker,
    key: PartitionKey,
    head: Head,
    first_dirty: Offset,
    settings: CompactionSettings,
    is_time_up: Callable[[], bool],
) -> tuple[LatestOffsets, Offset, bool]:
    """The newest offsets of the keys in the pages never cleaned, where these end, and whether that is behind the page
    that filled up memory, as not all fit."""
    latest, end = LatestOffsets(), first_dirty
    for page in _old_pages(broker, key, head, settings):
        if page.end_offset <= first_dirty:
            continue
        if len(latest) >= settings.keys_max or is_time_up():
            return latest, end, len(latest) >= settings.keys_max
        for _, offset, batch in read_batches(broker, page.located(), head.log_start_offset):
            latest.add(batch, offset)
        end = page.end_offset
    return latest, end, False


def _runs(
    broker: Broker, key: PartitionKey, head: Head, end: Offset, settings: CompactionSettings
) -> Iterator[Sequence[Page]]:
    """All pages up to `end`, as many at once as one swap takes."""
    run: list[Page] = []
    for page in _old_pages(broker, key, head, settings):
        if page.end_offset > end:
            break
        if run and not fits(run, page, settings):
            yield run
            run = []
        run.append(page)
    if run:
        yield run


def _old_pages(broker: Broker, key: PartitionKey, head: Head, settings: CompactionSettings) -> Iterator[Page]:
    """From the log start on up to the first that is too young."""
    for page in walk_pages(broker.log, key, head, head.log_start_offset, _PAGES_PER_QUERY):
        if not is_old(page, broker.clock.now_ms(), settings):
            return
        yield page
