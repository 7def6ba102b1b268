"""The sweep and the scrub of a large store, spread over executors. What is decided is decided by the broker's own code.

```
 topics ─ 100 partitions each ─> mark ──┐ shuffle by prefix (256)      ┌─> per prefix: list every store,
                                        └──────── barrier ─────────────┘   delete what is old and not marked,
                                                                           copy what a zone does not list
 topics ─ 100 partitions each ─> refs ──> shuffle by segment ────────────> read every copy once, heal, set bits
```

Why nothing live is ever deleted, beside the reasons of penstock_broker/sweep.py, which hold for each partition:

- The time is noted before the topics are read, once, on the driver. All tasks go by that time and that list.
- A prefix is swept by the marks of *all* partitions: a shuffle hands nothing on before every task on its other side has
  ended well. A task that fails, or a gap in the index, ends the run before the first list.
- Spark may run a task again, late, twice at once, or on a machine that was thought dead. Marking again reads the
  index as it is then: refs that are live then are marked, and those that died since are garbage. Deleting again removes
  what is gone. A task that nobody waits for any more goes by complete marks too.

Memory: a task that marks holds `_IDS_HELD` ids at most; a task that sweeps holds the live ids of one prefix, a 256th of
all, about 110 bytes each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import TYPE_CHECKING, Any

from penstock_broker.adapters.aws import Storage
from penstock_broker.broker import Broker
from penstock_broker.ensure_copies import ensure_copies
from penstock_broker.index_age import note_index_age
from penstock_broker.mark_live import KEYS_AT_ONCE, LiveSegments, mark_portion
from penstock_broker.repair_segment import zones_to_repair
from penstock_broker.scrub import Scrubbed, scrub_segment
from penstock_broker.sweep import sweep_prefix
from penstock_broker.walk_index import refs_of
from penstock_core.errors import PenstockError
from penstock_core.ids import SEGMENT_ID_BYTES, SegmentId
from penstock_core.keys import SEGMENT_PREFIXES, PartitionKey, prefix_number
from penstock_core.repair import NamedRef
from penstock_core.topic import Topic
from penstock_spark.storage import open_broker

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

Portion = tuple[Topic, list[PartitionKey]]
Counts = dict[str, int]

_IDS_HELD = 1_000_000
_TASKS_PER_CORE = 4
_TOLD_MAX = 20  # lines that one task hands to the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What all tasks of a run go by. Segments of `[since_ms, cutoff_ms)` are swept if no live ref names them."""

    storage: Storage
    since_ms: int
    cutoff_ms: int
    log_start_grace_ms: int
    is_dry_run: bool

    def live(self) -> LiveSegments:
        """Room for marks, of every prefix."""
        return LiveSegments(first=0, since_ms=self.since_ms, cutoff_ms=self.cutoff_ms, live_max=maxsize)


def begin_round(
    storage: Storage, *, grace_ms: int, log_start_grace_ms: int, is_dry_run: bool
) -> tuple[Round, list[Portion]]:
    """A round from now on, and all partitions in portions. Reads the topics, and notes the index's age."""
    broker = open_broker(storage)
    cutoff_ms = broker.clock.now_ms() - grace_ms
    topics = broker.topics.list()
    since_ms = note_index_age(broker, topics)
    keys = [(topic, [PartitionKey(topic.topic_id, each) for each in topic.all_partitions()]) for topic in topics]
    return Round(
        storage=storage,
        since_ms=cutoff_ms if since_ms is None else since_ms,
        cutoff_ms=cutoff_ms,
        log_start_grace_ms=log_start_grace_ms,
        is_dry_run=is_dry_run,
    ), [(topic, all_of[at : at + KEYS_AT_ONCE]) for topic, all_of in keys for at in range(0, len(all_of), KEYS_AT_ONCE)]


def sweep_store(context: "SparkContext", this: Round, portions: list[Portion]) -> tuple[Counts, list[dict[str, Any]]]:
    """Marks, then sweeps all prefixes: what was counted, and what operators should be told of.

    Reads the whole index, and lists every store once. Raises Spark's error with the first cause in it if the index is
    damaged or does not answer; then nothing was deleted.
    """
    marks = _portions(context, portions).mapPartitions(lambda some: _mark(this, some))
    every_prefix = context.parallelize([(number, b"") for number in range(SEGMENT_PREFIXES)])
    by_prefix = marks.union(every_prefix).groupByKey(min(SEGMENT_PREFIXES, _tasks(context)))
    return _total(by_prefix.mapPartitions(lambda groups: _sweep(this, groups)))


def scrub_store(context: "SparkContext", this: Round, portions: list[Portion]) -> tuple[Counts, list[dict[str, Any]]]:
    """Reads every copy of every segment that the index names, heals what is missing or bad, and sets the bits owed.

    One get per segment and zone, whatever the number of refs that name it.
    """
    refs = _portions(context, portions).mapPartitions(lambda some: _refs(this, some))
    return _total(refs.groupByKey(_tasks(context)).mapPartitions(lambda groups: _scrub(this, groups)))


def _portions(context: "SparkContext", portions: list[Portion]) -> "RDD[Portion]":
    return context.parallelize(portions, max(1, min(len(portions), _tasks(context))))


def _tasks(context: "SparkContext") -> int:
    return context.defaultParallelism * _TASKS_PER_CORE


def _mark(this: Round, portions: Iterable[Portion]) -> Iterator[tuple[int, bytes]]:
    """Live ids by prefix, as many at once as are held."""
    broker, live = open_broker(this.storage), this.live()
    for topic, keys in portions:
        mark_portion(broker, topic, keys, live, this.log_start_grace_ms)
        if len(live.ids) >= _IDS_HELD:
            yield from _packed(live.ids)
            live.ids.clear()
    yield from _packed(live.ids)


def _packed(ids: Iterable[SegmentId]) -> Iterator[tuple[int, bytes]]:
    by_prefix: dict[int, list[bytes]] = {}
    for segment_id in ids:
        by_prefix.setdefault(prefix_number(segment_id), []).append(segment_id)
    yield from ((number, b"".join(some)) for number, some in by_prefix.items())


def _sweep(this: Round, groups: Iterable[tuple[int, Iterable[bytes]]]) -> Iterator[tuple[Counts, list[dict[str, Any]]]]:
    broker = open_broker(this.storage)
    for number, packs in groups:
        live = this.live()
        for pack in packs:
            live.add(SegmentId(pack[at : at + SEGMENT_ID_BYTES]) for at in range(0, len(pack), SEGMENT_ID_BYTES))
        yield _sweep_prefix(broker, number, live, is_dry_run=this.is_dry_run), _told(broker)


def _sweep_prefix(broker: Broker, number: int, live: LiveSegments, *, is_dry_run: bool) -> Counts:
    """Every store's part of one prefix; then copies for the zones that do not list what they should hold."""
    counts: Counts = {"prefixes": 1, "live": len(live.ids)}
    held: list[frozenset[SegmentId] | None] = []
    for found in broker.parallel.map(
        lambda store: sweep_prefix(store, number, live, is_dry_run=is_dry_run), [*broker.zones, broker.archive]
    ):
        if isinstance(found, PenstockError):
            broker.events.tell("sweep_failed", prefix=number, error=str(found))
            _add(counts, {"failures": 1})
            held.append(None)
        else:
            _add(counts, {"listed": found.listed, "deleted": found.deleted, "foreign": found.foreign})
            held.append(found.held)
    for segment_id, zones in _missing(live.ids, held, zones_to_repair(broker)).items():
        _add(counts, {"missing": zones.bit_count()} | ({} if is_dry_run else _copy(broker, segment_id, zones)))
    return counts


def _missing(live: set[SegmentId], held: Sequence[frozenset[SegmentId] | None], wanted: int) -> dict[SegmentId, int]:
    """The zones of the bitmap `wanted` that do not hold a live segment, by segment. `held` is what zones listed, and
    last the archive, whose segments lie in no zone; None is a list that failed, of which nothing is known."""
    *zones, archived = held
    if archived is None:
        return {}
    missing: dict[SegmentId, int] = {}
    for index, found in enumerate(zones):
        if found is not None and wanted >> index & 1:
            for segment_id in live - found - archived:
                missing[segment_id] = missing.get(segment_id, 0) | 1 << index
    return missing


def _copy(broker: Broker, segment_id: SegmentId, zones: int) -> Counts:
    """If its last ref died since it was marked, no zone may have it: the scrub tells lost from gone."""
    try:
        copies = ensure_copies(broker, segment_id, zones)
    except PenstockError as error:
        broker.events.tell("copy_failed", segment=segment_id.hex(), error=str(error))
        return {"failures": 1}
    for each in copies.errors:
        broker.events.tell("copy_failed", segment=segment_id.hex(), error=str(each))
    return {"copied": copies.copied.bit_count(), "failures": len(copies.errors)}


def _refs(this: Round, portions: Iterable[Portion]) -> Iterator[tuple[SegmentId, NamedRef]]:
    broker = open_broker(this.storage)
    for _, keys in portions:
        for key in keys:
            for located in refs_of(broker, key, 0):
                yield located.ref.segment_id, NamedRef(key=key, located=located)


def _scrub(
    this: Round, groups: Iterable[tuple[SegmentId, Iterable[NamedRef]]]
) -> Iterator[tuple[Counts, list[dict[str, Any]]]]:
    broker, done = open_broker(this.storage), Scrubbed()
    for _, refs in groups:
        scrub_segment(broker, refs, done)
    counts = {
        name: getattr(done, name) for name in ("refs", "segments", "bytes", "copied", "healed", "marked", "failures")
    }
    yield counts, _told(broker)


def _told(broker: Broker) -> list[dict[str, Any]]:
    _, told = broker.events.take()
    return [{"event": name, **facts} for name, facts in told[:_TOLD_MAX]]


def _total(parts: "RDD[tuple[Counts, list[dict[str, Any]]]]") -> tuple[Counts, list[dict[str, Any]]]:
    total: Counts = {}
    lines: list[dict[str, Any]] = []
    for counts, told in parts.collect():
        _add(total, counts)
        lines += told
    return total, lines


def _add(total: Counts, counts: Counts) -> None:
    for name, count in counts.items():
        total[name] = total.get(name, 0) + count
