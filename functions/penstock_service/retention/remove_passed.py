"""Remove what all readers have passed, in topics with `retention=acknowledged` (docs/protocol/retention).

For up to `PASSED_HEADS_MAX` partitions at a time: it reads their heads, then the places of all readers, and raises each
log start up to the lowest place, over whole refs that are old enough. Where there is no reader, time and size decide.

The time of a run is bounded, and so is that of one portion, whose heads must not age. A long backlog goes by parts.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import APPEND_MS_MAX, HEADS_AT_ONCE, INDEX_EXPIRY_PAGES, PASSED_HEADS_MAX, READERS_SETTLED_MS
from penstock_core.log.index import Head
from penstock_core.log.retention import Expiry, passed
from penstock_core.log.topic import Topic
from penstock_service.index.reader import pages_forward
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.retention.reader_places import keys_of, lowest_places
from penstock_service.retention.remove_topic import RetentionResult, RetentionRun

_PORTION_MS = APPEND_MS_MAX * 3 // 4  # from the read of its heads on, while updates may begin
_TURN_MS = 900_000  # between two runs


def remove_passed(run: RetentionRun, topics: Sequence[Topic]) -> RetentionResult:
    """One run over those of the topics that readers empty.

    Nothing without such a topic. Else for each `PASSED_HEADS_MAX` partitions: one read for each 100, what
    `lowest_places` costs if one of them has records, one read of each topic that loses some; and for each partition
    that loses some, a query unless they are in the tail, and one conditional update. Raises nothing: failures are
    counted, and the next run meets them again.
    """
    total = RetentionResult()
    portions = [*_portions(_emptied(run.instance, topics))]
    turn = run.instance.clock.now_ms() // _TURN_MS % (len(portions) or 1)  # none is the last one each time
    for portion in portions[turn:] + portions[:turn]:
        if run.is_time_up:
            return total.plus(RetentionResult(is_finished=False))
        try:
            total = total.plus(_remove(run, portion))
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


def _remove(run: RetentionRun, topics: Sequence[Topic]) -> RetentionResult:
    instance = run.instance
    window = UpdateWindow.open(instance.clock)

    def has_time() -> bool:
        return window.age_ms < _PORTION_MS and not run.is_time_up

    heads = _heads(instance, [key for topic in topics for key in keys_of(topic)])
    if not heads:
        return RetentionResult()
    places = lowest_places(instance, topics)  # after the heads: see reader_places.py
    now_ms = instance.clock.now_ms()
    results = RetentionResult()
    for topic in topics:
        held = [key for key in keys_of(topic) if key in heads and places.get(key, 0) > heads[key].log_start_offset]
        if not held:
            continue
        if not has_time():
            break
        if not _is_emptied_now(instance, topic):
            continue

        def raise_one(key: PartitionKey) -> int:
            pages = pages_forward(instance.stores.log, key, heads[key], heads[key].log_start_offset, INDEX_EXPIRY_PAGES)
            expiry = passed(heads[key], takewhile(lambda _: has_time(), pages), places[key], now_ms)
            if not expiry.refs or window.age_ms > APPEND_MS_MAX:
                return 0
            return _raise(instance, window, key, heads[key], expiry)

        done = instance.executor.map(raise_one, held)
        results = results.plus(RetentionResult(refs_expired=sum(done.ok), failures=len(done.errors)))
    return results.plus(RetentionResult(is_finished=has_time()))


def _heads(instance: Instance, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, Head]:
    """The heads that have records."""
    parts = [keys[start : start + HEADS_AT_ONCE] for start in range(0, len(keys), HEADS_AT_ONCE)]
    found = [each for part in instance.executor.map(instance.stores.log.heads, parts).all_ok() for each in part.items()]
    return {key: head for key, head in found if head.log_start_offset < head.next_offset}


def _is_emptied_now(instance: Instance, topic: Topic) -> bool:
    """The setting may have changed since the run began."""
    instance.topic_cache.forget(topic.name)
    now = instance.topic_cache.find(topic.name)  # None if it was deleted: the others go on
    return now is not None and now.topic_id == topic.topic_id and bool(_emptied(instance, [now]))


def _raise(instance: Instance, window: UpdateWindow, key: PartitionKey, head: Head, expiry: Expiry) -> int:
    """The number of refs that went: none if a reader has got another place since the head was read."""
    window.check()
    is_raised, _ = instance.stores.log.raise_passed(key, expiry.log_start_offset, head.reader_changes)
    return expiry.refs if is_raised else 0
