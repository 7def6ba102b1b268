"""Kafka's clients pass the jump of a restore, and are told of a position within it (finding U15)."""

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PyPartition

from tests.kafka.running_gateway import RunningGateway
from tests.support.restoring import jump
from tests.support.service import send

BEHIND = 10 + 2**30


@pytest.fixture
def restored(gateway: RunningGateway) -> RunningGateway:
    """orders-0 has 0 to 9, a jump, and one record behind it."""
    instance = gateway.service._instance
    send(instance, "orders", *map(str, range(10)))
    jump(instance)
    send(instance, "orders", "new")
    return gateway


def _consumer(restored: RunningGateway, reset: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": restored.address,
            "group.id": "g",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )


@pytest.mark.parametrize("start", [8, 10])
def test_librdkafka_passes_the_jump(restored: RunningGateway, start: int) -> None:
    consumer = _consumer(restored, "error")
    consumer.assign([TopicPartition("orders", 0, start)])
    found = [each.offset() for each in consumer.consume(10 - start + 1, 20)]
    consumer.close()
    assert found == [*range(start, 10), BEHIND]


def test_kafka_python_passes_the_jump(restored: RunningGateway) -> None:
    consumer = KafkaConsumer(bootstrap_servers=restored.address, consumer_timeout_ms=20_000, auto_offset_reset="none")
    consumer.assign([PyPartition("orders", 0)])
    consumer.seek(PyPartition("orders", 0), 9)
    assert [next(consumer).offset for _ in range(2)] == [9, BEHIND]
    consumer.close()


def test_position_within_the_jump_is_out_of_range(restored: RunningGateway) -> None:
    consumer = _consumer(restored, "error")
    consumer.assign([TopicPartition("orders", 0, 500)])
    [told] = consumer.consume(1, 20)
    consumer.close()
    error = told.error()
    assert error is not None
    assert error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def test_commit_within_the_jump_is_out_of_range(restored: RunningGateway) -> None:
    consumer = _consumer(restored, "error")
    done = consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
    assert done is not None
    assert [each.error for each in done] == [None]
    with pytest.raises(KafkaException) as caught:
        consumer.commit(offsets=[TopicPartition("orders", 0, 500)], asynchronous=False)
    consumer.close()
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
