"""A topic turns to new partitions, and each key keeps its order (docs/protocol/partitions).

Records without a key avoid partitions whose deliveries take long; records with a key stay where they belong.
"""

import heapq
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from penstock.errors import UnknownPartitionError
from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues
from penstock.producer.delays import Timer
from penstock.producer.delivery import outcome_of
from penstock.producer.key_hashing import SLOWNESS_MAX, StickyPartition
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.log.index import partition_closed
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.client_kinds import ClientKind
from tests.sdk.producer.batching.accumulator_fixtures import (
    MAYBE,
    SETTINGS,
    append,
    new_accumulator,
    new_topic,
    values_of,
)

DEADLINE_S = 30.0
CLOSED = partition_closed(PartitionKey(TopicId("t"), Partition(0)), 2, 3)


def put(accumulator: Accumulator, topic: TopicQueues, value: bytes, now_ms: int = 0) -> ProducerBatch:
    partition = topic.first + partition_for_key(b"k", topic.partitions)
    batch = accumulator.append(topic, partition, b"k", value, (), 5, now_ms)
    assert batch is not None
    return batch


def describe(topic: TopicQueues, first: int, partitions: int) -> None:
    topic.update(partitions, SETTINGS.batch_bytes, 1_000, first)


def taken(accumulator: Accumulator, now_ms: int) -> list[tuple[int, bytes | None]]:
    """What the next request has, by partition; it succeeds."""
    entries = accumulator.drain(now_ms)
    accumulator.complete(entries, [0] * len(entries), now_ms, 0.0)
    return [(entry.queue.partition, value) for entry in entries for value in values_of(entry)]


def test_new_records_wait_until_the_request_in_flight_is_answered() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    first = put(accumulator, topic, b"1")
    entries = accumulator.drain(10)
    describe(topic, 3, 2)
    put(accumulator, topic, b"2", 20)
    assert accumulator.drain(500) == []
    accumulator.complete(entries, [CLOSED], 510, 0.0)
    new = 3 + partition_for_key(b"k", 2)
    assert taken(accumulator, 600) == [(new, b"1"), (new, b"2")]
    assert first.outcome is not None
    put(accumulator, topic, b"3", 600)
    assert taken(accumulator, 700) == [(new, b"3")]
    assert accumulator.buffered_bytes == 0


def test_refused_records_move_before_those_behind_them() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    put(accumulator, topic, b"1")
    entries = accumulator.drain(10)
    for number in range(2, 9):
        put(accumulator, topic, b"%d" % number * 100, 11)
    accumulator.complete(entries, [CLOSED], 20, 0.0)
    found = [value for _, value in taken(accumulator, 100) + taken(accumulator, 200)]
    assert found == [b"1", *(b"%d" % number * 100 for number in range(2, 9))]


def test_batch_that_may_be_stored_goes_again_to_its_partition_before_the_topic_turns() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = put(accumulator, topic, b"1")
    old = batch.partition
    accumulator.complete(accumulator.drain(10), [MAYBE], 10, 0.0)
    put(accumulator, topic, b"2", 20)
    describe(topic, 3, 2)
    [entry] = accumulator.drain(500)
    assert (entry.queue.partition, values_of(entry)) == (old, [b"1"])
    accumulator.complete([entry], [7], 510, 0.0)
    assert batch.outcome == 7
    assert taken(accumulator, 600) == [(3 + partition_for_key(b"k", 2), b"2")]


def test_topic_turns_when_a_batch_that_may_be_stored_has_failed() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = put(accumulator, topic, b"1")
    accumulator.complete(accumulator.drain(10), [MAYBE], 10, 0.0)
    accumulator.drain(500)
    put(accumulator, topic, b"2", 900)
    describe(topic, 3, 2)
    accumulator.complete([Entry(queue=topic.queues[batch.partition], batches=(batch,))], [MAYBE], 950, 0.0)
    assert accumulator.expire(1_000) == [batch]
    assert taken(accumulator, 1_100) == [(3 + partition_for_key(b"k", 2), b"2")]


def test_record_whose_partition_the_application_named_fails_and_holds_up_nothing() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    batch = put(accumulator, topic, b"1")
    batch.is_pinned = True
    accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0)
    assert isinstance(batch.outcome, PenstockError)
    assert batch.outcome.code is ErrorCode.PARTITION_CLOSED


def test_records_behind_one_whose_partition_the_application_named_move_without_it() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    pinned = put(accumulator, topic, b"1" * 300)
    pinned.is_pinned = True
    behind = put(accumulator, topic, b"2" * 300)
    assert pinned is not behind
    assert accumulator.complete(accumulator.drain(10), [CLOSED], 10, 0.0) == [pinned]
    assert pinned.outcome is CLOSED
    assert taken(accumulator, 30) == [(3 + partition_for_key(b"k", 2), b"2" * 300)]
    assert (outcome_of(behind, 0), accumulator.buffered_bytes) == (0, 0)


def test_coming_partition_may_be_named_while_the_topic_turns() -> None:
    accumulator, topic = new_accumulator(), new_topic()
    put(accumulator, topic, b"1")
    entries = accumulator.drain(10)
    describe(topic, 3, 2)
    assert [topic.may_take(each) for each in (2, 3, 4, 5)] == [True, True, True, False]
    batch = accumulator.append(topic, 4, b"k", b"2", (), 5, 20)
    assert taken(accumulator, 40) == [(4, b"2")]
    assert batch is not None
    accumulator.complete(entries, [7], 50, 0.0)
    assert (topic.first, topic.coming) == (3, None)


def delayed(accumulator: Accumulator, topic: TopicQueues, partition: int | None, value: bytes) -> ProducerBatch:
    key = None if partition is None else b"k"
    batch = accumulator.append(topic, partition, key, value, (), 5, 0, Timer(9_000, "0" * 32, False))
    assert batch is not None
    return batch


@pytest.mark.parametrize("is_keyed", [True, False])
def test_delayed_records_move_at_once_to_the_partitions_that_the_refusal_tells(is_keyed: bool) -> None:
    accumulator, topic = new_accumulator(), new_topic()
    held = append(accumulator, topic, 2, b"0")
    late = delayed(accumulator, topic, partition_for_key(b"k", 3) if is_keyed else None, b"1")
    entries = accumulator.drain(20)
    refusals = [CLOSED if entry.queue.timer else MAYBE for entry in entries]
    accumulator.complete(entries, refusals, 20, 0.0)
    assert (topic.first, topic.coming) == (0, (3, 2)), "the topic waits for the batch that may be stored"
    [entry] = [each for each in accumulator.drain(40) if each.queue.timer]
    assert entry.queue.partition == (3 + partition_for_key(b"k", 2) if is_keyed else 3)
    assert (entry.batches[0].timer, values_of(entry)) == (Timer(9_000, "0" * 32, False), [b"1"])
    accumulator.complete([entry], [-1], 50, 0.0)
    assert (outcome_of(late, 0), held.outcome) == (-1, None)


def test_idle_topic_turns_at_once() -> None:
    topic = new_topic()
    describe(topic, 3, 2)
    assert (topic.first, topic.partitions, topic.coming) == (3, 2, None)
    assert [topic.takes(each) for each in (2, 3, 4, 5)] == [False, True, True, False]
    describe(topic, 0, 1)
    assert (topic.first, topic.partitions) == (0, 1), "it was made anew"


def test_producer_sends_delayed_records_of_a_changed_topic_again(clients: ClientKind, service: MemoryPenstock) -> None:
    admin = service.admin()
    admin.create_topic("turned", 2, config={"ordering_on_change": "wait"})
    with clients.producer() as producer:
        producer.send("turned", b"first", key=b"k").result(DEADLINE_S)
        admin.set_partitions("turned", 1)
        sent = [producer.send("turned", b"v", key=b"k", delay_ms=60_000, cancellable=each) for each in (False, True)]
        assert [each.result(DEADLINE_S).partition for each in sent] == [2, 2]
    names = [each.scheduled_id for each in admin.list_scheduled("turned")]
    assert sent[1].result().scheduled_id in names


def test_producer_and_group_keep_the_order_of_keys_across_changes(clients: ClientKind, service: MemoryPenstock) -> None:
    service.admin().create_topic("turned", 2, config={"ordering_on_change": "wait"})
    keys = [b"%d" % number for number in range(8)]
    with clients.producer() as producer:
        for partitions in (3, 1, 2):
            sent = [producer.send("turned", b"%d" % turn, key=key) for turn in range(5) for key in keys]
            service.admin().set_partitions("turned", partitions)
            assert all(each.result(DEADLINE_S).offset >= 0 for each in sent)
        found = producer.send("turned", b"last", key=keys[0]).result(DEADLINE_S)
        assert found.partition in (6, 7)
        with pytest.raises(UnknownPartitionError, match="6 to 7 take records"):
            producer.send("turned", b"v", partition=0)


KIB = 1_024
PARTITIONS = 6
SLOW = 2
RECORD = b"v" * KIB
BIG = replace(
    SETTINGS,
    batch_bytes=32 * KIB,
    request_bytes=256 * KIB,
    buffer_bytes=4 * KIB * KIB,
    linger_ms=5,
    delivery_timeout_ms=600_000,
    is_adaptive=True,
)
THROTTLED = PenstockError(ErrorCode.THROTTLED, "hot")


def spread(
    seed: int, *, is_adaptive: bool = True, pace_ms: int = 10, slow_ms: int = 400, is_throttled: bool = False
) -> Counter[int]:
    """The records that each partition gets of 20,000, one each `pace_ms`, from a producer with five requests.

    A request takes 30 ms, and `slow_ms` if it has a batch of the slow partition.
    """
    random = Random(seed)
    accumulator = Accumulator(replace(BIG, is_adaptive=is_adaptive), random.randrange)
    topic = TopicQueues("t")
    topic.update(PARTITIONS, BIG.batch_bytes, KIB * KIB)
    counts: Counter[int] = Counter()
    on_their_way: list[tuple[int, int, list[Entry]]] = []
    for now_ms in range(0, 20_000 * pace_ms, pace_ms):
        batch = accumulator.append(topic, None, None, RECORD, (), 0, now_ms)
        if batch is not None:
            counts[batch.partition] += 1
        while on_their_way and on_their_way[0][0] <= now_ms:
            _, _, entries = heapq.heappop(on_their_way)
            fails = is_throttled and random.random() < 0.7
            results: list[int | PenstockError] = [
                THROTTLED if fails and entry.queue.partition == SLOW else 0 for entry in entries
            ]
            accumulator.complete(entries, results, now_ms, random.random())
        if len(on_their_way) < 5 and (entries := accumulator.drain(now_ms)):
            is_slow = not is_throttled and any(entry.queue.partition == SLOW for entry in entries)
            heapq.heappush(on_their_way, (now_ms + (slow_ms if is_slow else 30), now_ms, entries))
    return counts


def shares(counts: Counter[int]) -> tuple[float, float]:
    """What the slow partition gets of an even share, and what the fullest of the others gets of the emptiest's."""
    others = [counts[each] for each in range(PARTITIONS) if each != SLOW]
    return counts[SLOW] / (sum(others) / len(others)), max(others) / min(others)


@pytest.mark.parametrize("seed", range(2))
def test_slow_partition_gets_less_and_the_others_share_evenly(seed: int) -> None:
    share, unevenness = shares(spread(seed, slow_ms=120))
    assert 0.05 < share < 0.5
    assert unevenness < 1.5
    assert shares(spread(seed, slow_ms=120, is_adaptive=False))[0] > 0.8, "without the option"


def test_partition_that_throttles_gets_less() -> None:
    share, unevenness = shares(spread(1, pace_ms=1, is_throttled=True))
    assert 0.05 < share < 0.5
    assert unevenness < 1.5
    assert shares(spread(1, pace_ms=1, is_throttled=True, is_adaptive=False))[0] > 1.0, "without the option"


def test_equal_partitions_stay_even() -> None:
    share, unevenness = shares(spread(1, slow_ms=30))
    assert 0.8 < share < 1.25
    assert unevenness < 1.25


def test_slowness_is_bounded_and_forgotten() -> None:
    sticky = StickyPartition()
    for partition in range(4):
        sticky.note_latency(partition, 20, 1)
    sticky.note_latency(4, 60_000, 1)
    assert [sticky.slowness(each) for each in (0, 4, 5)] == [1.0, SLOWNESS_MAX, 1.0]
    for _ in range(60):
        sticky.note_latency(4, 20, 1)
    assert sticky.slowness(4) < 1.1


def test_latency_in_a_request_of_many_partitions_weighs_less() -> None:
    alone, together = StickyPartition(), StickyPartition()
    for sticky, partitions in ((alone, 1), (together, 10)):
        for each in range(3):
            sticky.note_latency(each, 20, 1)
        sticky.note_latency(0, 200, partitions)
    assert alone.slowness(0) > together.slowness(0) > 1.0


def test_keyed_records_go_to_the_partition_of_their_key_however_slow_it_is() -> None:
    accumulator = Accumulator(BIG, Random(0).randrange)
    topic = TopicQueues("t")
    topic.update(PARTITIONS, BIG.batch_bytes, KIB * KIB)
    for _ in range(20):
        topic.sticky.note_latency(SLOW, 9_000, 1)
    for number in range(200):
        key = b"%d" % number
        partition = partition_for_key(key, PARTITIONS)
        batch = accumulator.append(topic, partition, key, b"v", (), 0, 0)
        assert batch is not None
        assert batch.partition == partition
