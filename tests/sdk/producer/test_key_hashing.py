"""The partition of a key is that of Kafka's Java client, by compiled code or by Python."""

import subprocess
import sys

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.producer import key_hashing
from penstock.producer.key_hashing import RememberedHashes, chosen
from penstock_core.records.partitioner import partition_for_key
from tests.support.child_process import bare_environment


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
