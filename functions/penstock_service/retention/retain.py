"""Retention: remove expired records, first for readers, later from the index. Only the sweep removes objects (ADR 5).

For each partition, in this order:

1. It deletes pages wholly below the *safe* log start, oldest first. No function reads there any more.
2. It raises the log start past the expired refs, by the settings that it reads right before. From then on a reader
   below it gets OFFSET_OUT_OF_RANGE.
3. It notes the log start with the time. Once the note is older than a fetch may run (`LOG_START_GRACE_MS`), no
   reader holds a head from before it. The noted log start is safe then, for step 1 and for the sweep.

A note is replaced only when it is safe. Otherwise truncations in quick succession could keep it young for ever.

Each step is safe to repeat, to run twice at once, and to die in:

- Deleting a page again removes nothing more.
- A log start only rises.
- A note tells what was once true of the log start, and that stays true.

Then it takes drained partitions away (retire_partitions.py), removes deleted topics (remove_topic.py), and what deleted
share groups have left (remove_share_states.py).

Retire partitions: take the last partitions of a topic away once they have drained (docs/adr/0046).

A partition goes if all of this holds:

- It was closed `DRAIN_MS_MIN` ago. No transaction, no put of a timer and no retry is on its way from before.
- Its log start is at its end, and that is safe: no function reads below it any more. Its pages are deleted.
- No timer waits for it.

Then the topic has a partition less. Its head stays, closed and empty: if the number rises again, it opens, and its
offsets go on where they ended. So no offset ever means two records. Until then it answers clients that still know it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import (
    DRAIN_MS_MIN,
    HEADS_AT_ONCE,
    INDEX_EXPIRY_PAGES,
    LOG_START_GRACE_MS,
    TIMER_MS_MAX,
    UNLIMITED,
)
from penstock_core.log.index import Head, Page, safe_log_start
from penstock_core.log.ref import stored_bytes
from penstock_core.log.retention import Expiry, expire
from penstock_core.log.timer import PlaceRange
from penstock_core.log.topic import Topic, TopicConfig
from penstock_service.index.heads import is_unsettled, open_generation, settle_head, waiting_timers
from penstock_service.index.reader import note_index_age, pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.log import LogIndex
from penstock_service.retention.remove_passed import remove_passed
from penstock_service.retention.remove_topic import (
    RetentionResult,
    RetentionRun,
    delete_pages,
    remove_deleted_groups,
    remove_topic,
)

FOREVER = TopicConfig(retention_ms=UNLIMITED, retention_bytes=UNLIMITED)
_JOB = "retention"
_LIVING_SHARE = 0.7  # of the time, so that large topics and large deleted ones cannot keep each other waiting for ever
_PASSED_SHARE = 0.5  # of that, for what readers have passed: the rest removes by time and size


def retain(instance: Instance, *, budget_ms: float, grace_ms: int = LOG_START_GRACE_MS) -> RetentionResult:
    """One run over all topics from the stored cursor on, then over the deleted topics.

    Costs a read of the topics table; for each partition one read, up to two queries, and the writes of its steps, with
    one read of the topic for each partition that has expired records. A
    partition that fails is counted, and the next run meets it again. Raises what reading the topics raises.
    """
    started_ms = instance.clock.monotonic_ms()
    run = RetentionRun(instance=instance, grace_ms=grace_ms, deadline_ms=started_ms + budget_ms)
    total = _retain_living(replace(run, deadline_ms=started_ms + budget_ms * _LIVING_SHARE))
    for note in instance.stores.topics.deleted():
        total = total.plus(remove_topic(run, note))
    return total.plus(remove_deleted_groups(run))


def _retain_living(run: RetentionRun) -> RetentionResult:
    stores = run.instance.stores
    cursor = stores.cursors.get(_JOB)
    total = RetentionResult()
    topics = stores.topics.list()
    note_index_age(stores.cursors, topics)
    passed_until_ms = run.instance.clock.monotonic_ms() + run.time_left_ms * _PASSED_SHARE
    total = total.plus(remove_passed(replace(run, deadline_ms=passed_until_ms), topics))
    for topic, keys in _portions(topics, cursor):
        if run.is_time_up:
            stores.cursors.put(_JOB, f"{topic.name}#{keys[0].partition}")
            return replace(total, is_finished=False)
        total = total.plus(_retain_portion(run, topic, keys))
    for topic in topics:
        total = total.plus(retire_partitions(run, topic))
    if cursor is not None:
        stores.cursors.clear(_JOB)
    return total


def _portions(topics: Sequence[Topic], cursor: str | None) -> Iterator[tuple[Topic, list[PartitionKey]]]:
    """Topics by name, 100 partitions at a time, from the cursor's (`<topic>#<partition>`) on."""
    name, _, number = (cursor or "#0").partition("#")
    for topic in topics:
        if topic.name < name:
            continue
        first = int(number) if topic.name == name else 0
        keys = [PartitionKey(topic.topic_id, Partition(each)) for each in range(first, topic.partitions)]
        for start in range(0, len(keys), HEADS_AT_ONCE):
            yield topic, keys[start : start + HEADS_AT_ONCE]


def _retain_portion(run: RetentionRun, topic: Topic, keys: list[PartitionKey]) -> RetentionResult:
    try:
        heads = run.instance.stores.log.heads(keys)
    except PenstockError:
        return RetentionResult(failures=len(keys))
    total = RetentionResult()
    for result in run.instance.executor.map(
        lambda key: _retain_partition(run, topic, key, heads[key]), [key for key in keys if key in heads]
    ):
        total = total.plus(result if isinstance(result, RetentionResult) else _failed(result))
    return total


def _retain_partition(run: RetentionRun, topic: Topic, key: PartitionKey, head: Head) -> RetentionResult:
    log, clock = run.instance.stores.log, run.instance.clock
    safe = safe_log_start(head, clock.now_ms(), run.grace_ms)
    pages_deleted, is_finished = delete_pages(run, key, safe) if safe else (0, True)
    expiry = _expire(run, topic, key, head)
    window = UpdateWindow.open(clock)
    if expiry.refs and (now := _topic_now(run.instance, topic)) != topic:
        expiry = _expire(run, now, key, head)
    if expiry.refs:
        window.check()  # a setting of the topic may keep longer by now
        head = log.raise_log_start(key, expiry.log_start_offset)
    if is_finished and _is_note_due(head, safe):
        log.note_log_start(key, head.log_start_offset, clock.now_ms())
    return RetentionResult(partitions=1, refs_expired=expiry.refs, pages_deleted=pages_deleted, is_finished=is_finished)


def _is_note_due(head: Head, safe: int) -> bool:
    """Tells if the log start is above its note, and the note is safe."""
    return head.log_start_offset > head.noted_log_start and safe == head.noted_log_start


def _topic_now(instance: Instance, topic: Topic) -> Topic:
    """The topic as it is now. One read. The run has read `topic` at its beginning, and may have taken minutes since.

    A topic that was deleted and created again meanwhile is left alone.
    """
    now = instance.topic_cache.read_through(topic.name)
    return now if now.topic_id == topic.topic_id else replace(topic, config=FOREVER)


def _expire(run: RetentionRun, topic: Topic, key: PartitionKey, head: Head) -> Expiry:
    """The expired refs of as many pages as the time allows: a log start right after any page is a good one."""
    config = topic.config
    if not config.is_expiring or (config.retention_ms == UNLIMITED and config.retention_bytes == UNLIMITED):
        return Expiry(log_start_offset=head.log_start_offset)
    log = run.instance.stores.log
    in_time = takewhile(lambda _: not run.is_time_up, _pages(log, key, head))
    total = _held_bytes(log, key, head) if topic.was_compacted and config.retention_bytes != UNLIMITED else None
    return expire(head, in_time, config, run.instance.clock.now_ms(), total)


def _held_bytes(log: LogIndex, key: PartitionKey, head: Head) -> int:
    """The bytes that refs name from the page of the log start on. One query for each 25 pages.

    Where compaction has ever removed records, the counts of bytes in pages and head are too high: a swap of pages
    changes neither the pages behind them nor the head.
    """
    return sum(stored_bytes(page.refs) for page in _pages(log, key, head)) + stored_bytes(head.tail)


def _pages(log: LogIndex, key: PartitionKey, head: Head) -> Iterator[Page]:
    return pages_forward(log, key, head, head.log_start_offset, INDEX_EXPIRY_PAGES)


def _failed(error: PenstockError) -> RetentionResult:
    """A partition that was deleted meanwhile has not failed."""
    is_gone = error.code in (ErrorCode.UNKNOWN_PARTITION, ErrorCode.UNKNOWN_TOPIC)
    return RetentionResult(partitions=1, failures=int(not is_gone))


def retire_partitions(run: RetentionRun, topic: Topic) -> RetentionResult:
    """Closes heads that an alteration has left open, opens a coming generation, and takes drained partitions away.

    Costs nothing for a topic without draining partitions. Else one read of the topic, one of the heads for each 100
    partitions, and for the last ones a query of pages and the reads of `waiting_timers`; one conditional update if some
    go. Raises nothing: failures are counted, and the next run meets them again.
    """
    if topic.mirror is not None or topic.is_moved or (not topic.draining_partitions() and topic.opening is None):
        return RetentionResult()  # the partitions of a mirrored topic go with those of its source, which may move
    instance = run.instance
    try:
        now = open_generation(instance, topic.name)
        keys = [PartitionKey(now.topic_id, each) for each in now.draining_partitions()]
        heads = instance.stores.log.heads(keys)
        for key, head in heads.items():
            if is_unsettled(now, key.partition, head):
                settle_head(instance, now, key.partition)
        drained = takewhile(lambda key: key in heads and _is_drained(run, key, heads[key]), reversed(keys))
        count = sum(1 for _ in drained)
        if count:
            instance.stores.topics.retire(now, now.with_partitions(now.partitions - count))
            instance.topic_cache.forget(now.name)
    except PenstockError:
        return RetentionResult(failures=1)
    return RetentionResult(partitions_retired=count)


def _is_drained(run: RetentionRun, key: PartitionKey, head: Head) -> bool:
    instance, now_ms = run.instance, run.instance.clock.now_ms()
    if head.closed_ms is None or now_ms - head.closed_ms < DRAIN_MS_MIN:
        return False
    if safe_log_start(head, now_ms, run.grace_ms) < head.next_offset or instance.stores.log.pages(key, Offset(0), 1):
        return False
    return instance.stores.timers.switched_on_ms() is None or not waiting_timers(
        instance, key, PlaceRange(0, TIMER_MS_MAX), 1
    )
