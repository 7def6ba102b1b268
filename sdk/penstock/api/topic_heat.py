"""Find the hot partitions of a topic while it works: by counts of the last minutes, and a sample of the newest records.

One call describes the topic, and one finds the offsets at the window's begin. One call for each of up to
`HOT_SAMPLED_PARTITIONS_MAX` hot partitions reads some of its newest records. So a look costs five calls at most,
however many records the topic has.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.api import calls
from penstock.arguments import check_whole
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model import PartitionOffsets, TopicDescription, TopicPartition
from penstock.model.heat import HotPartition, TopicHeat
from penstock_core.errors import PenstockError
from penstock_core.limits import (
    HOT_PARTITION_FACTOR,
    HOT_RECORDS_MIN,
    HOT_SAMPLE_BYTES_MAX,
    HOT_SAMPLE_RECORDS_MAX,
    HOT_SAMPLED_PARTITIONS_MAX,
)


def topic_heat(name: str, since_ms: int, now_ms: int) -> Calls[TopicHeat]:
    """The records of each writable partition since then, and its hot partitions with their keys. Five calls at most."""
    check_whole("since_ms", since_ms, 1)
    described = yield from calls.describe_topic(name)
    active = {each.partition: each for each in described.offsets if each.state == "active"}
    records = yield from _counts(described, active, max(0, now_ms - since_ms))
    hot = []
    for partition in hot_partitions(records)[:HOT_SAMPLED_PARTITIONS_MAX]:
        keys = yield from _newest_keys(name, described.topic.topic_id, active[partition])
        hot.append(judged(partition, records[partition], keys))
    advised = advice(name, described.topic.writable_partitions, hot)
    return TopicHeat(topic=name, since_ms=since_ms, records=records, hot=tuple(hot), advice=advised)


def _counts(described: TopicDescription, active: Mapping[int, PartitionOffsets], time_ms: int) -> Calls[dict[int, int]]:
    """The records of each of these partitions from the time on. One call."""
    name = described.topic.name
    found = yield from calls.offsets_at({TopicPartition(name, each): time_ms for each in active})
    firsts = {partition.partition: first for partition, first in found.items()}
    return {
        number: 0 if (first := firsts.get(number)) is None else max(0, each.high_watermark - first.offset)
        for number, each in active.items()
    }


def _newest_keys(name: str, topic_id: str, bounds: PartitionOffsets) -> Calls[list[bytes | None]]:
    """The keys of some of the newest records of the partition; none if they cannot be read. One call."""
    start = max(bounds.log_start_offset, bounds.high_watermark - HOT_SAMPLE_RECORDS_MAX)
    path = f"{calls.topic_path(name)}/partitions/{bounds.partition}/records"
    query = {"offset": str(start), "topic_id": topic_id, "max_bytes": str(HOT_SAMPLE_BYTES_MAX)}
    try:
        answer = yield json_request("GET", path, query)
    except PenstockError:
        return []
    return [_key_of(record) for record in answer["records"][:HOT_SAMPLE_RECORDS_MAX]]


def _key_of(record: Mapping[str, Any]) -> bytes | None:
    if "key_base64" in record:
        return base64.b64decode(record["key_base64"])
    key = record.get("key")
    return None if key is None else str(key).encode()


def hot_partitions(records: Mapping[int, int]) -> list[int]:
    """The partitions with `HOT_PARTITION_FACTOR` times the mean of the others, and `HOT_RECORDS_MIN` records at least.

    `records` came to each writable partition in the window. The hottest is first.
    """
    total = sum(records.values())
    others = max(1, len(records) - 1)
    return [
        partition
        for partition, count in sorted(records.items(), key=lambda each: (-each[1], each[0]))
        if len(records) > 1 and count >= HOT_RECORDS_MIN and count >= HOT_PARTITION_FACTOR * (total - count) / others
    ]


def judged(partition: int, records: int, keys: Sequence[bytes | None]) -> HotPartition:
    """The hot partition by a sample of its newest records' keys."""
    counts = Counter(key for key in keys if key is not None)
    key = max(counts, key=counts.__getitem__, default=None)
    return HotPartition(
        partition=partition,
        records=records,
        sampled=len(keys),
        keyless=len(keys) - counts.total(),
        key=key,
        key_records=0 if key is None else counts[key],
    )


def advice(topic: str, writable: int, hot: Sequence[HotPartition]) -> str:
    """What helps, by the hottest partition."""
    if not hot:
        return "Nothing to do: no partition gets far more records than the others."
    first = hot[0]
    if not first.sampled:
        return (
            f"Partition {first.partition} gets far more records than the others. Its records could not be read, so its "
            "keys are not known."
        )
    if first.has_hot_key:
        return (
            f"One key makes {first.key_records / first.sampled:.0%} of partition {first.partition}. More partitions do "
            "not help: a key stays in one. If its records need no order among themselves, let producers spread "
            "them: Producer(salted_keys=...)."
        )
    if first.keyless > first.sampled / 2:
        return (
            f"Most records of partition {first.partition} have no key. If they came in a few large batches, chance "
            "chose it: count over a longer time. Else their producers name it: let them send without a partition."
        )
    return (
        f"Several keys meet in partition {first.partition}. Add partitions: "
        f"penstock topics alter {topic} --partitions {2 * writable}"
    )
