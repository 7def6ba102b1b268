"""Consume, transform, produce: each record takes effect once, even if any step in between fails."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pytest

from penstock import Consumer, FencedError, InvalidError, Producer, TopicPartition, Transaction, Transformer
from penstock.http.http_message import Response
from penstock.http.transport import Transport
from penstock.model import ConsumerRecord
from penstock.testing import MemoryPenstock
from tests.sdk.http.faulty_transport import FaultyTransport, lost_answer, lost_request

TRANSACT, BEGIN = "/v1/transactions", "/v1/producers"
MANY = 10_000
RECORDS = 30


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("payments", partitions=2)
        service.create_topic("ledger")
        with service.producer() as producer:
            for number in range(RECORDS):
                producer.send("payments", b"%d" % number, partition=number % 2)
        yield service


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    return FaultyTransport(service.transport)


def book(record: ConsumerRecord, transaction: Transaction) -> None:
    transaction.send("ledger", record.value)


def _consumer(faulty: FaultyTransport) -> Consumer:
    return Consumer(
        "payments", group_id="ledger", delivery="exactly_once", max_poll_records=4, transport=faulty, fetch_wait_ms=10
    )


def _producer(faulty: FaultyTransport) -> Producer:
    return Producer(transactional_id="ledger-1", transport=faulty, retry_backoff_ms=1, max_block_ms=1)


def _booked(service: MemoryPenstock) -> list[int]:
    return sorted(int(record.value or b"") for record in service.records("ledger"))


def _run(transformer: Transformer, service: MemoryPenstock) -> None:
    transformer.run(lambda: len(_booked(service)) >= RECORDS, timeout_ms=50)


def test_every_record_takes_effect_once(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    with _producer(faulty) as producer, _consumer(faulty) as consumer:
        _run(Transformer(consumer, producer, book), service)
    assert _booked(service) == list(range(RECORDS))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [lost_request, lost_answer])
@pytest.mark.parametrize("epochs_fail", [False, True])
def test_every_record_takes_effect_once_when_commits_fail(
    service: MemoryPenstock, faulty: FaultyTransport, fault: object, epochs_fail: bool
) -> None:
    with _producer(faulty) as producer, _consumer(faulty) as consumer:
        transformer = Transformer(consumer, producer, book)
        while not transformer.run_once(timeout_ms=50):
            pass
        faulty.faults[TRANSACT] = [fault] * MANY  # type: ignore[list-item]  # one of two faults
        faulty.faults[BEGIN] = [lost_request for _ in range(MANY * epochs_fail)]
        transformer.run_once(timeout_ms=50)
        faulty.faults.clear()
        _run(transformer, service)
    assert _booked(service) == list(range(RECORDS))


@pytest.mark.slow
def test_records_come_again_when_their_transformation_raises(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    failures = iter([True, True])

    def fragile(record: ConsumerRecord, transaction: Transaction) -> None:
        book(record, transaction)
        if next(failures, False):
            raise ZeroDivisionError

    with _producer(faulty) as producer, _consumer(faulty) as consumer:
        transformer = Transformer(consumer, producer, fragile)
        failed = 0
        while len(_booked(service)) < RECORDS:
            try:
                transformer.run_once(timeout_ms=50)
            except ZeroDivisionError:
                failed += 1
    assert failed == 2
    assert _booked(service) == list(range(RECORDS))


def test_second_process_with_the_same_id_fences_the_first(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    with _producer(faulty) as old, _producer(faulty) as new, _consumer(faulty) as consumer:
        transformer = Transformer(consumer, old, book)
        while not transformer.run_once(timeout_ms=50):
            pass
        with new.transaction():
            pass
        with pytest.raises(FencedError):
            transformer.run(timeout_ms=50)


def test_every_record_takes_effect_once_when_the_output_gets_other_partitions(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    service.create_topic("turning", 2, {"ordering_on_change": "wait"})

    def turn(record: ConsumerRecord, transaction: Transaction) -> None:
        book(record, transaction)
        transaction.send("turning", record.value, key=record.value)

    with _producer(faulty) as producer, _consumer(faulty) as consumer:
        transformer = Transformer(consumer, producer, turn)
        while not transformer.run_once(timeout_ms=50):
            pass
        service.admin().set_partitions("turning", 3)
        _run(transformer, service)
    assert _booked(service) == list(range(RECORDS))
    assert {record.partition for record in service.records("turning")} > {2, 3, 4}


def test_commits_are_left_to_transactions(service: MemoryPenstock, faulty: FaultyTransport) -> None:
    with _consumer(faulty) as consumer:
        consumer.poll(timeout_ms=100)
        with pytest.raises(InvalidError, match="send_offsets"):
            consumer.commit()
        assert consumer.committed(TopicPartition("payments", 0)) is None
    with pytest.raises(InvalidError, match="group_id"):
        Consumer("payments", delivery="exactly_once", transport=faulty)


class _HeldCommit:
    """Keeps the first commit, as a slow network does: its process is killed meanwhile."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.held: tuple[Any, ...] | None = None

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if path == TRANSACT and self.held is None:
            self.held = method, path, query, headers, body
            raise KeyboardInterrupt
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        pass


def test_record_takes_effect_once_when_a_zombies_commit_comes_after_the_poll_of_assigned_partitions(
    service: MemoryPenstock,
) -> None:
    held = _HeldCommit(service.transport)
    with pytest.raises(KeyboardInterrupt):
        _assigned(held).run_once()
    commit = held.held
    assert commit is not None
    successor = _assigned(service.transport)
    consumer = successor._consumer
    assert isinstance(consumer, Consumer)
    poll = consumer.poll

    def poll_then_the_commit_arrives(**arguments: Any) -> list[ConsumerRecord]:
        records = poll(**arguments)
        service.transport.call(*commit)
        return records

    with patch.object(consumer, "poll", poll_then_the_commit_arrives):
        assert successor.run_once() > 0
    assert Counter(_booked(service)).most_common(1)[0][1] == 1


def _assigned(transport: Transport) -> Transformer:
    """A transformer of partition 0, which it assigns itself: it is no member of the group."""
    consumer = Consumer(group_id="ledger", delivery="exactly_once", transport=transport, fetch_wait_ms=10)
    consumer.assign([TopicPartition("payments", 0)])
    return Transformer(consumer, Producer(transactional_id="ledger-1", transport=transport), book)
