"""Remove what all readers have passed, in topics with `retention=acknowledged` (docs/protocol/retention).

For up to `PASSED_HEADS_MAX` partitions at a time: it reads their heads, then the places of all readers, and raises each
log start up to the lowest place, over whole refs that are old enough. Where there is no reader, time and size decide.
"""

from collections.abc import Iterator, Mapping, Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import HEADS_AT_ONCE, INDEX_EXPIRY_PAGES, PASSED_HEADS_MAX, READERS_SETTLED_MS
from penstock_core.log.index import Head
from penstock_core.log.retention import passed
from penstock_core.log.topic import Topic
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.retention.reader_places import keys_of, lowest_places
from penstock_service.retention.remove_topic import RetentionResult, RetentionRun


def remove_passed(run: RetentionRun, topics: Sequence[Topic]) -> RetentionResult:
    """One run over those of the topics that readers empty.

    Nothing without such a topic. Else for each `PASSED_HEADS_MAX` partitions: one read for each 100, what
    `lowest_places` costs if one of them has records, one read of each topic that loses some; and for each partition
    that loses some, a query unless they are in the tail, and one conditional update. Raises nothing: failures are
    counted, and the next run meets them again.
    """
    total = RetentionResult()
    for portion in _portions(_emptied(run.instance, topics)):
        if run.is_time_up:
            return total.plus(RetentionResult(is_finished=False))
        try:
            total = total.plus(_remove(run.instance, portion))
        except PenstockError as error:
            run.instance.telemetry.log("places_unknown", error=str(error))
            total = total.plus(RetentionResult(failures=1))
    return total


def _emptied(instance: Instance, topics: Sequence[Topic]) -> list[Topic]:
    """The topics whose readers have announced themselves for long enough. A mirror keeps what its source keeps."""
    before_ms = instance.clock.now_ms() - READERS_SETTLED_MS
    return [
        topic
        for topic in topics
        if topic.config.is_acknowledged and topic.mirror is None and _since_ms(topic) <= before_ms
    ]


def _since_ms(topic: Topic) -> int:
    return topic.created_at_ms if topic.acknowledged_since_ms is None else topic.acknowledged_since_ms


def _portions(topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    portion: list[Topic] = []
    for topic in topics:
        if portion and sum(each.partitions for each in portion) + topic.partitions > PASSED_HEADS_MAX:
            yield portion
            portion = []
        portion.append(topic)
    if portion:
        yield portion


def _remove(instance: Instance, topics: Sequence[Topic]) -> RetentionResult:
    window = UpdateWindow.open(instance.clock)
    heads = _heads(instance, [key for topic in topics for key in keys_of(topic)])
    if not heads:
        return RetentionResult()
    places = lowest_places(instance, topics)  # after the heads: see reader_places.py
    now_ms = instance.clock.now_ms()
    results = RetentionResult()
    for topic in topics:
        held = [key for key in keys_of(topic) if key in heads and places.get(key, 0) > heads[key].log_start_offset]
        if not held or not _is_emptied_now(instance, topic):
            continue

        def raise_one(key: PartitionKey) -> int:
            return _raise(instance, window, key, heads[key], places[key], now_ms)

        done = instance.executor.map(raise_one, held)
        results = results.plus(RetentionResult(refs_expired=sum(done.ok), failures=len(done.errors)))
    return results


def _heads(instance: Instance, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
    """The heads that have records."""
    parts = [keys[start : start + HEADS_AT_ONCE] for start in range(0, len(keys), HEADS_AT_ONCE)]
    found = [each for part in instance.executor.map(instance.stores.log.heads, parts).all_ok() for each in part.items()]
    return {key: head for key, head in found if head.log_start_offset < head.next_offset}


def _is_emptied_now(instance: Instance, topic: Topic) -> bool:
    """The setting may have changed since the run began."""
    now = instance.topic_cache.read_through(topic.name)
    return now.topic_id == topic.topic_id and bool(_emptied(instance, [now]))


def _raise(instance: Instance, window: UpdateWindow, key: PartitionKey, head: Head, place: Offset, now_ms: int) -> int:
    """The number of refs that went: none if a reader has got another place since the head was read."""
    log = instance.stores.log
    pages = pages_forward(log, key, head, head.log_start_offset, INDEX_EXPIRY_PAGES)
    expiry = passed(head, pages, place, now_ms)
    if not expiry.refs:
        return 0
    window.check()
    is_raised, _ = log.raise_passed(key, expiry.log_start_offset, head.reader_changes)
    return expiry.refs if is_raised else 0
