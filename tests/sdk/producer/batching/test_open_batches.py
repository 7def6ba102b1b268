"""Records that join an open batch, and those that cannot.

Records whose partition was closed: they move if they surely were not stored, and only then.
"""

import pytest

from penstock.errors import UnknownPartitionError
from penstock.model import RecordMetadata
from penstock.producer.batching.accumulator import UNKNOWN_OFFSET, Accumulator
from penstock.producer.batching.moved_batches import MovedBatches
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues
from penstock.producer.delivery import metadata_of, outcome_of
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.index import partition_closed
from penstock_core.records.codec import decode
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.client_kinds import ClientKind
from tests.sdk.producer.batching.accumulator_fixtures import MAYBE, append, new_accumulator, new_topic, values_of


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


DEADLINE_S = 30.0
CLOSED = partition_closed(PartitionKey(TopicId("t"), Partition(2)), 2)
UNEXPLAINED = partition_closed(PartitionKey(TopicId("t"), Partition(2)))


def put(accumulator: Accumulator, topic: TopicQueues, key: bytes | None, value: bytes) -> ProducerBatch:
    partition = 2 if key is None else partition_for_key(key, topic.partitions)
    batch = accumulator.append(topic, partition, key, value, (("h", b"1"),), 5, 0)
    assert batch is not None
    return batch


def keys_of(partition: int, partitions: int, count: int) -> list[bytes]:
    return [key for key in map(b"%d".__mod__, range(1_000)) if partition_for_key(key, partitions) == partition][:count]


def test_records_move_by_their_keys_and_their_old_batch_ends_with_the_last_of_them() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    keys = keys_of(2, 3, 6)
    [batch] = {put(accumulator, topic, key, b"v" + key) for key in keys}
    buffered = accumulator.buffered_bytes
    assert accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0) == []
    assert (batch.outcome, topic.partitions, topic.fresh_until_ms) == (None, 2, 0)
    assert accumulator.buffered_bytes == buffered
    entries = accumulator.drain(30)
    found = {value: entry.queue.partition for entry in entries for value in values_of(entry)}
    assert found == {b"v" + key: partition_for_key(key, 2) for key in keys}
    offsets = {entry.queue.partition: 100 * (entry.queue.partition + 1) for entry in entries}
    finished = accumulator.complete(entries, [offsets[entry.queue.partition] for entry in entries], 30, 0.0)
    assert finished[-1] is batch
    assert accumulator.buffered_bytes == 0
    for index, key in enumerate(keys):
        there = partition_for_key(key, 2)
        rank = [each for each in keys if partition_for_key(each, 2) == there].index(key)
        assert metadata_of(batch, index, 5) == RecordMetadata("t", there, offsets[there] + rank, 5)


def test_records_fail_one_by_one_when_a_batch_that_took_some_of_them_fails() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    keys = keys_of(2, 3, 6)
    [batch] = {put(accumulator, topic, key, b"v") for key in keys}
    accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0)
    entries = accumulator.drain(30)
    refusal = PenstockError(ErrorCode.ACCESS_DENIED, "no")
    results = [refusal if entry.queue.partition == 0 else 7 for entry in entries]
    assert batch in accumulator.complete(entries, results, 30, 0.0)
    outcomes = [outcome_of(batch, index) for index in range(len(keys))]
    assert [each is refusal for each in outcomes] == [partition_for_key(key, 2) == 0 for key in keys]


def test_records_move_again_when_their_next_partition_is_closed_too() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    [key] = [key for key in keys_of(2, 3, 50) if partition_for_key(key, 2) == 1][:1]
    batch = put(accumulator, topic, key, b"v")
    for now_ms, writable in ((10, 2), (30, 1)):
        closed = partition_closed(PartitionKey(TopicId("t"), Partition(2)), writable)
        accumulator.complete(accumulator.drain(now_ms), [closed], now_ms, 0.0)
    [entry] = accumulator.drain(50)
    assert accumulator.complete([entry], [9], 50, 0.0) == [*entry.batches, *_chain(batch, entry.batches[0])]
    assert metadata_of(batch, 0, 5) == RecordMetadata("t", 0, 9, 5)


def _chain(first: ProducerBatch, last: ProducerBatch) -> list[ProducerBatch]:
    """The batches that a record was in before `last`, the newest first."""
    assert first.places is not None
    between = first.places[0][0]
    return [first, between] if between is not last else [first]


@pytest.mark.parametrize("error", [CLOSED, UNEXPLAINED])
def test_records_that_may_be_stored_stay_and_fail_so(error: PenstockError) -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = put(accumulator, topic, b"k", b"v")
    accumulator.complete(accumulator.drain(10), [MAYBE], 10, 0.0)
    assert accumulator.complete(accumulator.drain(500), [error], 500, 0.0) == [batch]
    assert isinstance(batch.outcome, PenstockError)
    assert (batch.outcome.code, batch.outcome.maybe_applied) == (ErrorCode.PARTITION_CLOSED, True)


def test_records_of_a_partition_that_the_application_named_fail() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = append(accumulator, topic, 2, b"v")
    batch.is_pinned = True
    assert accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0) == [batch]
    assert batch.outcome is CLOSED


def test_moved_record_expires_at_the_time_of_its_first_batch() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = put(accumulator, topic, b"k", b"v")
    accumulator.complete(accumulator.drain(10), [CLOSED], 900, 0.0)
    assert batch in accumulator.expire(1_000)
    assert isinstance(outcome_of(batch, 0), PenstockError)
    assert accumulator.buffered_bytes == 0


def test_newer_records_keep_their_own_time_when_older_ones_move_to_their_partition() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    old = put(accumulator, topic, b"k", b"old")
    [entry] = accumulator.drain(10)
    before = [append(accumulator, topic, number, b"before", 500) for number in range(2)]
    accumulator.complete([entry], [CLOSED], 900, 0.0)
    after = [append(accumulator, topic, number, b"after", 900) for number in range(2)]
    assert not {*before, *after} & {*accumulator.expire(old.deadline_ms)}
    assert old in accumulator.expire(1_500), "with those that wait before it"


def test_finish_tells_each_source_once() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    source, one, two = (append(accumulator, topic, number, b"v") for number in range(3))
    moved = MovedBatches()
    moved.note(source, [(one, 0), (two, 0), (one, 1)])
    assert (moved.finish(two), moved.finish(two), moved.finish(one), moved.finish(one)) == ([], [], [source], [])
    assert source.outcome is None
    assert UNKNOWN_OFFSET < 0


def test_producer_goes_on_when_partitions_drain(clients: ClientKind, service: MemoryPenstock) -> None:
    orders = service.create_topic("orders", partitions=3).name
    keys = [b"%d" % number for number in range(30)]
    with clients.producer() as producer:
        for key in keys:
            producer.send(orders, b"before", key=key)
        producer.flush()
        service.admin().set_partitions(orders, 1)
        sent = [producer.send(orders, b"after", key=key) for key in keys]
        found = [each.result(DEADLINE_S) for each in sent]
        assert {each.partition for each in found} == {0}
        assert len({each.offset for each in found}) == len(keys)
        with pytest.raises(UnknownPartitionError, match="writable"):
            producer.send(orders, b"v", partition=2)
