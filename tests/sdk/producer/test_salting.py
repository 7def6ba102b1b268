"""A hot key is spread over several partitions, and every reader gets the original key (docs/protocol/partitions). The
partition of a key is that of Kafka's Java client, by compiled code or by Python.
"""

import subprocess
import sys
from collections import Counter
from itertools import cycle

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidError
from penstock.producer import key_hashing
from penstock.producer.key_hashing import RememberedHashes, Salting, chosen
from penstock.testing import MemoryPenstock
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.client_kinds import ClientKind
from tests.sdk.polling import poll_count
from tests.support.child_process import bare_environment

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


@given(st.binary(max_size=300), st.integers(1, 2**31 - 1))
def test_compiled_hashing_agrees_with_ours(key: bytes, partitions: int) -> None:
    assert confluent_kafka.murmur2(key, partitions) == partition_for_key(key, partitions)


@given(st.binary(max_size=300), st.integers(1, 1_000))
def test_remembered_hashes_agree_with_ours_when_a_key_is_new_and_when_it_is_known(key: bytes, partitions: int) -> None:
    hashes = RememberedHashes()
    assert {hashes.partition(key, partitions) for _ in range(2)} == {partition_for_key(key, partitions)}


def test_compiled_hashing_is_chosen_when_the_package_is_installed() -> None:
    assert key_hashing.key_hashing() is confluent_kafka.murmur2


def test_python_hashes_when_the_compiled_hashing_puts_a_key_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    def wrong_for_tails(key: bytes, partitions: int) -> int:
        return partition_for_key(key, partitions) if len(key) % 4 != 3 else 0

    hashing = chosen(wrong_for_tails)
    assert hashing(b"abc", 1_000) == partition_for_key(b"abc", 1_000)
    assert "does not hash as Kafka's Java client" in caplog.text


def test_hashes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_hashing, "SDK_KEYS_REMEMBERED_MAX", 3)
    hashes = RememberedHashes()
    keys = [b"%d" % number for number in range(10)]
    assert [hashes.partition(key, 7) for key in keys] == [partition_for_key(key, 7) for key in keys]
    assert len(hashes) <= 3


@pytest.mark.slow
def test_producer_hashes_in_python_when_the_package_is_not_installed() -> None:
    script = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from penstock.producer.key_hashing import RememberedHashes, key_hashing\n"
        "print(type(key_hashing().__self__).__name__, key_hashing()(b'21', 100))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=bare_environment())
    assert done.stdout.decode().split() == ["RememberedHashes", str(partition_for_key(b"21", 100))]
