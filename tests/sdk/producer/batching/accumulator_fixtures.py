"""An accumulator with small bounds, and the errors that its requests may meet."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from penstock.errors import UnavailableError, UnknownTopicError
from penstock.producer.batching.accumulator import PRODUCER_IDS, Accumulator, Entry
from penstock.producer.batching.pacing import AccumulatorSettings
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues
from penstock.retry import RetryPolicy
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.codec import decode
from penstock_core.records.record_batch import Compression

SETTINGS = AccumulatorSettings(
    linger_ms=10,
    batch_bytes=400,
    request_bytes=4_000,
    buffer_bytes=20_000,
    delivery_timeout_ms=1_000,
    compression=Compression.NONE,
    retry=RetryPolicy(backoff_ms=100, backoff_max_ms=200),
)
UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "down")
MAYBE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "lost", maybe_applied=True)
OUT_OF_ORDER = PenstockError(ErrorCode.OUT_OF_ORDER_SEQUENCE, "unknown producer")
UNKNOWN = UnknownTopicError(ErrorCode.UNKNOWN_TOPIC, "gone")


def new_topic(partitions: int = 3, batch_bytes_max: int = 1_000, name: str = "t") -> TopicQueues:
    topic = TopicQueues(name)
    topic.update(partitions, SETTINGS.batch_bytes, batch_bytes_max)
    return topic


def new_accumulator(**changes: object) -> Accumulator:
    return Accumulator(replace(SETTINGS, **changes), choose=lambda count: 0)  # type: ignore[arg-type]  # kwargs of many types


def append(
    accumulator: Accumulator, topic: TopicQueues, partition: int | None, value: bytes, now_ms: int = 0
) -> ProducerBatch:
    batch = accumulator.append(topic, partition, None, value, (), 0, now_ms)
    assert batch is not None
    return batch


def values_of(entry: Entry) -> list[bytes | None]:
    return [record.value for batch in entry.batches for record in decode(batch.build())]


def counting() -> Callable[[int], int]:
    """A `choose` without chance: producer ids 1, 2, 3 …, and the first partition."""
    ids = count(1)
    return lambda choices: next(ids) if choices == PRODUCER_IDS else 0
