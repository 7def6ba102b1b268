"""Lanes that go on for a lane that rests, that has more than it takes, or that finds no room."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from penstock_core.ids import LockNonce
from penstock_core.limits import (
    PUSH_LOCK_MS,
    PUSH_ROOM_PAUSE_MS_MAX,
    PUSH_ROOM_PAUSE_MS_MIN,
    PUSH_VISIBILITY_MS,
    SHARE_LOCKS_MAX,
)
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.lane import FREE
from penstock_service.push.parallel.parallel_group import parallel_group
from penstock_service.share.acquire.acquire import AcquireWish, acquire_of
from tests.service.push.parallel.test_deliver_parallel import REFUSED, dead, is_at_rest, parallel, with_dead_letters
from tests.support.push_deliveries import Deliveries, refusing
from tests.support.service import UNAVAILABLE, Intercepted, with_stores

MIB = 2**20


def run_now(deliveries: Deliveries) -> int:
    """Works off all messages that are visible now, and gives how many there were."""
    count = 0
    while deliveries.run_once() is not None:
        count += 1
    return count


def with_resting_lane(**settings: Any) -> Deliveries:
    """Lane 0 rests, because record 0 has failed twice. The first append came to it."""
    deliveries = parallel(backoff_ms_min=60_000, batch_records=1, **settings)
    run_now(deliveries)
    deliveries.answer = refusing([0, 1], REFUSED)
    deliveries.append_many(2)
    run_now(deliveries)
    assert deliveries.batches == [[0], [1]]
    return deliveries


def test_fresh_record_is_delivered_at_once_when_its_lane_rests() -> None:
    deliveries = with_resting_lane(concurrency=2)
    for offset in (2, 3):
        deliveries.append("fresh")
        run_now(deliveries)
        assert deliveries.batches[-1] == [offset]


def test_fresh_record_that_came_during_the_failure_is_delivered_at_once() -> None:
    deliveries = parallel(concurrency=2, backoff_ms_min=60_000, batch_records=10)
    run_now(deliveries)

    def answer(batch: PushBatch) -> Answer:
        if batch.records[0].record.offset < 2:
            deliveries.append("fresh")
            return REFUSED
        return Answered()

    deliveries.answer = answer
    deliveries.append("a")
    run_now(deliveries)
    assert deliveries.batches == [[0], [1], [2]]


def test_fresh_record_waits_for_the_pause_when_all_lanes_rest() -> None:
    deliveries = with_resting_lane(concurrency=2)
    deliveries.answer = lambda _: REFUSED
    deliveries.append("b")
    deliveries.append("c")
    run_now(deliveries)
    deliveries.append("d")
    run_now(deliveries)
    seen, messages = len(deliveries.batches), len(deliveries.queue.messages)
    for _ in range(20):
        deliveries.append("more")
        assert run_now(deliveries) == 0, "no lane could deliver it"
    assert (len(deliveries.batches), len(deliveries.queue.messages)) == (seen, messages)
    deliveries.answer = lambda _: Answered()
    deliveries.run()
    assert is_at_rest(deliveries)


def depths(deliveries: Deliveries) -> Callable[[], int]:
    """Runs all visible messages inside of each first invocation. Gives the most invocations at a time."""
    depth = most = 0

    def answer(_batch: PushBatch) -> Answer:
        nonlocal depth, most
        depth += 1
        most = max(most, depth)
        if depth == 1:
            run_now(deliveries)
        depth -= 1
        return Answered()

    deliveries.answer = answer
    return lambda: most


def test_next_lane_starts_when_records_are_too_large_for_a_full_batch() -> None:
    deliveries = parallel(concurrency=2)
    run_now(deliveries)
    for each in range(4):
        deliveries.append(str(each) + deliveries.instance.entropy.random_bytes(MIB // 2).hex())
    most = depths(deliveries)
    deliveries.run()
    assert most() == 2
    assert sorted(offset for batch in deliveries.batches for offset in batch) == [0, 1, 2, 3]
    assert is_at_rest(deliveries)


def test_next_lane_starts_when_records_of_other_partitions_wait() -> None:
    deliveries = parallel(concurrency=2, partitions=40)
    run_now(deliveries)
    for partition in range(40):
        deliveries.append("a", partition=partition)
    messages = [*iter(deliveries.queue.receive, [])]
    for [message] in messages[1:]:
        deliveries.queue.delete(message.receipt)
    most = depths(deliveries)
    deliveries.deliver(messages[0][0])
    deliveries.run()
    assert most() == 2
    assert sum(map(len, deliveries.batches)) == 40


def test_one_lane_works_while_one_is_enough() -> None:
    deliveries = parallel(concurrency=4)
    run_now(deliveries)

    def answer(batch: PushBatch) -> Answer:
        if batch.records[0].record.offset < 50:
            deliveries.append("next")
        return Answered()

    deliveries.answer = answer
    deliveries.append("first")
    assert run_now(deliveries) == 1
    assert len(deliveries.batches) == 51


def test_lane_that_finds_no_room_rests_longer_and_longer_until_there_is_some() -> None:
    deliveries = parallel()
    deliveries.append("a")
    deliveries.run()
    deliveries.append_many(SHARE_LOCKS_MAX + 1)
    for number in range(SHARE_LOCKS_MAX):
        wish = AcquireWish(nonce=LockNonce(f"worker-{number:02}"), records_max=1, bytes_max=MIB, lock_ms=600_000)
        assert acquire_of(deliveries.instance, parallel_group(deliveries.subscription), wish).partitions
    looks: list[float] = []
    end_ms = deliveries.clock.time_ms + 400_000
    while (visible_ms := deliveries.queue.next_visible_ms) is not None and visible_ms < end_ms:
        deliveries.clock.time_ms = max(deliveries.clock.time_ms, visible_ms)
        looks.append(deliveries.clock.time_ms)
        deliveries.run_once()
    pauses = [after - before for before, after in pairwise(looks)]
    assert pauses[0] == PUSH_ROOM_PAUSE_MS_MIN
    assert pauses[1:4] == [5_000, 10_000, 20_000]
    assert {*pauses[6:]} == {PUSH_ROOM_PAUSE_MS_MAX}
    assert deliveries.batches == [[0]]
    deliveries.append("b")
    assert run_now(deliveries) == 0, "it rests, and the partition has no room for this record either"
    deliveries.run()
    assert sum(map(len, deliveries.batches)) == SHARE_LOCKS_MAX + 3
    assert is_at_rest(deliveries)


def test_lane_that_is_held_or_rests_is_not_started() -> None:
    deliveries = with_resting_lane(concurrency=3)
    deliveries.append("a", "b")
    held = [deliveries.lane(number) for number in range(3)]
    assert all(lane is None or lane.locked_until_ms == FREE for lane in held)
    depth: list[list[int]] = []

    def answer(batch: PushBatch) -> Answer:
        depth.append([each.record.offset for each in batch.records])
        deliveries.append("more")
        return Failed(failure=Failure.AWAY, error="429")

    deliveries.answer = answer
    assert run_now(deliveries) < 10
    assert len(depth) == 2, "lanes 1 and 2, once each"


@pytest.mark.parametrize("concurrency", [1, 2])
def test_subscription_ends_at_rest_whatever_its_lanes_did(concurrency: int) -> None:
    deliveries = with_resting_lane(concurrency=concurrency)
    deliveries.answer = lambda _: Answered()
    deliveries.append_many(20)
    deliveries.run()
    assert {offset for batch in deliveries.batches for offset in batch} == {*range(22)}
    assert is_at_rest(deliveries)


def test_outage_buries_no_record_though_each_lane_had_worked_before_it() -> None:
    deliveries = with_dead_letters(partitions=3, concurrency=3, attempts_max=2, batch_records=1, backoff_ms_max=5_000)
    is_down = False

    def answer(batch: PushBatch) -> Answer:
        return REFUSED if is_down or batch.records[0].record.value == b"poison" else Answered()

    def go_on(pause_ms: int) -> None:
        for step in range(30):
            deliveries.append_many(2, partition=step % 3)
            end_ms = deliveries.clock.time_ms + pause_ms
            deliveries.run(for_ms=pause_ms)
            deliveries.clock.time_ms = end_ms

    deliveries.answer = answer
    run_now(deliveries)
    for partition in range(3):
        deliveries.append("poison", "good", partition=partition)
        run_now(deliveries)
    is_down = True
    go_on(1_000)
    assert {*dead(deliveries)} <= {0}
    is_down = False
    go_on(10_000)
    assert dead(deliveries) == [0, 0, 0]
    assert is_at_rest(deliveries, partitions=3)


@pytest.mark.parametrize("loss", ["the delivery dies", "the note is refused"])
def test_failure_that_is_not_noted_is_no_proof_that_the_target_works(loss: str) -> None:
    """An outage: the record fails in each delivery, and the lane lacks one failure. It takes that for a success."""
    deliveries = with_dead_letters(attempts_max=2, concurrency=1)
    deliveries.run()
    deliveries.answer = lambda _: REFUSED
    deliveries.append("good")
    if loss == "the delivery dies":
        deliveries.die()
        deliveries.clock.time_ms += PUSH_VISIBILITY_MS
    else:
        refused = Intercepted(deliveries.instance.stores.push, put_delivery=_unavailable)
        deliveries.run_once(with_stores(deliveries.instance, push=refused))
    deliveries.run(for_ms=200_000)
    assert dead(deliveries) == []
    deliveries.answer = lambda _: Answered()
    deliveries.run()
    assert deliveries.batches[-1] == [0]
    assert dead(deliveries) == []


def test_lane_that_has_died_and_not_noted_it_counts_for_the_others() -> None:
    deliveries = with_dead_letters(attempts_max=2, concurrency=2)
    deliveries.run()
    deliveries.answer = lambda _: REFUSED
    deliveries.append("good")
    deliveries.die()
    deliveries.clock.time_ms += PUSH_LOCK_MS + 1_000
    [died] = [number for number in range(2) if (lane := deliveries.lane(number)) and lane.holder]
    deliveries.queue.send([deliveries.message(1 - died)])
    deliveries.run_once()
    assert deliveries.batches == [[0], [0]]
    deliveries.run(for_ms=10_000)
    assert dead(deliveries) == []


def _unavailable(_put: Any, *_arguments: Any) -> Any:
    raise UNAVAILABLE
