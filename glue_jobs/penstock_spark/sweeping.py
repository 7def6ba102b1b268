"""The sweep and the scrub of a large store, spread over executors. The service's own code takes every decision.

```
 topics ─ 100 partitions each ─> mark ──┐ shuffle by folder of keys    ┌─> per folder: list every store that has
                                        └──────── barrier ─────────────┘   such keys, delete old objects without a
                                                                           mark, copy what a zone does not list
 topics ─ 100 partitions each ─> refs ──> shuffle by segment ────────────> read every copy once, heal, set bits
```

No task ever deletes a live segment. The reasons of penstock_service/retention/sweep.py hold for each partition. The
spread sweep adds these:

- The driver notes the time once, before it reads the topics. All tasks use that time and that list of topics.
- A folder is swept by the marks of *all* partitions. A shuffle passes nothing on until every task on its other side has
  ended well. A task that fails, or a gap in the index, ends the run before the first list.
- Spark may run a task again, late, twice at once, or on a machine that it took for dead. A task that marks again reads
  the present index: it marks the refs that are live now, and refs that died since are garbage. A task that deletes
  again deletes objects that are gone. A task whose result Spark no longer awaits has complete marks, too.

Memory: a task that marks holds at most `_IDS_HELD` ids. A task that sweeps holds the live ids of one folder: a 256th of
all, or one hour's. An id takes about 110 bytes. Where zones are directory buckets, an id is shuffled twice, once by the
hour and once for the archive.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, PartitionKey, SegmentId
from penstock_core.limits import HEADS_AT_ONCE
from penstock_core.log.repair import NamedRef
from penstock_core.log.topic import Topic
from penstock_core.storage.keys import KeyLayout, folder_name, folder_number
from penstock_service.adapters.aws import Storage
from penstock_service.index.reader import note_index_age, refs_of
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.repair_segment import zones_to_repair
from penstock_service.repair.scrub import ScrubResult, ScrubRun, scrub_segment
from penstock_service.retention.mark_live import LiveSegments, mark_portion
from penstock_service.retention.sweep_folders import Position, find_folders, sweep_folder, swept_stores
from penstock_spark.storage import open_instance

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Portion = tuple[Topic, list[PartitionKey]]
Counts = dict[str, int]

_IDS_HELD = 1_000_000  # 110 MB of a task's memory
_TASKS_PER_CORE = 4  # evens out tasks of different length
_LASTING, _EXPIRING = b"\0", b"\1"  # the first byte of a pack of ids
_LINES_MAX = 20  # lines that one task hands to the driver, which holds those of all tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRound:
    """The settings of one run, which all its tasks share.

    The run sweeps segments of `[since_ms, cutoff_ms)` that no live ref names.
    """

    storage: Storage
    since_ms: int
    cutoff_ms: int
    log_start_grace_ms: int
    is_dry_run: bool

    def live(self) -> LiveSegments:
        """An empty set of marks, for every prefix."""
        return LiveSegments(since_ms=self.since_ms, cutoff_ms=self.cutoff_ms, expiring=set())


def begin_round(
    storage: Storage, *, grace_ms: int, log_start_grace_ms: int, is_dry_run: bool
) -> tuple[SweepRound, list[Portion]]:
    """A round that begins now, and all partitions in portions. Reads the topics, and notes the age of the index."""
    instance = open_instance(storage)
    cutoff_ms = instance.clock.now_ms() - grace_ms
    topics = instance.stores.topics.list()
    since_ms = note_index_age(instance.stores.cursors, topics)
    keys = [(topic, [PartitionKey(topic.topic_id, each) for each in topic.all_partitions()]) for topic in topics]
    return SweepRound(
        storage=storage,
        since_ms=cutoff_ms if since_ms is None else since_ms,
        cutoff_ms=cutoff_ms,
        log_start_grace_ms=log_start_grace_ms,
        is_dry_run=is_dry_run,
    ), [
        (topic, all_of[at : at + HEADS_AT_ONCE])
        for topic, all_of in keys
        for at in range(0, len(all_of), HEADS_AT_ONCE)
    ]


def sweep_store(
    context: "SparkContext", sweep_round: SweepRound, portions: list[Portion]
) -> tuple[Counts, list[dict[str, Any]]]:
    """Mark, then sweep all folders of keys. Returns the counts, and lines for operators.

    Reads the whole index, lists every store once, and asks for each live segment that no zone lists. If the
    index is damaged or does not answer, raises Spark's error with the first cause in it; then nothing is deleted.
    """
    marks = _portions(context, portions).mapPartitions(lambda some: _mark(sweep_round, some))
    found = find_folders(open_instance(sweep_round.storage), sweep_round.cutoff_ms)
    every_folder = context.parallelize([(position, b"") for position in found.folders])
    by_folder = marks.union(every_folder).groupByKey(_tasks(context))
    counts, lines = _total(by_folder.mapPartitions(lambda groups: _sweep(sweep_round, groups)))
    _add(
        counts, dict.fromkeys(("folders", "live", "listed", "deleted", "foreign"), 0) | {"failures": len(found.errors)}
    )
    return counts, [*({"event": "sweep_failed", "error": str(error)} for error in found.errors), *lines]


def scrub_store(
    context: "SparkContext", sweep_round: SweepRound, portions: list[Portion]
) -> tuple[Counts, list[dict[str, Any]]]:
    """Read every copy of every segment that the index names, and heal missing and bad copies.

    Sets the missing zone bits. Costs one get per segment and zone, whatever the number of refs that name the segment.
    """
    refs = _portions(context, portions).mapPartitions(lambda some: _refs(sweep_round, some))
    return _total(refs.groupByKey(_tasks(context)).mapPartitions(lambda groups: _scrub(sweep_round, groups)))


def _portions(context: "SparkContext", portions: list[Portion]) -> "RDD[Portion]":
    return context.parallelize(portions, max(1, min(len(portions), _tasks(context))))


def _tasks(context: "SparkContext") -> int:
    return context.defaultParallelism * _TASKS_PER_CORE


def _mark(sweep_round: SweepRound, portions: Iterable[Portion]) -> Iterator[tuple[Position, bytes]]:
    """Yield live ids by folder, for each layout of keys. Holds at most about `_IDS_HELD` ids at once."""
    instance, live = open_instance(sweep_round.storage), sweep_round.live()
    layouts = {store.layout for store in swept_stores(instance.stores)}
    for topic, keys in portions:
        mark_portion(instance, topic, keys, live, sweep_round.log_start_grace_ms)
        if len(live.ids) >= _IDS_HELD:
            yield from _packed(live, layouts)
            live = sweep_round.live()
    yield from _packed(live, layouts)


def _packed(live: LiveSegments, layouts: Iterable[KeyLayout]) -> Iterator[tuple[Position, bytes]]:
    """The ids by folder. Those of items with a TTL are in packs of their own, which begin with another byte."""
    expiring = live.expiring or set()
    by_folder: dict[tuple[Position, bool], list[bytes]] = {}
    for segment_id in live.ids:
        for layout in layouts:
            position = (layout.value, folder_number(segment_id, layout))
            by_folder.setdefault((position, segment_id in expiring), []).append(segment_id)
    for (position, is_expiring), some in by_folder.items():
        yield position, b"".join((_EXPIRING if is_expiring else _LASTING, *some))


def _unpack(live: LiveSegments, pack: bytes) -> None:
    ids = [SegmentId(pack[at : at + SEGMENT_ID_BYTES]) for at in range(1, len(pack), SEGMENT_ID_BYTES)]
    live.add(ids)
    if pack[:1] == _EXPIRING and live.expiring is not None:
        live.expiring.update(ids)


def _sweep(
    sweep_round: SweepRound, groups: Iterable[tuple[Position, Iterable[bytes]]]
) -> Iterator[tuple[Counts, list[dict[str, Any]]]]:
    instance = open_instance(sweep_round.storage)
    for position, packs in groups:
        live = sweep_round.live()
        for pack in packs:
            _unpack(live, pack)
        yield _sweep_folder(instance, position, live, is_dry_run=sweep_round.is_dry_run), _log_lines(instance)


def _sweep_folder(instance: Instance, position: Position, live: LiveSegments, *, is_dry_run: bool) -> Counts:
    """Sweep one folder in every store that has such keys. Then copy segments to the zones that should list them.

    A store whose keys have another layout is None in `held`, as one that does not answer: its list tells nothing here.
    An item with a TTL owes no copy. Once its records have expired, it is nowhere, until retention has passed its ref.
    """
    layout, number = KeyLayout(position[0]), position[1]
    folder = folder_name(layout, number)
    counts: Counts = {"folders": 1, "live": len(live.ids) if layout is instance.stores.zones[0].layout else 0}
    stores = [store for store in swept_stores(instance.stores) if store.layout is layout]
    held: dict[int, frozenset[SegmentId] | None] = {}
    outcomes = instance.executor.map(lambda store: sweep_folder(store, folder, live, is_dry_run=is_dry_run), stores)
    for store, found in zip(stores, outcomes, strict=True):
        if isinstance(found, PenstockError):
            instance.telemetry.log("sweep_failed", folder=folder, error=str(found))
            _add(counts, {"failures": 1})
        else:
            _add(counts, {"listed": found.listed, "deleted": found.deleted, "foreign": found.foreign})
            held[id(store)] = found.held
    zones = [held.get(id(zone)) for zone in instance.stores.zones]
    archived, inline = held.get(id(instance.stores.archive)), held.get(id(instance.stores.inline))
    listed = None if archived is None or inline is None else archived | inline
    owed = live.ids - (live.expiring or set())
    elsewhere = listed
    if layout is not instance.stores.archive.layout:
        elsewhere = _elsewhere(instance, owed.difference(*(found for found in zones if found is not None)))
    for segment_id, missing in _missing(owed, [*zones, elsewhere], zones_to_repair(instance)).items():
        _add(counts, {"missing": missing.bit_count()} | ({} if is_dry_run else _copy(instance, segment_id, missing)))
    return counts


def _elsewhere(instance: Instance, segment_ids: Iterable[SegmentId]) -> frozenset[SegmentId] | None:
    """Those of the segments that lie in no zone: in the log table, or in the archive. None if these do not answer.

    One read of the log table for each hundred, and a get of a byte from the archive for each that is not there.
    """
    asked = list(segment_ids)
    try:
        inline = frozenset(instance.stores.inline.get_wholes(asked))
    except PenstockError as error:
        instance.telemetry.log("sweep_failed", error=str(error))
        return None
    archived = _archived(instance, [each for each in asked if each not in inline])
    return None if archived is None else archived | inline


def _archived(instance: Instance, asked: Sequence[SegmentId]) -> frozenset[SegmentId] | None:
    """Those of the segments that the archive holds, by a get of a byte for each. None if it does not answer."""
    outcomes = instance.executor.map(lambda each: instance.stores.archive.get(each, 0, 1), asked)
    errors = [found for found in outcomes if isinstance(found, PenstockError)]
    if any(not error.facts.get("is_missing") for error in errors):
        instance.telemetry.log("sweep_failed", error=str(errors[0]))
        return None
    return frozenset(each for each, found in zip(asked, outcomes, strict=True) if not isinstance(found, PenstockError))


def _missing(live: set[SegmentId], held: Sequence[frozenset[SegmentId] | None], required: int) -> dict[SegmentId, int]:
    """The zones of the bitmap `required` that do not hold a live segment, by segment.

    `held` contains the list of each zone, and last that of the segments that lie in no zone. None is a list that
    failed: it tells nothing.
    """
    *zones, elsewhere = held
    if elsewhere is None:
        return {}
    missing: dict[SegmentId, int] = {}
    for index, found in enumerate(zones):
        if found is not None and required >> index & 1:
            for segment_id in live - found - elsewhere:
                missing[segment_id] = missing.get(segment_id, 0) | 1 << index
    return missing


def _copy(instance: Instance, segment_id: SegmentId, zones: int) -> Counts:
    """Copy a segment to the zones of the bitmap.

    If the segment's last ref died after the mark, no zone may have it: the scrub tells a lost segment from a dead one.
    """
    try:
        copies = ensure_copies(instance.stores.zones, instance.executor, segment_id, zones)
    except PenstockError as error:
        instance.telemetry.log("copy_failed", segment=segment_id.hex(), error=str(error))
        return {"failures": 1}
    for each in copies.errors:
        instance.telemetry.log("copy_failed", segment=segment_id.hex(), error=str(each))
    return {"copied": copies.copied.bit_count(), "failures": len(copies.errors)}


def _refs(sweep_round: SweepRound, portions: Iterable[Portion]) -> Iterator[tuple[SegmentId, NamedRef]]:
    instance = open_instance(sweep_round.storage)
    for _, keys in portions:
        for key in keys:
            for located in refs_of(instance.stores.log, key, 0):
                yield located.ref.segment_id, NamedRef(key=key, located=located)


def _scrub(
    sweep_round: SweepRound, groups: Iterable[tuple[SegmentId, Iterable[NamedRef]]]
) -> Iterator[tuple[Counts, list[dict[str, Any]]]]:
    instance, done, scrub_run = open_instance(sweep_round.storage), ScrubResult(), ScrubRun()
    for _, refs in groups:
        done = done.plus(scrub_segment(instance, refs, scrub_run))
    counts = {
        name: getattr(done, name) for name in ("refs", "segments", "bytes", "copied", "healed", "marked", "failures")
    }
    yield counts, _log_lines(instance)


def _log_lines(instance: Instance) -> list[dict[str, Any]]:
    _, events = instance.telemetry.take()
    return [{"event": name, **facts} for name, facts in events[:_LINES_MAX]]


def _total(parts: "RDD[tuple[Counts, list[dict[str, Any]]]]") -> tuple[Counts, list[dict[str, Any]]]:
    total: Counts = {}
    lines: list[dict[str, Any]] = []
    for counts, more in parts.collect():
        _add(total, counts)
        lines += more
    return total, lines


def _add(total: Counts, counts: Counts) -> None:
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count
