from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from penstock_core.records.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [  # UtilsTest.testMurmur2 of Kafka's Java client
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_kafkas_java_client(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash % 2**32


@given(st.binary(max_size=100))
def test_murmur2_agrees_with_kafka_python(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) % 2**32


@given(st.binary(max_size=40), st.integers(1, 1_000))
def test_a_key_lands_where_kafka_python_puts_it(key: bytes, partitions: int) -> None:
    numbers = set(range(partitions))
    cluster = SimpleNamespace(
        topics=lambda: {"orders"},
        partitions_for_topic=lambda _: numbers,
        available_partitions_for_topic=lambda _: numbers,
    )
    assert partition_for_key(key, partitions) == DefaultPartitioner().partition("orders", key, key, b"", b"", cluster)


def test_a_negative_hash_is_made_positive_by_its_sign_bit() -> None:
    assert partition_for_key(b"21", 100) == (-973932308 & 0x7FFFFFFF) % 100
