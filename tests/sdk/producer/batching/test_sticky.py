"""Records without a key: they spread evenly, and still travel in few, full batches."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from penstock.producer.batching.accumulator import Accumulator
from penstock.producer.batching.producer_batch import TopicQueues
from penstock.producer.batching.sticky import STICKY_BYTES_MIN, StickyPartition
from tests.sdk.producer.batching.accumulator_fixtures import SETTINGS

KIB = 1_024
BATCH_BYTES = 256 * KIB
BIG = replace(SETTINGS, batch_bytes=BATCH_BYTES, request_bytes=4 * KIB * KIB, buffer_bytes=64 * KIB * KIB)
IDLE = [False] * 6


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
