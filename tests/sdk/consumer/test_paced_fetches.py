"""A consumer with a fetch interval: it asks in a rhythm while records come, and sleeps when they cease."""

from collections.abc import Callable, Mapping

import pytest

from penstock.consumer.fetch_buffer import FetchRequest
from penstock.model import TopicPartition
from penstock.wake_ups.rhythm import wake_up_price
from penstock_core.limits import SDK_EMPTY_FETCHES_MAX, SDK_SAFETY_NET_MS, SDK_WAKE_UP_HOLD_MS
from tests.sdk.consumer.fetch_buffer_fixtures import T0, T1, T2, asked_of
from tests.sdk.consumer.test_waiting import START_MS, Waiter

INTERVAL_MS = 200
SIX = tuple(TopicPartition("t", number) for number in range(6))


class Paced(Waiter):
    """A consumer whose clock goes on while it has nothing to do. `latest_ms` is the longest that a record waited."""

    def __init__(self, *partitions: TopicPartition) -> None:
        super().__init__(*partitions, fetch_interval_ms=INTERVAL_MS)
        self.latest_ms = 0
        self._armed: set[int] = set()

    def run(self, until_ms: int, appends: Mapping[int, TopicPartition] | None = None) -> list[FetchRequest]:
        """What it asks until then. `appends` tells where a record comes at which time; a waiter there is woken."""
        coming = sorted((appends or {}).items())
        first = len(self.asked)
        came_ms: list[int] = []
        while True:
            for request in self.fetch():
                self._armed -= {*asked_of(request)}
                self._armed |= {*asked_of(request)} if "arm" in request.body else set()
            if self.offsets():
                self.latest_ms = max(self.latest_ms, self.now_ms - came_ms[0])
                came_ms.clear()
            next_ms = min(self.buffer.wake_at_ms, coming[0][0] if coming else until_ms)
            if next_ms >= until_ms:
                self.now_ms = until_ms
                return self.asked[first:]
            self.now_ms = max(self.now_ms, next_ms)
            while coming and coming[0][0] <= self.now_ms:
                time_ms, partition = coming.pop(0)
                came_ms.append(time_ms)
                self.service.append(partition)
                if partition.partition in self._armed:
                    self.wake(partition.partition, self.service.end(partition))

    def covered(self) -> "Paced":
        """It has read to the end once, and is subscribed."""
        self.fetch()
        self.cover()
        return self


def every(step_ms: int, count: int, where: Callable[[int], TopicPartition]) -> dict[int, TopicPartition]:
    return {START_MS + step_ms * number: where(number) for number in range(1, count + 1)}


def arming(requests: list[FetchRequest]) -> list[list[int]]:
    return [asked_of(each) for each in requests if "arm" in each.body]


def test_lively_consumer_asks_five_times_a_second_and_never_waits_in_the_service() -> None:
    paced = Paced(*SIX).covered()
    asked = paced.run(START_MS + 15_000, every(50, 300, lambda number: SIX[number % 6]))
    assert len(asked) <= 15_000 / INTERVAL_MS + 1
    assert {each.body["wait_ms"] for each in asked} == {0}
    assert arming(asked) == []
    assert paced.latest_ms <= INTERVAL_MS


def test_consumer_that_is_behind_does_not_pause() -> None:
    paced = Paced(T0)
    for _ in range(5):
        paced.service.append(T0)
    request = paced.send()
    assert request is not None
    paced.take(request, *paced.service.answer(request, batches_max=1))
    assert paced.send() is not None
    assert paced.now_ms == START_MS


def test_records_that_cease_send_it_to_sleep_after_some_fetches() -> None:
    paced = Paced(T0, T1).covered()
    asked = paced.run(START_MS + SDK_SAFETY_NET_MS // 2, every(100, 10, lambda _: T0))
    assert [sorted(each) for each in arming(asked)] == [[0, 1]]
    assert len(asked) <= 1_000 / INTERVAL_MS + wake_up_price(2) + 1
    assert paced.send() is None


def test_sleeper_is_woken_and_reads_on_in_a_rhythm() -> None:
    paced = Paced(T0, T1).covered()
    paced.run(START_MS + 5_000)
    assert paced.send() is None
    appends = {START_MS + 6_000 + 60 * number: T1 for number in range(20)}
    asked = paced.run(START_MS + 7_200, appends)
    assert {tuple(asked_of(each)) for each in asked} == {(1,)}
    assert paced.latest_ms <= INTERVAL_MS
    assert len(asked) <= 8


def test_consumer_of_rare_records_sleeps_at_once() -> None:
    paced = Paced(T0).covered()
    asked = paced.run(START_MS + 60_000, every(3_000, 19, lambda _: T0))
    assert len(asked[20:]) <= 2 * 19  # one that finds the record, and one that arms
    assert paced.latest_ms == 0


def test_quiet_partitions_of_a_lively_consumer_are_armed_alone_and_left_out() -> None:
    paced = Paced(T0, T1, T2).covered()
    appends = every(90, 200, lambda _: T0) | {START_MS + 15_000: T2}
    asked = paced.run(START_MS + 18_000, appends)
    assert arming(asked)[0] == [1, 2]
    at = next(number for number, each in enumerate(asked) if "arm" in each.body)
    assert abs(at - SDK_EMPTY_FETCHES_MAX) <= 2
    slept = asked[at + 1 :]
    assert asked_of(slept[0]) == [0]
    woken = next(number for number, each in enumerate(slept) if 2 in asked_of(each))
    assert slept[woken].body["wait_ms"] == 0
    assert all(1 not in asked_of(each) for each in slept)
    assert paced.latest_ms <= INTERVAL_MS


def test_lively_consumer_reads_on_while_its_connection_is_opened() -> None:
    paced = Paced(T0)
    paced.run(START_MS + SDK_WAKE_UP_HOLD_MS - 1, every(70, 20, lambda _: T0))
    assert paced.latest_ms <= INTERVAL_MS


def test_consumer_without_a_connection_uses_long_polls_once_it_may_sleep() -> None:
    paced = Paced(T0)
    asked = paced.run(START_MS + 2 * SDK_WAKE_UP_HOLD_MS, every(100, 40, lambda _: T0))
    assert {each.body["wait_ms"] for each in asked} == {0}
    assert len(asked) <= 2 * SDK_WAKE_UP_HOLD_MS / INTERVAL_MS + 2
    waits = []
    for _ in range(6):
        paced.now_ms += INTERVAL_MS
        request = paced.send()
        assert request is not None
        paced.answer(request)
        waits.append(request.body["wait_ms"])
    assert waits[-1] == 500
    assert set(waits) == {0, 500}


def test_stage_without_wake_ups_is_read_by_long_polls() -> None:
    paced = Paced(T0)
    paced.fetch()
    paced.watch.is_absent, paced.watch.hold_until_ms = True, 0
    paced.service.append(T0)
    request = paced.send()
    assert request is not None
    assert request.body["wait_ms"] == 500


@pytest.mark.parametrize("behind", [1, 2])
def test_partitions_that_are_behind_do_not_keep_those_at_their_end_waiting(behind: int) -> None:
    paced = Paced(T0, T1, T2).covered()
    for partition in (T0, T1)[:behind]:
        for _ in range(400):
            paced.service.append(partition)
    came_ms, sent = 0, 0
    while sent < 200:
        request = paced.send()
        if request is None:
            paced.now_ms = max(paced.now_ms + 1, paced.buffer.wake_at_ms)
            continue
        sent += 1
        paced.now_ms += 50  # an answer takes so long
        paced.take(request, *paced.service.answer(request, batches_max=1))
        found = [record.partition for record in paced.buffer.take(1_000)]
        if sent == 5:
            paced.service.append(T2)
            came_ms = paced.now_ms
        if sent > 5 and 2 in found:
            assert paced.now_ms - came_ms <= INTERVAL_MS + 2 * 50
            return
    raise AssertionError("the record did not come")


def test_filter_that_takes_little_does_not_make_a_consumer_hurry() -> None:
    paced = Paced(T0).covered()
    asked = 0
    while paced.now_ms < START_MS + 10_000:
        request = paced.send()
        if request is None:
            paced.now_ms = max(paced.now_ms + 1, min(paced.buffer.wake_at_ms, START_MS + 10_000))
            continue
        asked += 1
        end = (paced.now_ms - START_MS) // 10  # a record each 10 ms, and the filter takes none
        answer = {"log_start_offset": 0, "high_watermark": end, "next_offset": end, "length": 0}
        paced.take(request, [answer], memoryview(b""))
        paced.wake(0, end + 1)
    assert asked <= 10_000 / INTERVAL_MS + 3
