"""Records without a key avoid partitions whose deliveries take long; records with a key stay where they belong."""

import heapq
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from penstock.producer.batching.accumulator import Accumulator, Entry
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.producer.key_hashing import SLOWNESS_MAX, StickyPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.producer.batching.accumulator_fixtures import SETTINGS

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
