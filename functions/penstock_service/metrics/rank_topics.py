"""Choose the topics that get series of their own, and keep the choice where all function instances find it."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence

from penstock_core.ids import PartitionKey, TopicId, segment_time_ms
from penstock_core.limits import HEADS_AT_ONCE, METRIC_RANK_MS
from penstock_core.log.index import Head
from penstock_core.log.ref import stored_bytes
from penstock_core.log.topic import Topic
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import JobCursors

_CHOICE = "measured-topics"
_HOUR_MS = 3_600_000


def measured_topics(cursors: JobCursors) -> frozenset[str]:
    """The topics with series of their own. One read."""
    return frozenset(_stored(cursors)[1])


def rank_topics(instance: Instance, own_max: int) -> bool:
    """Chooses the `own_max` topics that take the most bytes now, where it is time to. Returns whether it did.

    It is time once an hour, because CloudWatch bills a series for an hour, and each `METRIC_RANK_MS` while there are
    places. One read, then a scan of the topics. If there are more of them than places, one read of heads for
    each 100 partitions of all topics, too, side by side.
    """
    now_ms = instance.clock.now_ms()
    chosen_ms, chosen = _stored(instance.stores.cursors)
    is_same_hour = chosen_ms // _HOUR_MS == now_ms // _HOUR_MS
    if is_same_hour and (len(chosen) >= own_max or now_ms - chosen_ms < METRIC_RANK_MS):
        return False
    topics = instance.stores.topics.list()
    if len(topics) > own_max:
        held = {*chosen} if is_same_hour else set()
        rates = _bytes_per_s(instance, topics, now_ms)
        topics = sorted(topics, key=lambda topic: (topic.name not in held, -rates[topic.topic_id], topic.name))
        topics = topics[:own_max]
    names = sorted(topic.name for topic in topics)
    instance.stores.cursors.put(_CHOICE, json.dumps([now_ms, names], separators=(",", ":")))
    return True


def _stored(cursors: JobCursors) -> tuple[int, list[str]]:
    text = cursors.get(_CHOICE)
    if text is None:
        return 0, []
    chosen_ms, names = json.loads(text)
    return int(chosen_ms), [*map(str, names)]


def _bytes_per_s(instance: Instance, topics: Sequence[Topic], now_ms: int) -> Mapping[TopicId, float]:
    """The growth of each topic, by the refs in the tails of its partitions: up to 18 appends each."""
    keys = [PartitionKey(topic.topic_id, partition) for topic in topics for partition in topic.all_partitions()]
    parts = [keys[start : start + HEADS_AT_ONCE] for start in range(0, len(keys), HEADS_AT_ONCE)]
    rates: defaultdict[TopicId, float] = defaultdict(float)
    for heads in instance.executor.map(instance.stores.log.heads, parts).all_ok():
        for key, head in heads.items():
            rates[key.topic_id] += _head_rate(head, now_ms)
    return rates


def _head_rate(head: Head, now_ms: int) -> float:
    times: Sequence[int] = [segment_time_ms(ref.segment_id) for ref in head.tail]
    return 1_000 * stored_bytes(head.tail) / max(1_000, now_ms - min(times)) if times else 0.0
