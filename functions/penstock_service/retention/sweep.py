"""Sweep: remove the segments that no live ref names, from every zone and the archive.

This is the only place that removes objects (ADR 5). To it, garbage of appends that died and data that expired are the
same thing. One round has five steps:

1. It notes the time.
2. It reads the names of all topics.
3. Of each partition it reads *first the head, then its pages*.
4. It lists the objects.
5. It deletes the objects that are older than the grace and that no live ref names.

No live segment is ever deleted, for these reasons:

1. A segment that is older than the grace (24 h) at the round's beginning was committed before it, or never will be. No
   writer sends an update that long after its put: not in a function, and not on a machine that slept in between
   (update_window.py). So all its refs are in the index by then.
2. Refs move one way only, from the tail to a page, at once. If a ref is in the tail when the round reads the head, the
   round sees it there. If it has left the tail by then, it is in a page, and the round reads pages later. A round that
   read pages first would miss a ref that rolls between the two reads.
3. Topics and partitions made after step 2 hold segments that are younger than the round. Their age spares them.
4. A ref is dead if it lies wholly below the safe log start (retain.py), where no function reads. It is also dead if its
   topic is deleted.
5. If a page is missing that should be there, or a head of a topic that exists, the round deletes nothing at all.
6. If an object is older than everything that the index has ever known, this index did not write it. Then the table is
   empty, new, or another store's, perhaps with topics created again under their old names. The round counts such
   objects and leaves them. The index's age is kept (index_age.py), so the objects that a deleted topic left are still
   known as the index's own.

Two sweeps at once, a sweep that dies, and a ref that dies during the round only leave more to the next round.

Memory is bounded. The keys of segments begin with one of 256 prefixes, over which chance spreads them evenly. A round
marks the prefixes from the cursor on. If more than `live_max` segments are marked, it drops the last prefixes until the
rest fits. The next round reads the index again for the dropped prefixes. A small store takes one round. The cursor is
kept after each group of prefixes, so that a sweep which runs out of time goes on there the next time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, SegmentId
from penstock_core.limits import (
    HEADS_AT_ONCE,
    LOG_START_GRACE_MS,
    SWEEP_GRACE_MS,
    SWEEP_LIVE_MAX,
    SWEEP_PREFIXES_AT_ONCE,
)
from penstock_core.storage.keys import SEGMENT_PREFIXES, parse_segment_key, segment_prefix
from penstock_service.index.index_age import note_index_age
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore
from penstock_service.retention.mark_live import LiveSegments, mark_portion

_JOB = "sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """The counts of one run.

    `prefixes` counts those of the 256 that were swept, and `failures` the lists and deletes that a zone refused.
    `foreign` counts objects that were left because they are older than everything that the index knows.
    """

    prefixes: int = 0
    rounds: int = 0
    live: int = 0
    listed: int = 0
    deleted: int = 0
    foreign: int = 0
    failures: int = 0
    is_finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixSweepResult:
    """The counts of one prefix of one store, and the live segments that it holds."""

    listed: int
    deleted: int
    foreign: int
    held: frozenset[SegmentId]


def sweep(
    instance: Instance,
    *,
    budget_ms: float,
    grace_ms: int = SWEEP_GRACE_MS,
    log_start_grace_ms: int = LOG_START_GRACE_MS,
    live_max: int = SWEEP_LIVE_MAX,
) -> SweepResult:
    """One run from the cursor on: as many rounds as it takes, or as the time allows.

    A round reads the whole index. Then it costs one list call for each prefix in each zone and the archive, and one
    more for each further 1,000 objects. A zone that fails is counted, and the next sweep meets it again. Raises what
    reading the index raises, and CORRUPT_SEGMENT if it has a gap. Raises INTERNAL if one round alone outlasts the
    time: then nothing was deleted.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    first = int(instance.stores.cursors.get(_JOB) or 0)
    since_ms = note_index_age(instance.stores.cursors, instance.stores.topics.list())
    total = SweepResult()
    while first < SEGMENT_PREFIXES:
        cutoff_ms = instance.clock.now_ms() - grace_ms
        live = LiveSegments(
            first=first, since_ms=cutoff_ms if since_ms is None else since_ms, cutoff_ms=cutoff_ms, live_max=live_max
        )
        if not _mark(instance, live, log_start_grace_ms, deadline_ms):
            if total.prefixes:
                return replace(total, is_finished=False)
            raise PenstockError(
                ErrorCode.INTERNAL,
                f"the index could not be read within {budget_ms:.0f} ms, nothing was swept: it needs more time",
            )
        total = replace(total, rounds=total.rounds + 1, live=total.live + len(live.ids))
        while first < live.end:
            if instance.clock.monotonic_ms() >= deadline_ms:
                return replace(total, is_finished=False)
            end = min(first + SWEEP_PREFIXES_AT_ONCE, live.end)
            total = _sweep_prefixes(instance, range(first, end), live, total)
            first = end
            instance.stores.cursors.put(_JOB, str(first))
    instance.stores.cursors.clear(_JOB)
    return total


def _mark(instance: Instance, live: LiveSegments, log_start_grace_ms: int, deadline_ms: float) -> bool:
    """Fills `live` from the index; false if the time was up before the end."""
    for topic in instance.stores.topics.list():
        keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
        for start in range(0, len(keys), HEADS_AT_ONCE):
            if instance.clock.monotonic_ms() >= deadline_ms:
                return False
            mark_portion(instance, topic, keys[start : start + HEADS_AT_ONCE], live, log_start_grace_ms)
    return True


def _sweep_prefixes(instance: Instance, prefixes: Iterable[int], live: LiveSegments, total: SweepResult) -> SweepResult:
    stores = [*instance.stores.zones, instance.stores.archive]
    places = [(store, number) for number in prefixes for store in stores]
    results = instance.executor.map(lambda place: sweep_prefix(*place, live), places)
    return replace(
        total,
        prefixes=total.prefixes + len(places) // len(stores),
        listed=total.listed + sum(each.listed for each in results.ok),
        deleted=total.deleted + sum(each.deleted for each in results.ok),
        foreign=total.foreign + sum(each.foreign for each in results.ok),
        failures=total.failures + len(results.errors),
    )


def sweep_prefix(
    store: SegmentStore, number: int, live: LiveSegments, *, is_dry_run: bool = False
) -> PrefixSweepResult:
    """Lists one prefix of one store and deletes the segments that are old and not live. A dry run only counts them.

    An object stays if its key is not a segment's, letter for letter. One list call for each 1,000 objects, and a delete
    for each call that finds dead ones.
    """
    listed, deleted, foreign, token = 0, 0, 0, None
    held: set[SegmentId] = set()
    while True:
        part = store.list_keys(segment_prefix(number), token)
        found = [segment_id for key in part.keys if (segment_id := parse_segment_key(key)) is not None]
        dead = [segment_id for segment_id in found if live.is_ours(segment_id) and segment_id not in live.ids]
        if dead and not is_dry_run:
            store.delete(dead)
        held.update(segment_id for segment_id in found if segment_id in live.ids)
        listed += len(part.keys)
        deleted += len(dead)
        foreign += sum(live.is_foreign(segment_id) for segment_id in found)
        token = part.next_token
        if token is None:
            return PrefixSweepResult(listed=listed, deleted=deleted, foreign=foreign, held=frozenset(held))
