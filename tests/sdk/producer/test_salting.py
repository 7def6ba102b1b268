"""A hot key is spread over several partitions, and every reader gets the original key (docs/protocol/partitions)."""

from collections import Counter
from itertools import cycle

import pytest

from penstock.errors import InvalidError
from penstock.producer.salting import Salting
from penstock.testing import MemoryPenstock
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.client_kinds import ClientKind
from tests.sdk.polling import poll_count

DEADLINE_S = 30.0


def test_salted_key_goes_to_its_own_partition_and_those_behind_it() -> None:
    steps = cycle(range(3))
    salting = Salting({"whale": 3})
    assert [salting.step("t", b"whale", 8, lambda _: next(steps)) for _ in range(4)] == [0, 1, 2, 0]
    assert salting.step("t", b"minnow", 8, lambda _: 5) == 0


def test_salt_is_bounded_by_the_partitions_of_the_topic() -> None:
    assert Salting({b"k": 8}).step("t", b"k", 3, lambda count: count) == 3


def test_function_tells_the_number_by_topic_and_key() -> None:
    salting = Salting(lambda topic, key: 4 if (topic, key) == ("hot", b"k") else 1)
    assert salting.step("hot", b"k", 8, lambda count: count - 1) == 3
    assert salting.step("cold", b"k", 8, lambda count: count - 1) == 0


@pytest.mark.parametrize("wrong", [{1: 2}, {b"k": 0}, {b"k": True}, {b"k": 1_001}, {b"k": 2.0}, 7])
def test_salted_keys_are_refused_when_they_are_of_a_wrong_type_or_size(
    clients: ClientKind, service: MemoryPenstock, wrong: object
) -> None:
    with pytest.raises(InvalidError, match="salted_keys"):
        clients.producer(salted_keys=wrong)


def test_function_that_gives_no_number_fails_the_send() -> None:
    with pytest.raises(InvalidError, match="give 1 to"):
        Salting(lambda topic, key: 0).step("t", b"k", 8, lambda _: 0)


def test_records_of_a_salted_key_are_read_under_that_key_from_several_partitions(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    orders = service.create_topic("orders", partitions=4).name
    with clients.producer(salted_keys={b"whale": 3}) as producer:
        sent = [producer.send(orders, b"%d" % number, key=b"whale") for number in range(60)]
        minnows = {producer.send(orders, b"v", key="minnow").result(DEADLINE_S).partition for _ in range(5)}
        places = Counter(each.result(DEADLINE_S).partition for each in sent)
    own = partition_for_key(b"whale", 4)
    assert set(places) == {own, (own + 1) % 4, (own + 2) % 4}
    assert minnows == {partition_for_key(b"minnow", 4)}
    with clients.consumer(orders) as consumer:
        found = poll_count(65, consumer)
    assert Counter(record.key for record in found) == {b"whale": 60, b"minnow": 5}
    assert all(not record.headers for record in found)


def test_salted_key_is_refused_when_the_topic_is_compacted(clients: ClientKind, service: MemoryPenstock) -> None:
    service.admin().create_topic("table", 2, config={"cleanup_policy": "compact"})
    with clients.producer(salted_keys={b"whale": 2}) as producer:
        with pytest.raises(InvalidError, match="compacted"):
            producer.send("table", b"v", key=b"whale")
        assert producer.send("table", b"v", key=b"minnow").result(DEADLINE_S).offset == 0
