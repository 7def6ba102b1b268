"""Share consumers that decrypt: what they release, what they reject, and what a dead letter becomes."""

import os
from collections.abc import Mapping
from typing import Any

import pytest

from penstock.encryption import HEADER, Encryption, LocalKeys
from penstock.errors import AccessDeniedError, UnavailableError
from penstock.share import acquire_call, keeper
from penstock.share.acknowledgements import LOCKED_UP
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from penstock_core.limits import MIB
from tests.sdk.encryption.test_encrypted_clients import CRAFTED
from tests.sdk.share.share_kinds import ShareKind
from tests.sdk.share.work_group import WorkGroup
from tests.support.deadlines import DEADLINE_S, until

KEYS, OTHER_KEYS = {"2026": os.urandom(32)}, {"other": os.urandom(32)}


def put(
    service: MemoryPenstock, *values: bytes, keys: dict[str, bytes] = KEYS, key: bytes = b"k", **options: Any
) -> None:
    sealing = Encryption(LocalKeys(keys))
    with service.producer() as producer:
        for each in values:
            value, headers = sealing.encrypt("orders", each, key=key)
            producer.send("orders", value, headers=headers, partition=0, **{"key": key, **options})


def test_worker_gets_what_was_sent(consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock) -> None:
    put(service, b"1", b"2")
    with consumers.consumer("orders", consumer_timeout_ms=100, encryption=Encryption(LocalKeys(KEYS))) as consumer:
        assert [(record.value, record.headers) for record in consumer] == [(b"1", ()), (b"2", ())]
    assert workers.unfinished() == 0


def test_worker_without_the_key_releases_the_record_says_why_and_works_on_the_others(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock
) -> None:
    put(service, b"1", keys=OTHER_KEYS)
    put(service, b"2")
    seen: list[bytes | None] = []
    told: list[AccessDeniedError] = []

    def poll() -> None:
        try:
            seen.extend(record.value for record in consumer.poll(timeout_ms=20))
        except AccessDeniedError as error:
            told.append(error)

    with consumers.consumer("orders", encryption=Encryption(LocalKeys(KEYS))) as consumer:
        until(lambda: bool(seen and told), step=poll)
        poll()
    assert seen == [b"2"]
    assert "offset 0 of orders[0]" in str(told[0])
    assert "by the key 'other'" in str(told[0])
    assert (told[0].facts["topic"], told[0].facts["partition"], told[0].facts["offset"]) == ("orders", 0, 0)
    assert workers.sent("release") >= 1
    assert workers.sent("reject") == 0
    assert workers.unfinished() == 1, "the record waits for a worker that has the key"


def test_worker_rejects_a_value_that_was_changed(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock
) -> None:
    put(service, b"1", key=b"ada")
    [stored] = service.records("orders")
    with service.producer() as producer:
        producer.send("orders", stored.value, key=b"bob", headers=stored.headers, partition=0)
    with consumers.consumer("orders", consumer_timeout_ms=100, encryption=Encryption(LocalKeys(KEYS))) as consumer:
        assert [record.value for record in consumer] == [b"1"]
    [rejected] = [each for each in workers.acknowledgements() if each["type"] == "reject"]
    assert rejected["reason"].startswith("undecodable: offset 1 of orders[0]: the value does not decrypt")
    assert workers.unfinished() == 0


@pytest.mark.parametrize("header", CRAFTED)
def test_worker_rejects_a_crafted_header_and_goes_on(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock, header: bytes | None
) -> None:
    with service.producer() as producer:
        producer.send("orders", b"1" * 40, headers=[(HEADER, header)], partition=0).result()
    put(service, b"last")
    with consumers.consumer("orders", consumer_timeout_ms=500, encryption=Encryption(LocalKeys(KEYS))) as consumer:
        assert [record.value for record in consumer] == [b"last"]
    assert workers.unfinished() == 0


class AbsentKeys(LocalKeys):
    """Keys that fail with `error` as long as there is one."""

    error: Exception | None = None
    asked = 0

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().unwrap(key_id, wrapped, context)


OUTAGE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "KMS could not be asked")


@pytest.mark.parametrize("error", [OUTAGE, RuntimeError("a defect")])
def test_keys_that_fail_stop_no_worker_and_dead_letter_nothing(
    consumers: ShareKind, service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(keeper, "LOCKED_UP", LOCKED_UP._replace(delay_ms=10))
    service.create_topic("orders.dead")
    config = {"dead_letter_topic": "orders.dead", "deliveries_max": 1}
    service.admin().create_share_group("strict", "orders", config)
    put(service, b"1", b"2")
    keys = AbsentKeys(KEYS)
    keys.error = error
    seen: list[bytes | None] = []
    told = 0

    def poll() -> None:
        nonlocal told
        try:
            seen.extend(record.value for record in consumer.poll(timeout_ms=20))
        except UnavailableError:
            told += 1

    now_ms = [0]
    sealed = Encryption(keys, now_ms=lambda: now_ms[0])
    with consumers.consumer("orders", group_id="strict", encryption=sealed) as consumer:
        until(lambda: told >= 3, step=poll)
        keys.error, now_ms[0] = None, 60_000
        until(lambda: len(seen) == 2, step=poll)
    assert sorted(str(each) for each in seen) == ["b'1'", "b'2'"]
    assert service.records("orders.dead") == []


def test_keys_that_do_not_answer_are_asked_once_for_all_records_of_a_data_key(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock
) -> None:
    put(service, *[b"%d" % number for number in range(20)])
    keys = AbsentKeys(KEYS)
    keys.error = OUTAGE
    sealed = Encryption(keys, now_ms=lambda: 0)
    with consumers.consumer("orders", encryption=sealed) as consumer:
        with pytest.raises(UnavailableError, match="KMS could not be asked"):
            consumer.poll(timeout_ms=DEADLINE_S * 1_000)
        until(lambda: workers.sent("release") > 0)
    released = next(each for each in workers.acknowledgements() if each["type"] == "release")
    assert (released["offsets"], released["uncounted"]) == (None, True), "the whole lock, and no delivery"
    assert keys.asked == 1


def test_small_values_that_hide_large_ones_do_not_fill_the_memory_of_a_worker(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquire_call, "READ_DECODED_BYTES_MAX", 3 * MIB)
    put(service, *[bytes([number]) * MIB for number in range(8)])
    seen: list[int] = []
    with consumers.consumer("orders", encryption=Encryption(LocalKeys(KEYS))) as consumer:
        first = consumer.poll(timeout_ms=1_000)
        assert 1 <= len(first) <= 3
        seen += [record.value[0] for record in first]
        until(lambda: len(seen) == 8, step=lambda: seen.extend(each.value[0] for each in consumer.poll(timeout_ms=20)))
    assert seen == [*range(8)]


def test_dead_letter_and_redriven_record_decrypt_as_before(service: MemoryPenstock) -> None:
    admin = service.admin()
    for topic in ("orders", "orders.dead"):
        service.create_topic(topic)
    admin.create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead", "deliveries_max": 1})
    put(service, b"secret")
    sealed = Encryption(LocalKeys(KEYS))
    with service.share_consumer("orders", group_id="workers", encryption=sealed) as consumer:
        consumer.reject(next(consumer), "no such customer")
    with service.consumer("orders.dead", encryption=sealed, consumer_timeout_ms=2_000) as consumer:
        dead = next(consumer)
    assert (dead.value, dead.key) == (b"secret", b"k")
    [stored] = service.records("orders.dead")
    assert stored.value != b"secret"
    admin.redrive("orders.dead")
    with service.consumer("orders", encryption=sealed, consumer_timeout_ms=2_000) as consumer:
        assert [next(consumer).value, next(consumer).value] == [b"secret", b"secret"]
