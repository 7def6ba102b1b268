"""examples/lambda_producer.py, called as Lambda calls it."""

import json

import pytest

from examples import lambda_producer
from penstock import UnknownTopicError
from penstock.testing import MemoryPenstock

EVENT = {"id": "6a7e8feb-b491", "source": "shop", "detail": {"customer": "c7", "cents": 250}}


def test_handler_stores_the_event_before_it_answers(penstock: MemoryPenstock) -> None:
    penstock.create_topic("orders")

    answer = lambda_producer.handler(EVENT, None, penstock.producer())

    [record] = penstock.records("orders")
    assert answer == {"topic": "orders", "partition": record.partition, "offset": record.offset}
    assert json.loads(record.value or b"") == EVENT["detail"]
    assert record.key == b"c7"
    assert list(record.headers) == [("event-id", b"6a7e8feb-b491")]


def test_handler_shares_one_producer_among_its_calls(penstock: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> None:
    penstock.create_topic("orders", partitions=1)
    producer = penstock.producer(linger_ms=0)
    monkeypatch.setattr(lambda_producer, "Producer", lambda **settings: producer)
    lambda_producer.shared_producer.cache_clear()

    answers = [lambda_producer.handler(EVENT, None) for _ in range(3)]

    assert [answer["offset"] for answer in answers] == [0, 1, 2]
    assert lambda_producer.shared_producer.cache_info().misses == 1
    lambda_producer.shared_producer.cache_clear()


def test_handler_raises_when_the_record_cannot_be_stored(penstock: MemoryPenstock) -> None:
    with pytest.raises(UnknownTopicError):
        lambda_producer.handler(EVENT, None, penstock.producer())
