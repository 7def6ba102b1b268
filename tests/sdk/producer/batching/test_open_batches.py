"""Records that join an open batch, and those that cannot."""

import pytest

from penstock.producer.batching.accumulator import Accumulator
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues
from penstock_core.errors import PenstockError
from penstock_core.records.codec import decode
from tests.sdk.producer.batching.accumulator_fixtures import append, new_accumulator, new_topic


def _join(
    accumulator: Accumulator, topic: TopicQueues, partition: int | None, value: bytes, key: bytes | None = None
) -> ProducerBatch | None:
    return accumulator.join(topic, partition, key, value, (), 0)


def test_record_joins_the_open_batch_of_its_partition() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 1, b"a")
    assert _join(accumulator, topic, 1, b"b", key=b"k") is batch
    assert [(record.key, record.value) for record in decode(batch.build())] == [(None, b"a"), (b"k", b"b")]
    assert batch.record_count == 2


def test_record_that_joined_counts_as_one_that_was_appended() -> None:
    joined, appended, topic, other = new_accumulator(), new_accumulator(), new_topic(), new_topic()
    append(joined, topic, None, b"a")
    append(appended, other, None, b"a")
    _join(joined, topic, None, b"bcd")
    append(appended, other, None, b"bcd")
    assert joined.buffered_bytes == appended.buffered_bytes
    assert topic.sticky.left_bytes == other.sticky.left_bytes


@pytest.mark.parametrize("partition", [0, None])
def test_record_does_not_join_when_no_batch_is_open(partition: int | None) -> None:
    accumulator, topic = new_accumulator(), new_topic()
    assert _join(accumulator, topic, partition, b"a") is None
    append(accumulator, topic, partition, b"a")
    accumulator.drain(10)
    assert _join(accumulator, topic, partition, b"b") is None


def test_record_does_not_join_a_batch_that_is_full() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 0, b"x" * 200)
    before = accumulator.buffered_bytes, batch.buffered_bytes
    assert _join(accumulator, topic, 0, b"y" * 200) is None
    assert (accumulator.buffered_bytes, batch.buffered_bytes) == before
    assert batch.record_count == 1


def test_record_does_not_join_when_the_memory_is_full() -> None:
    accumulator, topic = new_accumulator(buffer_bytes=400), new_topic()
    append(accumulator, topic, 0, b"x" * 200)
    assert _join(accumulator, topic, 0, b"y" * 130) is None
    assert _join(accumulator, topic, 0, b"y" * 100) is not None


def test_record_does_not_join_when_its_topic_takes_none_so_large() -> None:
    accumulator, topic = new_accumulator(batch_bytes=100_000), new_topic(batch_bytes_max=1_000)
    topic.batch_bytes = 100_000  # so that the open batch would have room
    append(accumulator, topic, 0, b"a")
    assert _join(accumulator, topic, 0, b"x" * 950) is None


def test_record_without_key_does_not_join_when_its_partition_has_had_its_share() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    append(accumulator, topic, None, b"a")
    topic.sticky.left_bytes = 0
    assert _join(accumulator, topic, None, b"b") is None


def test_join_changes_nothing_when_a_value_has_a_wrong_type() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 0, b"a")
    before = accumulator.buffered_bytes
    with pytest.raises(PenstockError, match="record 1 of the batch"):
        _join(accumulator, topic, 0, ["a", "list"])  # type: ignore[arg-type]  # the wrong type is tested
    assert (accumulator.buffered_bytes, batch.record_count) == (before, 1)
