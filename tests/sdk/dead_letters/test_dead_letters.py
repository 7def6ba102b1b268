"""DeadLetters: a record moves and its offset is committed in one transaction, with threads and for asyncio."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import AsyncDeadLetters, DeadLetters, InvalidError, PenstockError, TopicPartition
from penstock.dead_letters.headers import Death, check_no_circle, death_of, with_death
from penstock.model import ConsumerRecord, Headers
from penstock.testing import MemoryPenstock
from penstock_core.limits import DEAD_LETTER_BURIALS_MAX
from penstock_core.share.dead_letter import HEADER_PREFIX

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def topics(service: MemoryPenstock) -> None:
    for name in ("orders", "orders.dead"):
        service.create_topic(name)
    with service.producer() as producer:
        for value in (b"good", b"bad", b"fine"):
            producer.send("orders", value, key=b"k", headers=[("trace", b"7")], timestamp_ms=5)


def _move_second(service: MemoryPenstock, topic: str = "orders.dead") -> Any:
    with (
        service.consumer("orders", group_id="billing", enable_auto_commit=False) as consumer,
        service.producer(transactional_id="billing-dead") as producer,
    ):
        next(consumer)
        return DeadLetters(consumer, producer, topic).move(next(consumer), "no such customer", deliveries=2)


def _move_second_async(service: MemoryPenstock) -> Any:
    async def move() -> Any:
        async with (
            service.async_consumer("orders", group_id="billing", enable_auto_commit=False) as consumer,
            service.async_producer(transactional_id="billing-dead") as producer,
        ):
            await anext(consumer)
            record = await anext(consumer)
            return await AsyncDeadLetters(consumer, producer, "orders.dead").move(
                record, "no such customer", deliveries=2
            )

    return asyncio.run(move())


@pytest.mark.parametrize("move", [_move_second, _move_second_async])
def test_record_moves_with_its_offset(service: MemoryPenstock, move: Any) -> None:
    metadata = move(service)
    assert (metadata.topic, metadata.partition, metadata.offset) == ("orders.dead", 0, 0)
    (record,) = service.records("orders.dead")
    assert (record.key, record.value, record.timestamp_ms) == (b"k", b"bad", 5)
    assert record.headers[0] == ("trace", b"7")
    told = death_of(record.headers)
    assert (told.topic, told.partition, told.offset, told.group) == ("orders", 0, 1, "billing")
    assert (told.reason, told.deliveries) == ("no such customer", 2)
    assert told.time_ms > 1_600_000_000_000
    (committed,) = service.admin().group_offsets("billing")
    assert committed.offset == 2


def test_nothing_is_committed_when_the_dead_letter_topic_is_missing(service: MemoryPenstock) -> None:
    with pytest.raises(PenstockError):
        _move_second(service, "nowhere")
    assert service.records("orders.dead") == []
    assert service.admin().group_offsets("billing") == []


def test_consumer_without_a_group_is_refused(service: MemoryPenstock) -> None:
    with service.consumer("orders") as consumer, service.producer(transactional_id="t") as producer:
        dead = DeadLetters(consumer, producer, "orders.dead")
        record = next(consumer)
        with pytest.raises(InvalidError):
            dead.move(record)


@given(
    st.builds(
        Death,
        topic=st.text(),
        partition=st.integers(0, 10**6),
        offset=st.integers(0, 2**62),
        group=st.text(),
        subscription=st.text(),
        reason=st.text(),
        deliveries=st.integers(0, 1_000),
        time_ms=st.integers(0, 2**50),
    )
)
def test_headers_tell_the_death_and_replace_an_older_one(death: Death) -> None:
    headers = with_death((("own", None),), Death(topic="old", reason="old"))
    again = with_death(headers, death)
    assert death_of(again) == death
    assert again[0] == ("own", None)
    untold = 0 if death.subscription else 1  # only a letter of a subscription names one
    burials = 1  # it is a dead letter for the second time
    assert len(again) == 1 + len(Death.__slots__) - untold + burials


def test_headers_that_make_no_sense_count_as_missing() -> None:
    assert death_of([(f"{HEADER_PREFIX}offset", b"-1x"), (f"{HEADER_PREFIX}reason", None)]) == Death()


def test_record_of_the_dead_letter_topic_itself_and_one_in_a_circle_are_refused() -> None:
    record = ConsumerRecord("dead", 0, 7, 0, None, b"v", ())
    with pytest.raises(InvalidError, match="in this topic"):
        check_no_circle(record, "dead")
    check_no_circle(record, "other")
    headers: Headers = ()
    for _ in range(DEAD_LETTER_BURIALS_MAX):
        check_no_circle(record._replace(headers=headers), "other")
        headers = with_death(headers, Death(topic="dead"))
    with pytest.raises(InvalidError, match="circle"):
        check_no_circle(record._replace(headers=headers), "other")
