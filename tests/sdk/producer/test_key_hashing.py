"""Records without a key: they spread evenly, and still travel in few, full batches. A partition that was throttled
rests between requests, and its next request takes along what has come.

A program's own partitioner: when it is asked, what it may give, and what happens when its partition is closed.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from penstock import InvalidError, Producer
from penstock.producer.batching.accumulator import Accumulator
from penstock.producer.batching.pacing import Pacing, pacing_within
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.producer.key_hashing import STICKY_BYTES_MIN, Partitioner, StickyPartition
from penstock.producer.settings import ProducerSettings
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.index import partition_closed
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.record_batch import walk
from tests.sdk.client_kinds import ClientKind
from tests.sdk.producer.batching.accumulator_fixtures import (
    MAYBE,
    SETTINGS,
    UNAVAILABLE,
    append,
    counting,
    new_topic,
    values_of,
)

KIB = 1_024
BATCH_BYTES = 256 * KIB
BIG = replace(SETTINGS, batch_bytes=BATCH_BYTES, request_bytes=4 * KIB * KIB, buffer_bytes=64 * KIB * KIB)
IDLE = [False] * 6
PACING = Pacing(first_ms=20, most_ms=150, parts=4)
THROTTLED = PenstockError(ErrorCode.THROTTLED, "too many appends")
PACED = replace(SETTINGS, pacing=PACING, linger_ms=0)


def _topic(partitions: int) -> TopicQueues:
    topic = TopicQueues("t")
    topic.update(partitions, BATCH_BYTES, KIB * KIB)
    return topic


@pytest.mark.parametrize("seed", range(5))
def test_burst_of_small_records_gives_no_partition_twice_what_another_gets(seed: int) -> None:
    accumulator, topic = Accumulator(BIG, Random(seed).randrange), _topic(6)
    counts: Counter[int] = Counter()
    for number in range(100_000):  # as `seq 1 100000 | penstock produce`
        batch = accumulator.append(topic, None, None, b"%d" % number, (), 0, 0)
        assert batch is not None
        counts[batch.partition] += 1
    assert len(counts) == 6
    assert max(counts.values()) < 2 * min(counts.values())


def test_long_stream_goes_in_full_batches() -> None:
    sticky = StickyPartition()
    sticky.move(IDLE, BATCH_BYTES, lambda _: 0)
    moves = 0
    for _ in range(100 * 6 * 16):  # 100 batches to each of six partitions
        sticky.left_bytes -= 16 * KIB
        if sticky.left_bytes <= 0:
            sticky.move(IDLE, BATCH_BYTES, lambda _: 0)
            moves += 1
    assert moves < 1.1 * 600


def test_share_grows_from_a_few_records_to_a_batch() -> None:
    sticky = StickyPartition()
    shares = []
    for _ in range(60):
        sticky.move(IDLE, BATCH_BYTES, lambda _: 0)
        share = 0
        while sticky.left_bytes > 0:
            sticky.left_bytes -= KIB
            share += KIB
        shares.append(share)
    assert shares[:6] == [STICKY_BYTES_MIN] * 6
    assert shares == sorted(shares)
    assert shares[-1] == BATCH_BYTES


def test_partition_that_was_busy_for_long_catches_up_by_one_batch_at_most() -> None:
    sticky = StickyPartition()
    for _ in range(100):
        sticky.move([True, False], BATCH_BYTES, lambda _: 0)
        sticky.left_bytes -= BATCH_BYTES
    taken = []
    for _ in range(6):
        taken.append(sticky.move([False, False], BATCH_BYTES, lambda _: 0))
        sticky.left_bytes -= BATCH_BYTES
    assert taken == [0, 0, 1, 0, 1, 0]


def test_busy_partitions_are_chosen_when_all_are_busy() -> None:
    sticky = StickyPartition()
    assert sticky.move([True, True, True], BATCH_BYTES, lambda _: 2) == 2


def test_topic_of_fewer_partitions_takes_records_in_those_that_it_has() -> None:
    accumulator, topic = Accumulator(BIG, lambda _: 5), _topic(6)
    first = accumulator.append(topic, None, None, b"v", (), 0, 0)
    topic.update(2, BATCH_BYTES, KIB * KIB)  # it was made anew
    second = accumulator.append(topic, None, None, b"v", (), 0, 0)
    assert first is not None
    assert second is not None
    assert (first.partition, second.partition) == (5, 1)


def test_rest_doubles_with_each_refusal_and_shrinks_with_each_delivery() -> None:
    rests = [0]
    for _ in range(5):
        rests.append(PACING.longer(rests[-1]))
    assert rests == [0, 20, 40, 80, 150, 150]
    for _ in range(20):
        rests.append(PACING.shorter(rests[-1]))
    assert rests[6:9] == [113, 85, 64]
    assert rests[-1] == 0


def test_partition_rests_after_it_was_throttled() -> None:
    accumulator, topic = Accumulator(PACED, counting()), new_topic()
    append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(0), [THROTTLED], 0, 0.0)
    assert accumulator.drain(9) == []
    accumulator.complete(accumulator.drain(10), [0], 10, 0.5)
    append(accumulator, topic, 0, b"b", now_ms=10)
    append(accumulator, topic, 1, b"c", now_ms=10)
    assert [entry.queue.partition for entry in accumulator.drain(24)] == [1], "the other one goes without it"
    assert [entry.queue.partition for entry in accumulator.drain(25)] == [0]


def test_partition_does_not_rest_when_the_service_was_away() -> None:
    accumulator, topic = Accumulator(PACED, counting()), new_topic()
    append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(0), [UNAVAILABLE], 0, 0.0)
    accumulator.complete(accumulator.drain(0), [0], 0, 0.9)
    append(accumulator, topic, 0, b"b")
    assert len(accumulator.drain(0)) == 1


def test_next_request_takes_along_what_came_when_nothing_was_stored() -> None:
    accumulator, topic = Accumulator(replace(SETTINGS, linger_ms=0), counting()), new_topic()
    append(accumulator, topic, 0, b"a")
    [sent] = accumulator.drain(0)
    first = [header.base_sequence for batch in sent.batches for _, header in walk(batch.build())]
    append(accumulator, topic, 0, b"b")
    accumulator.complete([sent], [THROTTLED], 0, 0.0)
    [again] = accumulator.drain(0)
    assert values_of(again) == [b"a", b"b"]
    headers = [header for batch in again.batches for _, header in walk(batch.build())]
    assert (first, [header.base_sequence for header in headers]) == ([0], [0, 1])
    assert {header.producer_id for header in headers} == {1}, "the same producer goes on: a head remembers but a few"


def test_next_request_is_as_it_was_when_an_earlier_try_may_be_stored() -> None:
    accumulator, topic = Accumulator(replace(SETTINGS, linger_ms=0), counting()), new_topic()
    append(accumulator, topic, 0, b"a")
    accumulator.complete(accumulator.drain(0), [MAYBE], 0, 0.0)
    append(accumulator, topic, 0, b"b")
    for _ in range(2):
        [again] = accumulator.drain(0)
        assert values_of(again) == [b"a"]
        accumulator.complete([again], [THROTTLED], 0, 0.0)


@pytest.mark.parametrize(("timeout_ms", "most_ms"), [(120_000, 10_000), (800, 100)])
def test_rest_is_a_part_of_the_time_that_a_record_has(timeout_ms: int, most_ms: int) -> None:
    settings = ProducerSettings(delivery_timeout_ms=timeout_ms)
    assert settings.accumulator().pacing == pacing_within(5_000, timeout_ms)
    assert pacing_within(5_000, timeout_ms).most_ms == most_ms


DEADLINE_S = 30.0
CLOSED = partition_closed(PartitionKey(TopicId("t"), Partition(2)), 2)


def by_length(topic: str, key: bytes | None, partitions: int) -> int | None:
    """Keys by their length; no choice for records without one."""
    return None if key is None else len(key) % partitions


def test_partitioner_chooses_where_send_names_no_partition(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    asked: list[tuple[str, bytes | None, int]] = []

    def choose(topic: str, key: bytes | None, partitions: int) -> int:
        asked.append((topic, key, partitions))
        return 3

    with clients.producer(partitioner=choose) as producer:
        sent = [
            producer.send("orders", b"1", key="a"),
            producer.send("orders", b"2", key=bytearray(b"b")),
            producer.send("orders", b"3"),
            producer.send("orders", b"4", key=b"a", partition=1),
        ]
        assert [each.result(DEADLINE_S).partition for each in sent] == [3, 3, 3, 1]
    assert asked == [("orders", b"a", 4), ("orders", b"b", 4), ("orders", None, 4)]


def test_producer_chooses_when_the_partitioner_gives_none(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    with clients.producer(partitioner=lambda *_: None) as producer:
        sent = producer.send("orders", b"1", key=b"whale")
        keyless = producer.send("orders", b"2")
        assert sent.result(DEADLINE_S).partition == partition_for_key(b"whale", 4)
        assert keyless.result(DEADLINE_S).partition in range(4)


@pytest.mark.parametrize("wrong", [4, -1, 1.0, True, "1"])
def test_send_fails_and_names_the_value_when_the_partitioner_gives_no_partition(
    clients: ClientKind, service: MemoryPenstock, wrong: object
) -> None:
    service.create_topic("orders", 4)
    told = f"partitioner gives {wrong!r} for the key b'k' of topic 'orders': .* 0 to 3"
    with clients.producer(partitioner=lambda *_: wrong) as producer, pytest.raises(InvalidError, match=told):
        producer.send("orders", b"1", key=b"k")
    assert service.records("orders") == []


def test_error_of_the_partitioner_is_that_of_send(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    with clients.producer(partitioner=lambda *_: 1 // 0) as producer, pytest.raises(ZeroDivisionError):
        producer.send("orders", b"1", key=b"k")
    assert service.records("orders") == []


def test_partitioner_counts_from_the_first_partition_that_takes_records(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("orders", 2, {"ordering_on_change": "wait"})
    service.admin().set_partitions("orders", 3)
    with clients.producer(partitioner=lambda topic, key, partitions: partitions - 1) as producer:
        assert producer.send("orders", b"1", key=b"k").result(DEADLINE_S).partition == 4


def test_partitioner_chooses_for_delayed_records_and_in_transactions(service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)
    with service.producer(transactional_id="shop", partitioner=lambda *_: 2) as producer:
        with producer.transaction() as transaction:
            sent = [transaction.send("orders", b"1"), transaction.send("orders", b"2", key=b"k")]
        assert [each.result(DEADLINE_S).partition for each in sent] == [2, 2]
        assert producer.send("orders", b"3", delay_ms=3_600_000).result(DEADLINE_S).partition == 2


def test_partitioner_chooses_in_transactions_of_asyncio(service: MemoryPenstock) -> None:
    service.create_topic("orders", 4)

    async def sent() -> int:
        async with service.async_producer(transactional_id="shop", partitioner=lambda *_: 2) as producer:
            async with producer.transaction() as transaction:
                future = await transaction.send("orders", b"1", key=b"k")
            return (await future).partition

    assert asyncio.run(sent()) == 2


def test_keyless_record_for_a_compacted_topic_is_refused_with_a_partitioner_too(service: MemoryPenstock) -> None:
    service.create_topic("table", 2, {"cleanup_policy": "compact"})
    with service.producer(partitioner=lambda *_: 0) as producer, pytest.raises(InvalidError, match="compacted"):
        producer.send("table", b"1")


@pytest.mark.parametrize("wrong", [3, "by key", {b"k": 1}])
def test_partitioner_is_refused_when_it_is_no_function(wrong: object) -> None:
    with pytest.raises(InvalidError, match="partitioner="):
        Producer(partitioner=wrong, transport=MemoryPenstock().transport)  # type: ignore[arg-type]  # the point


def test_partitioner_is_refused_together_with_salted_keys() -> None:
    with pytest.raises(InvalidError, match="partitioner and salted_keys"):
        ProducerSettings(partitioner=by_length, salted_keys={b"k": 2})


def moved(partitioner: Partitioner) -> dict[bytes | None, int]:
    """Where the records of partition 2 go once it is closed, and the topic has two partitions."""
    accumulator = Accumulator(ProducerSettings(partitioner=partitioner, linger_ms=0).accumulator(), lambda _: 0)
    topic = new_topic()
    for key in (b"k", b"ke", b"key"):
        accumulator.append(topic, 2, key, key, (), 5, 0)
    accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0)
    return {value: entry.queue.partition for entry in accumulator.drain(30) for value in values_of(entry)}


def test_records_of_a_closed_partition_go_where_the_partitioner_says() -> None:
    assert moved(by_length) == {b"k": 1, b"ke": 0, b"key": 1}


@pytest.mark.parametrize("broken", [lambda *_: 1 // 0, lambda *_: 2])
def test_records_of_a_closed_partition_go_by_their_keys_when_the_partitioner_fails(
    broken: Partitioner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        assert moved(broken) == {key: partition_for_key(key, 2) for key in (b"k", b"ke", b"key")}
    assert "the partitioner has failed for a record whose partition was closed" in caplog.text
