"""Records and batches of subscriptions, as the targets get them."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock_core.ids import Partition, PartitionKey, SubscriptionId, SubscriptionName, TopicId, TopicName
from penstock_core.push.batch import PushBatch, PushRecord
from penstock_core.records.codec import Headers

ORDERS, BILLS = TopicId("0a" * 10), TopicId("0b" * 10)
NOW_MS = 1_790_000_000_000


class StoredRecord(NamedTuple):
    """A record with what the codec's own objects have."""

    offset: int
    timestamp: int = NOW_MS
    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Headers = ()


def push_record(record: StoredRecord, topic: str = "orders", partition: int = 0) -> PushRecord:
    topic_id = ORDERS if topic == "orders" else BILLS
    return PushRecord(topic=TopicName(topic), key=PartitionKey(topic_id, Partition(partition)), record=record)


def push_batch(records: Sequence[PushRecord], attempt: int = 1) -> PushBatch:
    return PushBatch(
        subscription=SubscriptionName("packing"),
        subscription_id=SubscriptionId("0c" * 10),
        records=records,
        attempt=attempt,
    )


def orders(*records: StoredRecord) -> PushBatch:
    """A batch of records of partition 0 of the topic `orders`."""
    return push_batch([push_record(record) for record in records])
