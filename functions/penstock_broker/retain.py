"""Retention: let go of what is expired, first for readers, later in the index. Objects go by the sweep alone (ADR 5).

For each partition, in this order:

1. Pages wholly below the *settled* log start are deleted, oldest first: nobody reads there any more.
2. The log start is raised past the refs that are expired. From here on a reader below it is told so.
3. The log start is noted with the time. Once the note is older than any function may run (`LOG_START_GRACE_MS`), no
   reader holds a head from before it: the log start is settled, for step 1 and for the sweep. A note is replaced
   only when it is settled, so that truncations in quick succession cannot keep it young for ever.

Each step is safe to repeat, to run twice at once, and to die in. Of deleted topics the heads go first, so that no roll
can bring another page, then the pages, then what heads there are above the last partition, of alterations that did
not come to an end, and last the note that names them. A creation that has not come to its end within the grace
is given up, and then removed in the same way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from penstock_broker.broker import Broker
from penstock_broker.index_age import note_index_age
from penstock_broker.walk_pages import walk_pages
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition
from penstock_core.index import Head, settled_offset
from penstock_core.items import DeletedTopic
from penstock_core.keys import PartitionKey
from penstock_core.limits import LOG_START_GRACE_MS, TOPIC_PARTITIONS_MAX, UNLIMITED
from penstock_core.ref import stored_bytes
from penstock_core.retention import Expiry, expire
from penstock_core.topic import Topic, TopicConfig

FOREVER = TopicConfig(retention_ms=UNLIMITED, retention_bytes=UNLIMITED)
_JOB = "retention"
_LIVING_SHARE = 0.7  # of the time, so that neither large topics nor large deleted ones keep the others waiting for ever
_KEYS_AT_ONCE = 100
_PAGES_PER_QUERY = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What one run did; `is_finished` unless its time was up before it had been everywhere."""

    partitions: int = 0
    refs_expired: int = 0
    pages_deleted: int = 0
    topics_removed: int = 0
    failures: int = 0
    is_finished: bool = True

    def plus(self, other: "Retained") -> "Retained":
        return Retained(
            partitions=self.partitions + other.partitions,
            refs_expired=self.refs_expired + other.refs_expired,
            pages_deleted=self.pages_deleted + other.pages_deleted,
            topics_removed=self.topics_removed + other.topics_removed,
            failures=self.failures + other.failures,
            is_finished=self.is_finished and other.is_finished,
        )


def retain(broker: Broker, *, budget_ms: float, grace_ms: int = LOG_START_GRACE_MS) -> Retained:
    """One run over all topics from where the last one stopped, then over the deleted ones.

    Costs a read of the topics table, one read per partition and up to two queries, and what is to be done. A partition
    that fails is counted and met again by the next run. Raises what reading the topics raises.
    """
    started_ms = broker.clock.monotonic_ms()
    living = _retain_living(broker, grace_ms, started_ms + budget_ms * _LIVING_SHARE)
    deleted = [_remove(broker, note, grace_ms, started_ms + budget_ms) for note in broker.topics.deleted()]
    for done in deleted:
        living = living.plus(done)
    return living


def _retain_living(broker: Broker, grace_ms: int, deadline_ms: float) -> Retained:
    cursor = broker.cursors.get(_JOB)
    total = Retained()
    topics = broker.topics.list()
    note_index_age(broker, topics)
    for topic, keys in _portions(topics, cursor):
        if broker.clock.monotonic_ms() >= deadline_ms:
            broker.cursors.put(_JOB, f"{topic.name}#{keys[0].partition}")
            return replace(total, is_finished=False)
        total = total.plus(_retain_portion(broker, topic, keys, grace_ms, deadline_ms))
    if cursor is not None:
        broker.cursors.clear(_JOB)
    return total


def _portions(topics: Sequence[Topic], cursor: str | None) -> Iterator[tuple[Topic, list[PartitionKey]]]:
    """Topics by name, a hundred partitions at a time, from the cursor's (`<topic>#<partition>`) on."""
    name, _, number = (cursor or "#0").partition("#")
    for topic in topics:
        if topic.name < name:
            continue
        first = int(number) if topic.name == name else 0
        keys = [PartitionKey(topic.topic_id, Partition(each)) for each in range(first, topic.partitions)]
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            yield topic, keys[start : start + _KEYS_AT_ONCE]


def _retain_portion(
    broker: Broker, topic: Topic, keys: list[PartitionKey], grace_ms: int, deadline_ms: float
) -> Retained:
    try:
        heads = broker.log.heads(keys)
    except PenstockError:
        return Retained(failures=len(keys))
    total = Retained()
    for result in broker.parallel.map(
        lambda key: _retain_partition(broker, topic, key, heads[key], grace_ms, deadline_ms),
        [key for key in keys if key in heads],
    ):
        total = total.plus(result if isinstance(result, Retained) else _failed(result))
    return total


def _retain_partition(
    broker: Broker, topic: Topic, key: PartitionKey, head: Head, grace_ms: int, deadline_ms: float
) -> Retained:
    settled = settled_offset(head, broker.clock.now_ms(), grace_ms)
    pages_deleted, is_finished = _delete_pages(broker, key, settled, deadline_ms) if settled else (0, True)
    expiry = _expire(broker, topic, key, head, deadline_ms)
    if expiry.refs:
        head = broker.log.raise_log_start(key, expiry.log_start_offset)
    if head.log_start_offset > head.settling_offset and settled == head.settling_offset and is_finished:
        broker.log.note_log_start(key, head.log_start_offset, broker.clock.now_ms())
    return Retained(partitions=1, refs_expired=expiry.refs, pages_deleted=pages_deleted, is_finished=is_finished)


def _expire(broker: Broker, topic: Topic, key: PartitionKey, head: Head, deadline_ms: float) -> Expiry:
    """As many pages as the time allows: the log start is right after each of them."""
    now = broker.directory.find(topic.name)  # a setting is heeded within 10 s, however long the run has taken so far
    config = now.config if now.topic_id == topic.topic_id else FOREVER
    if not config.is_expiring or (config.retention_ms == UNLIMITED and config.retention_bytes == UNLIMITED):
        return Expiry(log_start_offset=head.log_start_offset)
    pages = walk_pages(broker.log, key, head, head.log_start_offset, _PAGES_PER_QUERY)
    in_time = takewhile(lambda _: broker.clock.monotonic_ms() < deadline_ms, pages)
    total = _held_bytes(broker, key, head) if config.is_compacted and config.retention_bytes != UNLIMITED else None
    return expire(head, in_time, config, broker.clock.now_ms(), total)


def _held_bytes(broker: Broker, key: PartitionKey, head: Head) -> int:
    """What a partition holds from the page of its log start on, by its refs: where compaction has removed records, what
    pages count of those behind them is too much. One query for each 25 pages."""
    pages = walk_pages(broker.log, key, head, head.log_start_offset, _PAGES_PER_QUERY)
    return sum(stored_bytes(page.refs) for page in pages) + stored_bytes(head.tail)


def _delete_pages(broker: Broker, key: PartitionKey, below: Offset | None, deadline_ms: float) -> tuple[int, bool]:
    """Deletes the pages that end at `below` or before (None: all), and whether that was all of them."""
    count = 0
    while broker.clock.monotonic_ms() < deadline_ms:
        pages = broker.log.pages(key, Offset(0), _PAGES_PER_QUERY)
        dead = [page for page in pages if below is None or page.end_offset <= below]
        for page in dead:
            broker.log.delete_page(key, page.end_offset)
        count += len(dead)
        if len(dead) < _PAGES_PER_QUERY:
            return count, True
    return count, False


def _remove(broker: Broker, note: DeletedTopic, grace_ms: int, deadline_ms: float) -> Retained:
    """What a deleted topic, or a creation that died, left behind: heads, pages, the note."""
    is_settled = broker.clock.now_ms() - note.deleted_at_ms >= grace_ms
    if note.is_being_created:
        try:
            if not is_settled or not broker.topics.give_up(note):
                return Retained()
        except PenstockError:
            return Retained(failures=1)
    keys = [PartitionKey(note.topic_id, Partition(number)) for number in range(note.partitions)]
    failures = sum(isinstance(result, PenstockError) for result in broker.parallel.map(broker.log.delete_head, keys))
    if failures or not is_settled:
        return Retained(failures=failures)
    results = broker.parallel.map(lambda key: _delete_pages(broker, key, None, deadline_ms), keys)
    done = [result for result in results if not isinstance(result, PenstockError)]
    failures = len(results) - len(done)
    is_finished = all(is_empty for _, is_empty in done)
    if is_finished and not failures:
        failures = _forget(broker, note)
    return Retained(
        pages_deleted=sum(count for count, _ in done),
        topics_removed=int(is_finished and not failures),
        failures=failures,
        is_finished=is_finished,
    )


def _forget(broker: Broker, note: DeletedTopic) -> int:
    """Once everything else is gone; how much failed. One read of up to 10 calls, once per deleted topic."""
    beyond = range(note.partitions, TOPIC_PARTITIONS_MAX)
    try:
        heads = broker.log.heads([PartitionKey(note.topic_id, Partition(number)) for number in beyond])
        results = broker.parallel.map(broker.log.delete_head, list(heads))
        failures = sum(isinstance(result, PenstockError) for result in results)
        if not failures:
            broker.topics.forget_deleted(note.topic_id)
    except PenstockError:
        return 1
    return failures


def _failed(error: PenstockError) -> Retained:
    """A partition deleted meanwhile is none that failed."""
    is_gone = error.code in (ErrorCode.UNKNOWN_PARTITION, ErrorCode.UNKNOWN_TOPIC)
    return Retained(partitions=1, failures=int(not is_gone))
