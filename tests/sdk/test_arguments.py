"""Wrong arguments are refused by a clear error, before anything is sent, that names the value and what to use."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock import InvalidError, TopicPartition
from penstock.testing import MemoryPenstock

SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"max_poll_records": 0}, "max_poll_records=0: use a number from 1"),
    ({"max_poll_records": "x"}, "max_poll_records='x': use a number from 1"),
    ({"max_in_flight": True}, "max_in_flight=True: use a number from 1"),
    ({"auto_commit_interval_ms": -1}, "auto_commit_interval_ms=-1: use a number from 0"),
    ({"metadata_max_age_ms": -1}, "metadata_max_age_ms=-1: use a number from 0"),
    ({"consumer_timeout_ms": -1}, "consumer_timeout_ms=-1: use a number from 0"),
    ({"retry_backoff_ms": 0}, "retry_backoff_ms=0: use a number from 1"),
    ({"retry_backoff_max_ms": 50}, "retry_backoff_max_ms=50: use a number from 100"),
    ({"client_id": 5}, "client_id=5: give a string"),
    ({"on_assigned": 5}, "on_assigned=5: give a function"),
    ({"on_revoked": "x"}, "on_revoked='x': give a function"),
    ({"group_id": "a b"}, "'a b'"),
    ({"group_id": ""}, "''"),
    ({"group_id": 7}, "7"),
]
CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda consumer: consumer.poll(0), "max_records=0: use a number from 1"),
    (lambda consumer: consumer.poll("x"), "max_records='x'"),
    (lambda consumer: consumer.poll(timeout_ms=-1), "timeout_ms=-1: use a number from 0"),
    (lambda consumer: consumer.poll(timeout_ms="x"), "timeout_ms='x'"),
    (lambda consumer: consumer.seek(TopicPartition("orders", 0), -1), "offset=-1: use a number from 0"),
    (lambda consumer: consumer.seek(TopicPartition("orders", 0), "x"), "offset='x'"),
]


@pytest.mark.parametrize(("settings", "says"), SETTINGS, ids=lambda each: str(each)[:40])
def test_settings_of_a_consumer(service: MemoryPenstock, settings: dict[str, Any], says: str) -> None:
    for make in (service.consumer, service.async_consumer):
        with pytest.raises(InvalidError) as caught:
            make("orders", **{"group_id": "g", **settings})
        assert says in str(caught.value)


@pytest.mark.parametrize("topics", [(["orders"],), (5,)])
def test_topics_of_a_consumer(service: MemoryPenstock, topics: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidError, match="a string of its own"):
        service.consumer(*topics)


@pytest.mark.parametrize(("call", "says"), CALLS, ids=[says[:30] for _, says in CALLS])
def test_calls_of_a_consumer(service: MemoryPenstock, call: Callable[[Any], object], says: str) -> None:
    service.create_topic("orders")
    consumer = service.consumer()
    consumer.assign([TopicPartition("orders", 0)])
    with pytest.raises(InvalidError) as caught:
        call(consumer)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"linger_ms": -1}, "linger_ms=-1: use a number from 0"),
        ({"linger_ms": "5"}, "linger_ms='5'"),
        ({"max_in_flight": 0}, "max_in_flight=0: use a number from 1"),
        ({"retry_backoff_ms": -1}, "retry_backoff_ms=-1: use a number from 1"),
        ({"transactional_id": "a b"}, "'a b'"),
        ({"transactional_id": ""}, "''"),
        ({"acks": 1}, "acks=1: use one of none, leader"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_settings_of_a_producer(service: MemoryPenstock, settings: dict[str, Any], says: str) -> None:
    for make in (service.producer, service.async_producer):
        with pytest.raises(InvalidError) as caught:
            make(**settings)
        assert says in str(caught.value)
