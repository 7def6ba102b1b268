"""Transactions on the deployed stack: DynamoDB's transactions over two tables, permissions, and fenced producers."""

import threading
from collections import Counter

import pytest

from penstock import Consumer, FencedError, Producer, TopicPartition
from penstock.http.transport import HttpTransport
from tests.end_to_end.raw_requests import read_all

pytestmark = pytest.mark.stack
TRANSFERS = 40
PRODUCERS = 3


def test_transfers_of_several_producers_at_once_are_seen_whole(transport: HttpTransport, topic: str) -> None:
    """Each transfer writes one amount to two partitions, once negated. All producers share the heads."""

    def transfer(number: int) -> None:
        with Producer(transport=transport, transactional_id=f"{topic}-{number}") as producer:
            for count in range(TRANSFERS):
                with producer.transaction() as transaction:
                    transaction.send(topic, b"%d %d %d" % (number, count, count), partition=number)
                    transaction.send(topic, b"%d %d %d" % (number, count, -count), partition=(number + 1) % PRODUCERS)

    threads = [threading.Thread(target=transfer, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [value for partition in range(PRODUCERS) for _, value in read_all(transport, topic, partition)]
    assert Counter(value.rsplit(b" ", 1)[0] for value in found if value) == {
        b"%d %d" % (number, count): 2 for number in range(PRODUCERS) for count in range(TRANSFERS)
    }
    assert sum(int(value.rsplit(b" ", 1)[1]) for value in found if value) == 0


def test_offsets_are_committed_with_the_records(transport: HttpTransport, topic: str) -> None:
    group, source = f"{topic}-readers", TopicPartition(topic, 2)
    with Producer(transport=transport, transactional_id=f"{topic}-0") as producer:
        with producer.transaction() as transaction:
            sent = transaction.send(topic, b"v", partition=0)
            transaction.send_offsets({source: 7}, group)
        assert sent.result().offset == 0
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:  # noqa: PT012 - a block is the point
            transaction.send(topic, b"never", partition=0)
            transaction.send_offsets({source: 9}, group)
            _ = 1 // 0
    with Consumer(transport=transport, group_id=group) as consumer:
        consumer.assign([source])
        assert consumer.committed(source) == 7
    assert read_all(transport, topic) == [(0, b"v")]


def test_newer_instance_fences_the_older(transport: HttpTransport, topic: str) -> None:
    with (
        Producer(transport=transport, transactional_id=topic) as old,
        Producer(transport=transport, transactional_id=topic) as new,
    ):
        with old.transaction() as transaction:
            transaction.send(topic, b"old", partition=0)
        with new.transaction() as transaction:
            transaction.send(topic, b"new", partition=0)
        with pytest.raises(FencedError), old.transaction() as transaction:
            transaction.send(topic, b"zombie", partition=0)
    assert read_all(transport, topic) == [(0, b"old"), (1, b"new")]


def test_large_transaction_is_staged(transport: HttpTransport, topic: str) -> None:
    values = [bytes([number]) * 500_000 for number in range(20)]
    plain = Producer(transport=transport, transactional_id=topic, compression_type="none")
    with plain as producer, producer.transaction() as transaction:
        for value in values:
            transaction.send(topic, value, partition=1)
        assert read_all(transport, topic, 1) == []
    assert read_all(transport, topic, 1) == list(enumerate(values))
