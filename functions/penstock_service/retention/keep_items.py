"""Keep the items of small appends whose topic's retention was raised after they got their TTL (docs/adr/0064).

A walk over the topic's live refs copies each item that would go too early to the keys of inline items. These have no
TTL, and the sweep removes them once no ref names them. The item itself goes by its TTL. Readers ask for it first, and
for the copy where it is gone.

The walk misses no item, for these reasons:

1. It begins `RAISE_SETTLED_MS` after the newest raise. By then every append that went by an older retention is over,
   and its refs are in the index. Later appends take no TTL while the note is there.
2. The head is read before the pages (`refs_of`). A ref that has left the tail by then is in a page.
3. The note goes on condition that no newer raise has come. A walk that was begun for an older one is done again.
4. Records that were younger than the old retention at the raise live `EXPIRING_MARGIN_DAYS` longer by their TTL.

A walk may die anywhere, be repeated, and meet another one: a copy has the bytes of its item, whoever puts it. Each
topic has a cursor of its own. A place that fails is noted there, and tried again by the next run; the note stays until
none is left.

A restore of the log table needs a walk of its own (`keep_restored`). It brings items back whose TTL is over, without
the copies that a walk has made since. So DynamoDB's TTL stays off until that walk has ended.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId
from penstock_core.limits import (
    BATCH_GET_KEYS_MAX,
    INDEX_EXPIRY_PAGES,
    INDEX_MARK_PAGES,
    RAISE_LATE_MS,
    UNLIMITED,
)
from penstock_core.log.index import Head
from penstock_core.log.ref import LocatedRef
from penstock_core.log.retention import expire, written_ms
from penstock_core.log.retention_raise import RetentionRaise, had_expired, is_kept_longer
from penstock_core.log.topic import Topic, TopicConfig
from penstock_service.index.reader import pages_forward, refs_of
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.segments.read_refs import standing_refs

_JOB = "keep_items"
_FAILED_MAX = 100  # places of one topic; with so many the run leaves the topic
_KNOWN_MAX = 200_000  # ids that a run remembers, 110 bytes each


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepResult:
    """The counts of one run.

    `kept` items were copied, and those of `lost` refs were gone although their records had not expired. `failures`
    counts places where a topic's walk could not go on. `raises_ended` counts notes that went, and `raises_late` those
    that are older than a day.
    """

    kept: int = 0
    lost: int = 0
    failures: int = 0
    raises_ended: int = 0
    raises_late: int = 0
    is_finished: bool = True


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run: what it has counted, and the segments whose copies it knows to be there."""

    instance: Instance
    deadline_ms: float
    result: KeepResult = field(default_factory=KeepResult)
    known: set[SegmentId] = field(default_factory=set)

    @property
    def is_time_up(self) -> bool:
        return self.instance.clock.monotonic_ms() >= self.deadline_ms

    def count(self, *, kept: int = 0, lost: int = 0, failures: int = 0) -> None:
        done = self.result
        self.result = replace(done, kept=done.kept + kept, lost=done.lost + lost, failures=done.failures + failures)

    def failed(self, topic: Topic, where: str, error: PenstockError) -> None:
        self.count(failures=1)
        self.instance.telemetry.log("keep_items_failed", topic=topic.name, place=where, error=str(error))


_Place = tuple[int, int]  # a partition, and the offset where the walk goes on there


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The walk over one topic: the places that failed and are to be tried again, and where the rest begins."""

    run: _Run
    topic: Topic
    noted: RetentionRaise
    rest: _Place = (0, 0)
    failed: list[_Place] = field(default_factory=list)

    @property
    def _cursor(self) -> str:
        return f"{_JOB}#{self.topic.topic_id}"

    def load(self) -> None:
        """Goes on where the last run for this raise has ended."""
        text = self.run.instance.stores.cursors.get(self._cursor)
        if text is not None and text.startswith(f"{self.noted.noted_ms}#"):
            self.rest, *self.failed = map(_parse, text.split("#")[1:])

    def save(self, rest: _Place) -> None:
        self.rest = rest
        places = "#".join(f"{partition}:{offset}" for partition, offset in (rest, *self.failed))
        self.run.instance.stores.cursors.put(self._cursor, f"{self.noted.noted_ms}#{places}")

    def end(self) -> None:
        """Takes the note away, unless a place has failed or a newer raise has come."""
        instance = self.run.instance
        if self.failed:
            self.save(self.rest)
            return
        is_ended = instance.stores.topics.end_raise(self.topic)
        instance.topic_cache.forget(self.topic.name)
        instance.stores.cursors.clear(self._cursor)
        self.run.result = replace(self.run.result, raises_ended=self.run.result.raises_ended + int(is_ended))


def keep_items(instance: Instance, *, budget_ms: float) -> KeepResult:
    """One run over the topics whose raise has settled, the oldest first, until the time is over.

    The next run goes on from the cursors. One read of the topics. For each such topic it costs what `refs_of` costs,
    and an update of the topic. For each 100 items it costs two reads of them, a put for each that has no copy, and one
    of the cursor. A topic or a partition that fails is counted and logged. Raises what reading the topics raises.
    """
    run = _Run(instance=instance, deadline_ms=instance.clock.monotonic_ms() + budget_ms)
    now_ms = instance.clock.now_ms()
    noted = [(each.retention_raise, each) for each in instance.stores.topics.list() if each.retention_raise is not None]
    run.result = replace(run.result, raises_late=_late(now_ms, (note for note, _ in noted)))
    for note, topic in sorted(noted, key=lambda each: (each[0].since_ms, each[1].name)):
        if not note.is_settled(now_ms):
            continue
        try:
            _keep_of_topic(_Walk(run=run, topic=topic, noted=note))
        except PenstockError as error:
            run.failed(topic, "all", error)
    return run.result


def count_late(instance: Instance) -> int:
    """The raises older than a day that no walk has ended, for a task that runs although the walks do not.

    One read of the topics, and raises what that raises.
    """
    notes = (each.retention_raise for each in instance.stores.topics.list())
    return _late(instance.clock.now_ms(), (note for note in notes if note is not None))


def _late(now_ms: int, notes: Iterable[RetentionRaise]) -> int:
    return sum(now_ms - note.since_ms > RAISE_LATE_MS for note in notes)


def keep_restored(instance: Instance, topic: Topic) -> int:
    """Copies the items of the topic's live refs that would go too early, and tells how many.

    For a log table that DynamoDB has restored, while nothing writes and before its TTL is on. It waits for no note:
    a restored table does not tell which walks have ended since. An item that is missing was missing at the restored
    second, and readers judge it as they did then.

    One read for 100 heads, and a query for each 500 pages. For each 100 items it costs two reads of them, and a put
    for each that has no copy. Raises what these raise: call it again then.
    """
    keys = [PartitionKey(topic.topic_id, number) for number in topic.all_heads()]
    kept = 0
    for start in range(0, len(keys), BATCH_GET_KEYS_MAX):
        heads = instance.stores.log.heads(keys[start : start + BATCH_GET_KEYS_MAX])
        done = instance.executor.map(lambda each: _keep_of_head(instance, topic, *each), [*heads.items()])
        kept += sum(done.all_ok())
    return kept


def _keep_of_head(instance: Instance, topic: Topic, key: PartitionKey, head: Head) -> int:
    pages = pages_forward(instance.stores.log, key, head, head.log_start_offset, INDEX_MARK_PAGES)
    refs = chain(chain.from_iterable(page.located() for page in pages), head.located_tail())
    live = (each.ref for each in refs if each.end_offset > head.log_start_offset)
    ids = (each.segment_id for each in live if is_kept_longer(each, topic))
    inline, kept = instance.stores.inline, 0
    while some := [*dict.fromkeys(islice(ids, BATCH_GET_KEYS_MAX))]:
        copied = inline.get_wholes(some)
        wanted = [each for each in some if each not in copied]
        bodies = inline.get_expiring(wanted) if wanted else {}
        instance.executor.map(lambda copy: inline.overwrite(*copy, 0), [*bodies.items()]).all_ok()
        kept += len(bodies)
    return kept


def _keep_of_topic(walk: _Walk) -> None:
    run = walk.run
    walk.load()
    again, walk.failed = walk.failed, []
    first, offset = walk.rest
    rest = [(int(each), offset if each == first else 0) for each in walk.topic.all_partitions() if each >= first]
    for number, place in enumerate([*again, *rest]):
        is_rest = number >= len(again)
        if run.is_time_up or len(walk.failed) >= _FAILED_MAX:
            walk.failed += again[number:]
            walk.save(place if is_rest else walk.rest)
            run.result = replace(run.result, is_finished=False)
            return
        if not _keep_of_partition(walk, place, again[number + 1 :], is_rest=is_rest):
            return
    walk.rest = (walk.topic.head_count, 0)
    walk.end()


def _keep_of_partition(walk: _Walk, place: _Place, again: Sequence[_Place], *, is_rest: bool) -> bool:
    """Copies the items of a partition from a place on. False if the time is up: then the cursor is put.

    A place that fails joins the failed ones.
    """
    run, key = walk.run, PartitionKey(walk.topic.topic_id, Partition(place[0]))
    try:
        refs = refs_of(run.instance.stores.log, key, place[1])
        while some := list(islice(refs, BATCH_GET_KEYS_MAX)):
            place = (place[0], some[0].base_offset)
            if run.is_time_up:
                walk.failed += again if is_rest else [place, *again]
                walk.save(place if is_rest else walk.rest)
                run.result = replace(run.result, is_finished=False)
                return False
            if _keep(walk, key, [each for each in some if is_kept_longer(each.ref, walk.topic)]) and is_rest:
                walk.save((place[0], some[-1].end_offset))
    except PenstockError as error:
        walk.failed.append(place)
        run.failed(walk.topic, f"partition {place[0]} from offset {place[1]} on", error)
    return True


def _parse(text: str) -> _Place:
    partition, offset = text.split(":")
    return int(partition), int(offset)


def _keep(walk: _Walk, key: PartitionKey, refs: Sequence[LocatedRef]) -> int:
    """Copies the items of these refs that have no copy; gives how many. Looks at the refs that have lost theirs.

    A copy that is there already costs a read in place of a put: raises follow each other, and partitions share items.
    """
    run, inline = walk.run, walk.run.instance.stores.inline
    asked = [each for each in dict.fromkeys(each.ref.segment_id for each in refs) if each not in run.known]
    if not asked:
        return 0
    run.known.update(inline.get_wholes(asked))
    wanted = [each for each in asked if each not in run.known]
    bodies = inline.get_expiring(wanted) if wanted else {}
    run.instance.executor.map(lambda each: inline.overwrite(each, bodies[each], 0), [*bodies]).all_ok()
    run.known.update(bodies)
    run.count(kept=len(bodies))
    missing = [each for each in refs if each.ref.segment_id not in run.known]
    if len(run.known) > _KNOWN_MAX:
        run.known.clear()
    if missing:
        _pass(walk, key, missing)
    return len(bodies)


def _pass(walk: _Walk, key: PartitionKey, missing: Iterable[LocatedRef]) -> None:
    """Raises the log start past what had expired at the raise; logs and counts the refs that have lost their item.

    Once the note has gone, nothing would tell that those had expired. Retention should have passed them before. It
    hides no record that had not expired (G8): if one is in front, the place fails, and the note stays.
    """
    instance = walk.run.instance
    window = UpdateWindow.open(instance.clock)
    topic = instance.topic_cache.read_through(walk.topic.name)
    standing = list(standing_refs(instance, key, list(missing)))
    if topic.topic_id != walk.topic.topic_id or topic.retention_raise is None or not standing:
        return  # deleted, merged or removed since the walk has read it, or another walk has ended
    now_ms = instance.clock.now_ms()
    unnoted = replace(topic, retention_raise=None)
    owed_end = 0
    for located in standing:
        if not had_expired(topic, written_ms(located.ref), now_ms):
            _report_lost(walk.run, key, located)
        elif not had_expired(unnoted, written_ms(located.ref), now_ms):
            owed_end = located.end_offset
    if owed_end:
        _raise_log_start(instance, window, key, topic.retention_raise, owed_end)


def _report_lost(run: _Run, key: PartitionKey, located: LocatedRef) -> None:
    run.count(lost=1)
    run.instance.telemetry.log(
        "segment_lost",
        segment=located.ref.segment_id.hex(),
        partition=str(key),
        base_offset=located.base_offset,
        end_offset=located.end_offset,
        error="the item of a small append is gone before its retention was over",
    )


def _raise_log_start(
    instance: Instance, window: UpdateWindow, key: PartitionKey, noted: RetentionRaise, end_offset: int
) -> None:
    """Raises the log start to the offset, past refs that had expired at the raise alone."""
    log = instance.stores.log
    head = log.heads([key]).get(key)
    if head is None:
        return
    pages = pages_forward(log, key, head, head.log_start_offset, INDEX_EXPIRY_PAGES)
    config = TopicConfig(retention_ms=noted.retention_ms, retention_bytes=UNLIMITED)
    reached = min(expire(head, pages, config, noted.since_ms).log_start_offset, end_offset)
    if reached > head.log_start_offset:
        window.check()
        log.raise_log_start(key, Offset(reached))
    if max(reached, head.log_start_offset) < end_offset:
        raise PenstockError(
            ErrorCode.STORAGE_UNAVAILABLE,
            f"expired records up to offset {end_offset} of partition {key} lie behind one at {reached} that had not "
            f"expired: truncate the partition to {end_offset} if you need none of them",
        )
