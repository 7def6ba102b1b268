"""Sweep: remove the segments that no live ref names, from every zone and the archive.

The only place that removes objects (ADR 5).
Garbage of appends that died and data that expired are the same thing here. One round: note the time, read the names of
all topics, then of each partition *first the head, then its pages*, then list the objects, and delete those that are
older than the grace and were not named. Why nothing live is ever deleted:

- A segment older than the grace (24 h) at the round's beginning was committed before it, or never will be: no function
  runs that long between its put and its update. So its refs are all in the index by then, and refs move one way only,
  from the tail to a page, at once. A ref that was in the tail when the head was read is seen there; one that had left
  it by then is in a page, and pages are read later. Pages first would miss what rolls between the two reads.
- Topics and partitions made meanwhile hold segments that are younger than the round, and so spared by their age.
- A ref is dead when it lies wholly below the settled log start (retain.py), where nobody reads, or its topic is
  deleted.
- If a page is missing that should be there, or a head of a topic that exists, nothing is deleted at all.
- An object older than everything that the index has ever known was not written by way of it: the table is empty, new,
  or another store's, perhaps with topics created again under their old names. Such objects are counted and left. The
  index's age is kept (index_age.py), so that what a deleted topic left is still known as the index's own.

Two sweeps at once, a sweep that dies, and a ref that dies during the round only leave more to the next one.

Memory is bounded: segments' keys begin with one of 256 prefixes, spread evenly by chance. A round marks the prefixes
from the cursor on; when more than `live_max` segments are marked, the last prefixes are dropped from the round until
they fit, and left to the next round, which reads the index again. A small store is one round. The cursor is kept after
each group of prefixes, so that a sweep which runs out of time goes on there the next time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock_broker.broker import Broker
from penstock_broker.index_age import note_index_age
from penstock_broker.mark_live import KEYS_AT_ONCE, LiveSegments, mark_portion
from penstock_broker.ports import SegmentStore
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId
from penstock_core.keys import SEGMENT_PREFIXES, PartitionKey, parse_segment_key, segment_prefix
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS

LIVE_MAX = 2_000_000  # segment ids in memory, about 110 bytes each
_JOB = "sweep"
_PREFIXES_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one run did. `prefixes` of 256 were swept; `failures` are lists and deletes that a zone refused; `foreign`
    are the objects that were left because they are older than what the index knows of."""

    prefixes: int = 0
    rounds: int = 0
    live: int = 0
    listed: int = 0
    deleted: int = 0
    foreign: int = 0
    failures: int = 0
    is_finished: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPrefix:
    """What was found below one prefix of one store, and which of the live segments it holds."""

    listed: int
    deleted: int
    foreign: int
    held: frozenset[SegmentId]


def sweep(
    broker: Broker,
    *,
    budget_ms: float,
    grace_ms: int = SWEEP_GRACE_MS,
    log_start_grace_ms: int = LOG_START_GRACE_MS,
    live_max: int = LIVE_MAX,
) -> Swept:
    """One run from the cursor on: as many rounds as it takes, or as the time allows.

    A round reads the whole index; then it costs one list call for each prefix in each zone and the archive, and more
    for those of more than 1,000 objects. A zone that fails is counted and met again by the next sweep. Raises what
    reading the index raises, CORRUPT_SEGMENT if it has a gap, and INTERNAL if one round alone outlasts the time: then
    nothing was deleted.
    """
    deadline_ms = broker.clock.monotonic_ms() + budget_ms
    first = int(broker.cursors.get(_JOB) or 0)
    since_ms = note_index_age(broker, broker.topics.list())
    total = Swept()
    while first < SEGMENT_PREFIXES:
        cutoff_ms = broker.clock.now_ms() - grace_ms
        live = LiveSegments(
            first=first, since_ms=cutoff_ms if since_ms is None else since_ms, cutoff_ms=cutoff_ms, live_max=live_max
        )
        if not _mark(broker, live, log_start_grace_ms, deadline_ms):
            if total.prefixes:
                return replace(total, is_finished=False)
            raise PenstockError(
                ErrorCode.INTERNAL,
                f"the index could not be read within {budget_ms:.0f} ms, nothing was swept: it needs more time",
            )
        total = replace(total, rounds=total.rounds + 1, live=total.live + len(live.ids))
        while first < live.end:
            if broker.clock.monotonic_ms() >= deadline_ms:
                return replace(total, is_finished=False)
            end = min(first + _PREFIXES_AT_ONCE, live.end)
            total = _sweep_prefixes(broker, range(first, end), live, total)
            first = end
            broker.cursors.put(_JOB, str(first))
    broker.cursors.clear(_JOB)
    return total


def _mark(broker: Broker, live: LiveSegments, log_start_grace_ms: int, deadline_ms: float) -> bool:
    """Fills `live` from the index; False if the time was up before."""
    for topic in broker.topics.list():
        keys = [PartitionKey(topic.topic_id, partition) for partition in topic.all_partitions()]
        for start in range(0, len(keys), KEYS_AT_ONCE):
            if broker.clock.monotonic_ms() >= deadline_ms:
                return False
            mark_portion(broker, topic, keys[start : start + KEYS_AT_ONCE], live, log_start_grace_ms)
    return True


def _sweep_prefixes(broker: Broker, prefixes: Iterable[int], live: LiveSegments, total: Swept) -> Swept:
    stores = [*broker.zones, broker.archive]
    places = [(store, number) for number in prefixes for store in stores]
    results = broker.parallel.map(lambda place: sweep_prefix(*place, live), places)
    done = [result for result in results if not isinstance(result, PenstockError)]
    return replace(
        total,
        prefixes=total.prefixes + len(places) // len(stores),
        listed=total.listed + sum(each.listed for each in done),
        deleted=total.deleted + sum(each.deleted for each in done),
        foreign=total.foreign + sum(each.foreign for each in done),
        failures=total.failures + len(results) - len(done),
    )


def sweep_prefix(store: SegmentStore, number: int, live: LiveSegments, *, is_dry_run: bool = False) -> SweptPrefix:
    """Lists one prefix of one store and deletes what is old and not live, unless it only is to be counted. What is no
    segment's key, letter for letter, is left. One list call for each 1,000 objects, and a delete where one is due."""
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
            return SweptPrefix(listed=listed, deleted=deleted, foreign=foreign, held=frozenset(held))
