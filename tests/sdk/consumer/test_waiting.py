"""What a fetch buffer asks for while it waits to be woken. The watch is driven by hand, on a stepped clock. A consumer
whose wait the service has cut short, for want of instances.
"""

from typing import Any

import pytest

from penstock.consumer.fetch_buffer import FetchAnswer, FetchBuffer, FetchRequest
from penstock.model import TopicPartition
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.watch import Watch
from penstock_core.limits import OFFSET_MAX, SDK_SAFETY_NET_MS, SDK_WAIT_FIRST_MS, SDK_WAKE_UP_HOLD_MS
from tests.sdk.consumer.fetch_buffer_fixtures import (
    SETTINGS,
    T0,
    T1,
    T2,
    UNAVAILABLE,
    PartitionsService,
    asked_of,
    new_buffer,
    offsets_of,
)

ID = "id-of-t"
START_MS = 1_000_000  # of the clock: nothing was returned lately


class Waiter:
    """A consumer of partitions of one topic, and the service, on one clock."""

    def __init__(self, *partitions: TopicPartition, **changes: Any) -> None:
        self.now_ms = START_MS
        self.service = PartitionsService()
        self.buffer = new_buffer(*partitions, is_woken=True, **changes)
        self.asked: list[FetchRequest] = []
        self.arms = True

    @property
    def watch(self) -> Watch:
        assert self.buffer.waiting.watch is not None
        return self.buffer.waiting.watch

    def fetch(self) -> list[FetchRequest]:
        """Send every request that is due, and take the answers. Returns the requests."""
        sent = []
        while (request := self.send()) is not None:
            self.answer(request)
            sent.append(request)
            assert len(sent) < 100, "the buffer does not come to rest"
        return sent

    def send(self) -> FetchRequest | None:
        request = self.buffer.next_request(self.now_ms)
        if request is not None:
            self.asked.append(request)
        return request

    def answer(self, request: FetchRequest) -> None:
        self.take(request, *self.service.answer(request))

    def take(self, request: FetchRequest, answers: list[dict[str, Any]], body: memoryview) -> None:
        for each in answers:
            each.update(topic_id=ID)
            if request.body.get("arm"):
                each["armed"] = self.arms and not body
                each["topic_partitions"] = 7
        self.buffer.accept(request, answers, body, self.now_ms, 0.0)

    def cover(self) -> None:
        """Let the connection subscribe to what is wanted."""
        for leaf in self.watch.leaves:
            self.watch.subscribed(leaf)
        self.buffer.look_again()

    def wake(self, partition: int, next_offset: int | None, topic_id: str = ID) -> None:
        self.buffer.woken(WakeUp(topic_id, partition, next_offset))

    def fall_asleep(self) -> None:
        self.fetch()
        self.cover()
        self.fetch()
        assert self.send() is None

    def offsets(self) -> list[int]:
        return offsets_of(self.buffer.take(1_000))


def test_consumer_subscribes_first_then_arms_then_sleeps() -> None:
    waiter = Waiter(T0, T1)
    (first,) = waiter.fetch()
    assert ("arm" in first.body, first.body["wait_ms"]) == (False, 0)
    assert waiter.watch.leaves == {(ID, "0"), (ID, "1"), (ID, "all")}
    assert waiter.send() is None  # it waits for the subscription
    waiter.cover()
    (armed,) = waiter.fetch()
    assert (asked_of(armed), armed.body["arm"], armed.body["wait_ms"]) == ([0, 1], True, 0)
    assert waiter.buffer.wake_at_ms == START_MS + SDK_SAFETY_NET_MS


def test_busy_consumer_watches_nothing() -> None:
    waiter = Waiter(T0)
    waiter.service.append(T0)
    request = waiter.send()
    assert request is not None
    waiter.answer(request)
    assert not waiter.watch.is_active


def test_wake_up_fetches_its_partition_only() -> None:
    waiter = Waiter(T0, T1, T2)
    waiter.fall_asleep()
    waiter.service.append(T1)
    waiter.wake(1, 1)
    woken, armed = waiter.fetch()
    assert asked_of(woken) == asked_of(armed) == [1]
    assert waiter.offsets() == [0]


def test_one_wake_up_may_cover_several_partitions() -> None:
    waiter = Waiter(T0, T1, T2)
    waiter.fall_asleep()
    for each in (T0, T2):
        waiter.service.append(each)
        waiter.wake(each.partition, 1)
    assert asked_of(waiter.fetch()[0]) == [0, 2]
    assert waiter.offsets() == [0, 0]


@pytest.mark.parametrize("next_offset", [1, None])
def test_wake_up_that_overtakes_the_answer_is_not_lost(next_offset: int | None) -> None:
    waiter = Waiter(T0)
    waiter.fetch()
    waiter.cover()
    request = waiter.send()
    assert request is not None
    answer = waiter.service.answer(request)  # it armed the partition
    waiter.service.append(T0)
    waiter.wake(0, next_offset)
    waiter.take(request, *answer)
    waiter.fetch()
    assert waiter.offsets() == [0]


@pytest.mark.parametrize(
    ("partition", "next_offset", "topic_id"), [(0, 0, ID), (0, 1, "another"), (9, 5, ID), (0, 5, "")]
)
def test_late_and_foreign_wake_ups_cost_nothing(partition: int, next_offset: int, topic_id: str) -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    waiter.wake(partition, next_offset, topic_id)
    assert waiter.send() is None


def test_doubled_wake_up_costs_nothing() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    waiter.service.append(T0)
    waiter.wake(0, 1)
    waiter.fetch()
    asked = len(waiter.asked)
    waiter.wake(0, 1)
    assert waiter.fetch() == []
    assert len(waiter.asked) == asked


@pytest.mark.parametrize("next_offset", [7, OFFSET_MAX, None])
def test_false_wake_ups_cost_a_bounded_number_of_fetches(next_offset: int | None) -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    asked = len(waiter.asked)
    for _ in range(60_000):  # one each millisecond, for a minute
        waiter.wake(0, next_offset)
        waiter.fetch()
        waiter.now_ms += 1
    assert len(waiter.asked) - asked < 20
    waiter.service.append(T0)
    waiter.now_ms += 10_000
    waiter.fetch()
    assert waiter.offsets() == [0]


def test_lost_wake_up_costs_the_safety_net_and_all_partitions_share_its_fetch() -> None:
    waiter = Waiter(T0, T1, T2)
    waiter.fall_asleep()
    waiter.now_ms += 20_000
    waiter.wake(1, 5)
    waiter.fetch()
    waiter.now_ms = START_MS + SDK_SAFETY_NET_MS - 1
    assert waiter.send() is None
    waiter.now_ms += 1
    waiter.service.append(T2)
    request, *_ = waiter.fetch()
    assert sorted(asked_of(request)) == [0, 1, 2]
    assert request.body["wait_ms"] == 0
    assert waiter.offsets() == [0]


SOON_MS = START_MS + SDK_SAFETY_NET_MS  # the safety net of a partition that falls asleep at the start ends then


def test_look_prolongs_the_sleep_of_partitions_that_are_still_armed_and_fetches_the_others() -> None:
    waiter = Waiter(T0, T1, T2)
    waiter.fall_asleep()
    assert waiter.buffer.to_look_at(SOON_MS - 1) == []
    waiter.now_ms += 50_000
    looks = waiter.buffer.to_look_at(SOON_MS)
    assert [(each.topic_id, each.partition, each.offset) for each in looks] == [(ID, 0, 0), (ID, 1, 0), (ID, 2, 0)]
    waiter.service.append(T1)
    waiter.buffer.looked(looks, frozenset({(ID, 0), (ID, 2)}), waiter.now_ms, 0.0)
    fetched, again = waiter.fetch()
    assert asked_of(fetched) == asked_of(again) == [1]
    assert waiter.offsets() == [0]
    waiter.now_ms = SOON_MS + 49_999
    assert waiter.send() is None
    waiter.now_ms += 1
    (net,) = waiter.fetch()
    assert sorted(asked_of(net)) == [0, 1, 2]


def test_wake_up_that_overtakes_the_answer_of_a_look_is_not_lost() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    looks = waiter.buffer.to_look_at(SOON_MS)
    waiter.service.append(T0)
    waiter.wake(0, 1)
    waiter.buffer.looked(looks, frozenset({(ID, 0)}), waiter.now_ms, 0.0)
    waiter.fetch()
    assert waiter.offsets() == [0]


def test_look_from_before_a_reconnect_counts_for_nothing() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    looks = waiter.buffer.to_look_at(SOON_MS)
    waiter.watch.lost()
    waiter.service.append(T0)  # its wake-up goes nowhere
    waiter.cover()
    waiter.buffer.looked(looks, frozenset({(ID, 0)}), waiter.now_ms, 0.0)
    waiter.fetch()
    assert waiter.offsets() == [0]


def test_look_at_an_older_position_changes_nothing() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    looks = waiter.buffer.to_look_at(SOON_MS)
    waiter.service.append(T0)
    waiter.wake(0, 1)
    waiter.fetch()
    asked = len(waiter.asked)
    waiter.buffer.looked(looks, frozenset(), waiter.now_ms, 0.0)
    assert waiter.fetch() == []
    assert len(waiter.asked) == asked


def test_only_partitions_that_sleep_are_looked_at() -> None:
    waiter = Waiter(T0, T1)
    waiter.fall_asleep()
    waiter.service.append(T0)
    waiter.wake(0, 1)
    assert [each.partition for each in waiter.buffer.to_look_at(SOON_MS)] == [1]
    waiter.watch.lost()
    assert waiter.buffer.to_look_at(SOON_MS) == []


def test_fetch_that_arms_tells_how_many_partitions_the_topic_has() -> None:
    waiter = Waiter(T0)
    waiter.fetch()
    assert waiter.buffer.told_partitions("t", 0) is None
    waiter.cover()
    waiter.now_ms += 1
    waiter.fetch()
    assert waiter.buffer.told_partitions("t", START_MS + 1) == 7
    assert waiter.buffer.told_partitions("t", START_MS + 2) is None


def test_reconnect_fetches_again() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    waiter.watch.hold_until_ms = waiter.now_ms + SDK_WAKE_UP_HOLD_MS
    waiter.watch.lost()
    assert waiter.send() is None
    waiter.service.append(T0)  # its wake-up goes nowhere
    waiter.cover()
    waiter.fetch()
    assert waiter.offsets() == [0]


def test_partition_armed_under_an_earlier_subscription_is_armed_again() -> None:
    waiter = Waiter(T0)
    waiter.fetch()
    waiter.cover()
    request = waiter.send()
    assert request is not None
    waiter.watch.lost()  # while the fetch is under way
    waiter.cover()
    waiter.answer(request)
    (again,) = waiter.fetch()
    assert again.body["arm"]


def test_consumer_without_a_connection_polls_after_the_hold_and_sleeps_again_with_one() -> None:
    waiter = Waiter(T0)
    waiter.fetch()
    assert waiter.send() is None
    assert waiter.buffer.wake_at_ms == START_MS + SDK_WAKE_UP_HOLD_MS
    waiter.now_ms += SDK_WAKE_UP_HOLD_MS
    for _ in range(3):
        request = waiter.send()
        assert request is not None
        assert ("arm" in request.body, request.body["wait_ms"]) == (False, SETTINGS.fetch_wait_ms)
        waiter.answer(request)
    waiter.cover()
    (armed,) = waiter.fetch()
    assert (armed.body["arm"], armed.body["wait_ms"]) == (True, 0)
    assert waiter.send() is None


def test_service_that_arms_nothing_is_not_asked_in_a_tight_loop() -> None:
    waiter = Waiter(T0)
    waiter.arms = False
    waiter.fetch()
    waiter.cover()
    for _ in range(60_000):
        waiter.fetch()
        waiter.now_ms += 1
    assert len(waiter.asked) < 20


def test_failed_fetch_is_tried_again_and_does_not_sleep() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    waiter.service.append(T0)
    waiter.wake(0, 1)
    request = waiter.send()
    assert request is not None
    waiter.buffer.fail(request, UNAVAILABLE, waiter.now_ms, 0.5)
    waiter.now_ms = waiter.buffer.wake_at_ms
    waiter.now_ms += 200
    waiter.fetch()
    assert waiter.offsets() == [0]


def test_stream_of_records_is_polled_for_a_moment_and_then_armed() -> None:
    waiter = Waiter(T0)
    waiter.fall_asleep()
    waits = []
    for number in range(3):
        waiter.service.append(T0)
        waiter.wake(0, number + 1)
        woken = waiter.send()
        assert woken is not None
        waiter.answer(woken)
        assert waiter.offsets() == [number]
        then = waiter.send()
        assert then is not None
        waits.append(then.body["wait_ms"])
        waiter.now_ms += 100
        waiter.answer(then)
    assert waits == [0, SDK_WAIT_FIRST_MS, SDK_WAIT_FIRST_MS]


def test_quiet_partition_is_armed_alone_while_another_is_busy() -> None:
    waiter = Waiter(T0, T1)
    waiter.fall_asleep()
    waiter.watch.lost()
    waiter.cover()
    waiter.service.append(T0)
    waiter.wake(0, 1)
    requests = waiter.fetch()
    assert [asked_of(each) for each in requests][:2] in ([[1], [0]], [[0], [1]])
    assert waiter.send() is None


def test_paused_and_unassigned_partitions_are_watched_no_more() -> None:
    waiter = Waiter(T0, T1, T2)
    waiter.fall_asleep()
    waiter.buffer.pause(T1, True)
    waiter.buffer.assign([T0, T1])
    waiter.send()
    assert waiter.watch.leaves == {(ID, "0"), (ID, "all")}
    waiter.buffer.pause(T1, False)
    waiter.send()
    assert waiter.watch.leaves == {(ID, "0"), (ID, "1"), (ID, "all")}


def test_poll_mode_is_as_it_was() -> None:
    buffer: FetchBuffer = new_buffer(T0)
    request = buffer.next_request(0)
    assert request is not None
    assert request.body["wait_ms"] == SETTINGS.fetch_wait_ms
    assert "arm" not in request.body
    assert buffer.waiting.watch is None


def cut_short(buffer: FetchBuffer, request: FetchRequest, now_ms: int, **told: Any) -> None:
    """Takes the answer of a service that has no waiting time left."""
    answers, body = PartitionsService().answer(request)
    for each in answers:
        each.update(topic_id=ID, **told)
    buffer.complete(request, FetchAnswer(answers, body, 400), now_ms, 0.0)


def test_poll_that_the_service_has_cut_short_comes_again_when_it_says() -> None:
    buffer = new_buffer(T0)
    request = buffer.next_request(0)
    assert request is not None
    cut_short(buffer, request, 0)
    assert buffer.next_request(399) is None
    assert buffer.wake_at_ms == 400
    assert buffer.next_request(400) is not None


def test_partition_that_wake_ups_cover_goes_by_them_when_a_wait_was_cut_short() -> None:
    waiter = Waiter(T0)
    waiter.fetch()
    waiter.cover()
    request = waiter.send()
    assert request is not None
    cut_short(waiter.buffer, request, waiter.now_ms, armed=True, topic_partitions=7)
    assert waiter.send() is None
    waiter.wake(0, 1)
    assert waiter.send() is not None
