"""Transactions as users of the SDK see them, over a service in memory and a network that fails."""

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import (
    ConflictError,
    FencedError,
    InvalidError,
    Producer,
    TopicPartition,
    TransactionAbortedError,
    UnavailableError,
)
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import TRANSACTION_PARTS_MAX
from penstock_core.records.codec import BatchBuilder
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_answer, lost_request
from tests.support.deadlines import DEADLINE_S

TRANSACT = "/v1/transactions"
BEGIN = "/v1/producers"
MANY = 10_000  # more than the tries that there is time for


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=2)
        service.create_topic("ledger")
        yield service


@pytest.fixture
def faulty(service: MemoryPenstock) -> FaultyTransport:
    return FaultyTransport(service.transport)


@pytest.fixture
def producer(faulty: FaultyTransport) -> Iterator[Producer]:
    with _producer(faulty) as producer:
        yield producer


def _producer(faulty: FaultyTransport, **settings: Any) -> Producer:
    return Producer(transport=faulty, transactional_id="ledger-1", retry_backoff_ms=1, **settings)


def _values(service: MemoryPenstock, topic: str) -> list[bytes | None]:
    return [record.value for record in service.records(topic)]


def _committed(service: MemoryPenstock, group: str) -> dict[TopicPartition, int]:
    answer = json.loads(service.transport.call("GET", f"/v1/groups/{group}/offsets", {}, {}, b"").body)
    return {TopicPartition(each["topic"], each["partition"]): each["offset"] for each in answer["offsets"]}


def test_transaction_is_visible_at_its_end_with_its_offsets(service: MemoryPenstock, producer: Producer) -> None:
    source = TopicPartition("orders", 0)
    with producer.transaction() as transaction:
        sent = [transaction.send("ledger", b"%d" % number) for number in range(3)]
        other = transaction.send("orders", b"o", partition=1, key=b"k", headers=[("h", b"v")])
        transaction.send_offsets({source: 5}, "readers")
        transaction.send_offsets({source: 7}, "readers")
        assert not service.records("ledger")
        assert not sent[0].done()
    assert [each.result(DEADLINE_S).offset for each in sent] == [0, 1, 2]
    assert other.result(DEADLINE_S).partition == 1
    assert _values(service, "ledger") == [b"0", b"1", b"2"]
    assert _committed(service, "readers") == {source: 7}


def test_transaction_leaves_nothing_when_its_block_raises(service: MemoryPenstock, producer: Producer) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:  # noqa: PT012 - a block is the point
        sent = transaction.send("ledger", b"never")
        _ = 1 // 0
    with pytest.raises(TransactionAbortedError) as caught:
        sent.result(DEADLINE_S)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not caught.value.maybe_applied
    with producer.transaction() as transaction:
        transaction.send("ledger", b"next")
    assert _values(service, "ledger") == [b"next"]


def test_next_transaction_uses_the_new_partitions_when_one_was_refused(
    service: MemoryPenstock, producer: Producer
) -> None:
    service.create_topic("turning", 2, {"ordering_on_change": "wait"})
    with producer.transaction() as transaction:
        transaction.send("turning", b"first")
    service.admin().set_partitions("turning", 1)
    with pytest.raises(ConflictError) as caught, producer.transaction() as transaction:
        transaction.send("turning", b"refused")
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.PARTITION_CLOSED, False)
    with producer.transaction() as transaction:
        sent = transaction.send("turning", b"again")
    assert sent.result(DEADLINE_S).partition == 2
    assert _values(service, "turning") == [b"first", b"again"]


@pytest.mark.parametrize("fault", [lost_request, lost_answer, answer(503, b"{}")])
def test_commit_is_repeated_and_stands_once(
    service: MemoryPenstock, faulty: FaultyTransport, producer: Producer, fault: Any
) -> None:
    faulty.faults[TRANSACT] = [fault, fault]
    with producer.transaction() as transaction:
        sent = transaction.send("ledger", b"once")
    assert sent.result(DEADLINE_S).offset == 0
    assert _values(service, "ledger") == [b"once"]
    assert faulty.count(TRANSACT) == 3


def test_commit_that_is_never_answered_is_found_out_by_the_next_epoch(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    with _producer(faulty, max_block_ms=1) as producer:
        with producer.transaction() as transaction:  # to know the topic, and an epoch
            transaction.send("ledger", b"0")
        faulty.faults[TRANSACT] = [lost_answer] * MANY
        with producer.transaction() as transaction:
            sent = transaction.send("ledger", b"1")
        assert sent.result(DEADLINE_S).offset == -1, "it was committed; where, nobody has said"
        faulty.faults[TRANSACT] = [lost_request] * MANY
        with pytest.raises(UnavailableError) as caught, producer.transaction() as transaction:
            sent = transaction.send("ledger", b"never")
        faulty.faults.clear()
        assert not caught.value.maybe_applied
        with pytest.raises(TransactionAbortedError) as aborted:
            sent.result(DEADLINE_S)
        assert not aborted.value.maybe_applied
        with producer.transaction() as transaction:
            transaction.send("ledger", b"2")
    assert _values(service, "ledger") == [b"0", b"1", b"2"]


def test_commit_says_maybe_applied_when_its_outcome_stays_unknown(
    service: MemoryPenstock, faulty: FaultyTransport
) -> None:
    with _producer(faulty, max_block_ms=1) as producer:
        with producer.transaction() as transaction:
            transaction.send("ledger", b"0")
        faulty.faults[TRANSACT] = [lost_answer] * MANY
        faulty.faults[BEGIN] = [lost_request] * MANY
        with pytest.raises(UnavailableError) as caught, producer.transaction() as transaction:
            sent = transaction.send("ledger", b"1")
        faulty.faults.clear()
        assert caught.value.maybe_applied
        assert getattr(sent.exception(DEADLINE_S), "maybe_applied", False)
        with producer.transaction() as transaction:
            transaction.send("ledger", b"2")
    assert _values(service, "ledger") == [b"0", b"1", b"2"]


def test_newer_instance_fences_the_older_for_good(
    service: MemoryPenstock, faulty: FaultyTransport, producer: Producer
) -> None:
    with producer.transaction() as transaction:
        transaction.send("ledger", b"old")
    with _producer(faulty) as newer:
        with newer.transaction() as transaction:
            transaction.send("ledger", b"new")
        for _ in range(2):
            with pytest.raises(FencedError), producer.transaction() as transaction:
                transaction.send("ledger", b"zombie")
        with newer.transaction() as transaction:
            transaction.send("ledger", b"still")
    assert _values(service, "ledger") == [b"old", b"new", b"still"]


def test_large_transaction_is_staged_and_visible_at_once(
    service: MemoryPenstock, faulty: FaultyTransport, producer: Producer
) -> None:
    values = [bytes([number]) * 200_000 for number in range(60)]
    with producer.transaction() as transaction:
        sent = [transaction.send("ledger", value) for value in values]
        assert faulty.count(TRANSACT) >= 2
        assert not service.records("ledger")
    assert _values(service, "ledger") == values
    assert [each.result(DEADLINE_S).offset for each in sent] == list(range(60))


@pytest.mark.slow
def test_staged_batches_give_back_their_memory(faulty: FaultyTransport) -> None:
    with (
        _producer(faulty, batch_bytes=1_000, max_request_bytes=4_000) as producer,
        producer.transaction() as transaction,
    ):
        before = _builders()
        sent = [transaction.send("ledger", b"x" * 500) for _ in range(100)]
        assert _builders() - before < 10
    assert [each.result().offset for each in sent] == list(range(100))


def _builders() -> int:
    gc.collect()
    return sum(type(each) is BatchBuilder for each in gc.get_objects())  # isinstance fails on a dead weak proxy


def test_aborted_stages_never_join_a_later_transaction(service: MemoryPenstock, producer: Producer) -> None:
    for end in ("abort", "commit"):
        try:
            with producer.transaction() as transaction:
                for number in range(40):
                    transaction.send("ledger", f"{end} {number} ".encode() + b"x" * 200_000)
                assert end == "commit"
        except AssertionError:
            continue
    assert [value[:9] for value in _values(service, "ledger") if value] == [
        f"commit {number} ".encode()[:9] for number in range(40)
    ]


def test_transaction_over_too_many_partitions_is_refused_whole(service: MemoryPenstock, producer: Producer) -> None:
    service.create_topic("wide", partitions=TRANSACTION_PARTS_MAX + 1)
    wide = pytest.raises(InvalidError, match="99 together at most")
    with wide, producer.transaction() as transaction:
        for partition in range(TRANSACTION_PARTS_MAX + 1):
            transaction.send("wide", b"x", partition=partition)
    assert not service.records("wide")


def test_misuse_is_named(faulty: FaultyTransport, producer: Producer) -> None:
    with Producer(transport=faulty) as plain, pytest.raises(InvalidError, match="transactional_id"):
        plain.transaction()
    with pytest.raises(InvalidError, match="'quorum' or 'all'"):
        _producer(faulty, acks="leader")
    with producer.transaction() as transaction:
        with pytest.raises(PenstockError, match="open"), producer.transaction():
            pass
        with pytest.raises(InvalidError, match="give bytes"):
            transaction.send("ledger", 5)
    with pytest.raises(InvalidError, match="has ended"):
        transaction.send("ledger", b"late")
    assert not faulty.count(TRANSACT), "an empty transaction costs nothing"


def test_transaction_of_an_asynchronous_producer(service: MemoryPenstock) -> None:
    async def run() -> list[int]:
        async with service.async_producer(transactional_id="ledger-1") as producer:
            async with producer.transaction() as transaction:
                sent = [await transaction.send("ledger", b"%d" % number) for number in range(3)]
                transaction.send_offsets({TopicPartition("orders", 1): 3}, "readers")
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - a block is the point
                async with producer.transaction() as transaction:
                    lost = await transaction.send("ledger", b"never")
                    _ = 1 // 0
            with pytest.raises(TransactionAbortedError):
                await lost
            return [(await each).offset for each in sent]

    assert asyncio.run(run()) == [0, 1, 2]
    assert _values(service, "ledger") == [b"0", b"1", b"2"]
    assert _committed(service, "readers") == {TopicPartition("orders", 1): 3}
