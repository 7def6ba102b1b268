"""The sweep and the scrub of a large store, spread over executors. The service's own code takes every decision.

```
 topics ─ 100 partitions each ─> mark ──┐ shuffle by prefix (256)      ┌─> per prefix: list every store,
                                        └──────── barrier ─────────────┘   delete old objects without a mark,
                                                                           copy segments that a zone does not list
 topics ─ 100 partitions each ─> refs ──> shuffle by segment ────────────> read every copy once, heal, set bits
```

No task ever deletes a live segment. The reasons of penstock_service/retention/sweep.py hold for each partition. The
spread sweep adds these:

- The driver notes the time once, before it reads the topics. All tasks use that time and that list of topics.
- A prefix is swept by the marks of *all* partitions. A shuffle passes nothing on until every task on its other side has
  ended well. A task that fails, or a gap in the index, ends the run before the first list.
- Spark may run a task again, late, twice at once, or on a machine that it took for dead. A task that marks again reads
  the present index: it marks the refs that are live now, and refs that died since are garbage. A task that deletes
  again deletes objects that are gone. A task whose result Spark no longer awaits has complete marks, too.

Memory: a task that marks holds at most `_IDS_HELD` ids. A task that sweeps holds the live ids of one prefix, a 256th of
all. An id takes about 110 bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, PartitionKey, SegmentId
from penstock_core.limits import HEADS_AT_ONCE
from penstock_core.log.repair import NamedRef
from penstock_core.log.topic import Topic
from penstock_core.storage.keys import SEGMENT_PREFIXES, prefix_number
from penstock_service.adapters.aws import Storage
from penstock_service.index.index_age import note_index_age
from penstock_service.index.refs_of import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.repair.ensure_copies import ensure_copies
from penstock_service.repair.repair_segment import zones_to_repair
from penstock_service.repair.scrub import ScrubResult, scrub_segment
from penstock_service.retention.mark_live import LiveSegments, mark_portion
from penstock_service.retention.sweep import sweep_prefix
from penstock_spark.storage import open_instance

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Portion = tuple[Topic, list[PartitionKey]]
Counts = dict[str, int]

_IDS_HELD = 1_000_000  # 110 MB of a task's memory
_TASKS_PER_CORE = 4  # evens out tasks of different length
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
        return LiveSegments(since_ms=self.since_ms, cutoff_ms=self.cutoff_ms)


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
    """Mark, then sweep all prefixes. Returns the counts, and lines for operators.

    Reads the whole index, and lists every store once. If the index is damaged or does not answer, raises Spark's error
    with the first cause in it; then nothing is deleted.
    """
    marks = _portions(context, portions).mapPartitions(lambda some: _mark(sweep_round, some))
    every_prefix = context.parallelize([(number, b"") for number in range(SEGMENT_PREFIXES)])
    by_prefix = marks.union(every_prefix).groupByKey(min(SEGMENT_PREFIXES, _tasks(context)))
    return _total(by_prefix.mapPartitions(lambda groups: _sweep(sweep_round, groups)))


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


def _mark(sweep_round: SweepRound, portions: Iterable[Portion]) -> Iterator[tuple[int, bytes]]:
    """Yield live ids by prefix. Holds at most about `_IDS_HELD` ids at once."""
    instance, live = open_instance(sweep_round.storage), sweep_round.live()
    for topic, keys in portions:
        mark_portion(instance, topic, keys, live, sweep_round.log_start_grace_ms)
        if len(live.ids) >= _IDS_HELD:
            yield from _packed(live.ids)
            live.ids.clear()
    yield from _packed(live.ids)


def _packed(ids: Iterable[SegmentId]) -> Iterator[tuple[int, bytes]]:
    by_prefix: dict[int, list[bytes]] = {}
    for segment_id in ids:
        by_prefix.setdefault(prefix_number(segment_id), []).append(segment_id)
    yield from ((number, b"".join(some)) for number, some in by_prefix.items())


def _sweep(
    sweep_round: SweepRound, groups: Iterable[tuple[int, Iterable[bytes]]]
) -> Iterator[tuple[Counts, list[dict[str, Any]]]]:
    instance = open_instance(sweep_round.storage)
    for number, packs in groups:
        live = sweep_round.live()
        for pack in packs:
            live.add(SegmentId(pack[at : at + SEGMENT_ID_BYTES]) for at in range(0, len(pack), SEGMENT_ID_BYTES))
        yield _sweep_prefix(instance, number, live, is_dry_run=sweep_round.is_dry_run), _log_lines(instance)


def _sweep_prefix(instance: Instance, number: int, live: LiveSegments, *, is_dry_run: bool) -> Counts:
    """Sweep one prefix in every store. Then copy segments to the zones that should hold them and do not list them."""
    counts: Counts = {"prefixes": 1, "live": len(live.ids)}
    held: list[frozenset[SegmentId] | None] = []
    for found in instance.executor.map(
        lambda store: sweep_prefix(store, number, live, is_dry_run=is_dry_run),
        [*instance.stores.zones, instance.stores.archive],
    ):
        if isinstance(found, PenstockError):
            instance.telemetry.log("sweep_failed", prefix=number, error=str(found))
            _add(counts, {"failures": 1})
            held.append(None)
        else:
            _add(counts, {"listed": found.listed, "deleted": found.deleted, "foreign": found.foreign})
            held.append(found.held)
    for segment_id, zones in _missing(live.ids, held, zones_to_repair(instance)).items():
        _add(counts, {"missing": zones.bit_count()} | ({} if is_dry_run else _copy(instance, segment_id, zones)))
    return counts


def _missing(live: set[SegmentId], held: Sequence[frozenset[SegmentId] | None], required: int) -> dict[SegmentId, int]:
    """The zones of the bitmap `required` that do not hold a live segment, by segment.

    `held` contains the list of each zone, and last that of the archive, whose segments lie in no zone. None is a list
    that failed: it tells nothing.
    """
    *zones, archived = held
    if archived is None:
        return {}
    missing: dict[SegmentId, int] = {}
    for index, found in enumerate(zones):
        if found is not None and required >> index & 1:
            for segment_id in live - found - archived:
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
    instance, done = open_instance(sweep_round.storage), ScrubResult()
    for _, refs in groups:
        done = done.plus(scrub_segment(instance, refs))
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
