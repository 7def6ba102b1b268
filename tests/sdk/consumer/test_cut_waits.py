"""A consumer whose wait the service has cut short, for want of instances."""

from typing import Any

from penstock.consumer.fetch_buffer import FetchAnswer, FetchBuffer, FetchRequest
from tests.sdk.consumer.fetch_buffer_fixtures import T0, PartitionsService, new_buffer
from tests.sdk.consumer.test_waiting import ID, Waiter


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
