import asyncio
from collections.abc import Iterator

import pytest

from penstock_core.limits import BATCH_BYTES_MAX
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.records.record_batch import BatchesSummary
from penstock_kafka.produce.lanes import LaneKey, Lanes, PendingBatch


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def lanes() -> Lanes:
    return Lanes()


class Maker:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(
        self, partition: int = 0, first: int | None = None, *, producer: int = 7, epoch: int = 0, size: int = 10
    ) -> PendingBatch:
        sequence = (
            None
            if first is None
            else ProducerSequence(
                producer_id=producer, epoch=epoch, first_sequence=first, last_sequence=first + 9, checksum=0
            )
        )
        summary = BatchesSummary(
            record_count=10,
            offset_span=10,
            max_timestamp_ms=0,
            batch_count=1,
            largest_batch_bytes=size,
            sequence=sequence,
        )
        key = LaneKey("t", partition, -1 if first is None else producer)
        return PendingBatch(
            key=key,
            data=b"x" * size,
            summary=summary,
            acks="quorum",
            deadline_ms=0,
            outcome=self._loop.create_future(),
            have_keys=True,
        )


@pytest.fixture
def batch(loop: asyncio.AbstractEventLoop) -> Maker:
    return Maker(loop)


def _sizes(lanes: Lanes) -> list[tuple[LaneKey, int]]:
    return [(run.key, len(run.batches)) for run in lanes.take()]


def test_one_call_takes_what_waits_in_many_lanes(lanes: Lanes, batch: Maker) -> None:
    for each in (batch(0), batch(1), batch(0)):
        lanes.put(each)
    assert _sizes(lanes) == [(LaneKey("t", 0, -1), 2), (LaneKey("t", 1, -1), 1)]


def test_lane_waits_while_its_run_is_in_a_call(lanes: Lanes, batch: Maker) -> None:
    lanes.put(batch(0, 0))
    (run,) = lanes.take()
    lanes.put(batch(0, 10))
    assert lanes.take() == []
    lanes.end(run.key)
    assert _sizes(lanes) == [(run.key, 1)]


def test_run_ends_where_sequences_do_not_follow(lanes: Lanes, batch: Maker) -> None:
    for each in (batch(0, 0), batch(0, 10), batch(0, 30), batch(0, 0, epoch=1)):
        lanes.put(each)
    taken = []
    while runs := lanes.take():
        taken.append(len(runs[0].batches))
        lanes.end(runs[0].key)
    assert taken == [2, 1, 1]


def test_two_producers_of_a_partition_go_in_two_calls(lanes: Lanes, batch: Maker) -> None:
    lanes.put(batch(0, 0, producer=1))
    lanes.put(batch(0, 0, producer=2))
    assert [each.key.producer_id for each in lanes.take()] == [1]
    assert [each.key.producer_id for each in lanes.take()] == [2]


def test_call_holds_no_more_bytes_than_the_service_takes(lanes: Lanes, batch: Maker) -> None:
    half = BATCH_BYTES_MAX // 2
    for partition in range(3):
        lanes.put(batch(partition, size=half))
    assert [len(lanes.take()), len(lanes.take())] == [2, 1]


def test_batch_that_was_put_back_goes_first_and_alone(lanes: Lanes, batch: Maker) -> None:
    for each in (batch(0), batch(0), batch(1)):
        lanes.put(each)
    first, other = lanes.take()
    lanes.put_back(first, is_alone=True)
    lanes.end(other.key)
    lanes.put(batch(1))
    assert _sizes(lanes) == [(first.key, 1)]


def test_offsets_follow_each_other_in_a_run(lanes: Lanes, batch: Maker) -> None:
    lanes.put(batch(0))
    lanes.put(batch(0))
    (run,) = lanes.take()
    run.settle(100)
    assert [each.outcome.result() for each in run.batches] == [100, 110]


def test_ready_bytes_are_those_that_no_call_has_and_whose_lane_waits_for_none(
    lanes: Lanes, loop: asyncio.AbstractEventLoop
) -> None:
    make = Maker(loop)
    lanes.put(make(0, 0, size=100))
    lanes.put(make(1, 0, size=1_000))
    assert lanes.ready_bytes == 1_100
    first, second = lanes.take()
    lanes.put(make(0, 10, size=7))
    assert lanes.ready_bytes == 0
    lanes.end(first.key)
    assert lanes.ready_bytes == 7
    lanes.put_back(second, is_alone=True)
    assert lanes.ready_bytes == 1_007
