"""Producers that encrypt and consumers that decrypt, with threads and for asyncio, on a service in memory."""

import asyncio
import base64
import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import AsyncProducer, DeadLetters, TopicPartition, Transformer
from penstock.consumer import partition_cursor
from penstock.encryption import HEADER, DataKey, Encryption, LocalKeys
from penstock.errors import AccessDeniedError, CorruptError, InvalidError, UnavailableError
from penstock.model import ConsumerRecord, UndecodableBatch
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_core.errors import ErrorCode
from penstock_core.records.codec import Record, decode
from tests.sdk.cli.command import run
from tests.sdk.client_kinds import ClientKind
from tests.support.deadlines import DEADLINE_S, until

FAST: dict[str, Any] = {"fetch_wait_ms": 10, "retry_backoff_ms": 1}
KEYS = {"2026": os.urandom(32)}
OTHER_KEYS = {"other": os.urandom(32)}
P0 = TopicPartition("orders", 0)
CRAFTED = [
    pytest.param(b"[" * 16_000, id="deep"),
    pytest.param(b"[" * 100_000, id="long"),
    pytest.param(b'{"v":1,"key":"\\ud800","data_key":"","context":{}}', id="half a character"),
    pytest.param(None, id="none"),
]


def encryption(keys: Mapping[str, bytes] = KEYS, **options: Any) -> Encryption:
    return Encryption(LocalKeys(keys), **options)


@pytest.fixture(autouse=True)
def orders(service: MemoryPenstock) -> None:
    service.create_topic("orders")


def put(service: MemoryPenstock, *values: bytes | None, keys: Mapping[str, bytes] | None = KEYS) -> None:
    """One batch for each value."""
    told = None if keys is None else encryption(keys)
    with service.producer(encryption=told) as producer:
        for value in values:
            producer.send("orders", value, key=b"k").result()


def take(consumer: Any, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    until(lambda: len(records) >= count, step=lambda: records.extend(consumer.poll(timeout_ms=20)))
    return records


def values(records: list[ConsumerRecord]) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in records]


def test_consumer_gets_what_the_producer_sent_and_the_log_does_not_hold_it(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    with clients.producer(encryption=encryption()) as producer:
        producer.send("orders", b"secret " * 20, key=b"ada", headers=[("type", b"order")]).result()
        producer.send("orders", None, key=b"ada").result()
    [stored, tombstone] = service.records("orders")
    assert stored.key == b"ada"
    assert [name for name, _ in stored.headers] == ["type", HEADER]
    assert b"secret" not in (stored.value or b"")
    assert (tombstone.value, tombstone.headers) == (None, ())
    with clients.consumer("orders", encryption=encryption(), **FAST) as consumer:
        [record, deleted] = take(consumer, 2)
    assert (record.value, record.key, record.headers) == (b"secret " * 20, b"ada", (("type", b"order"),))
    assert deleted.value is None


def test_filter_by_headers_finds_encrypted_records(clients: ClientKind, service: MemoryPenstock) -> None:
    with clients.producer(encryption=encryption()) as producer:
        for kind in (b"order", b"refund", b"order"):
            producer.send("orders", kind, headers=[("type", kind)]).result()
    with clients.consumer("orders", encryption=encryption(), filter={"type": ["refund"]}, **FAST) as consumer:
        assert values(take(consumer, 1)) == [(1, b"refund")]


def test_iteration_decrypts_records_of_several_data_keys_in_order(clients: ClientKind, service: MemoryPenstock) -> None:
    with clients.producer(encryption=encryption(max_records=2)) as producer:
        for number in range(7):
            producer.send("orders", b"%d" % number)
    with clients.consumer("orders", encryption=encryption(), consumer_timeout_ms=300, **FAST) as consumer:
        assert [record.value for record in consumer] == [b"%d" % number for number in range(7)]


def test_records_without_encryption_pass(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"old", keys=None)
    put(service, b"new")
    with clients.consumer("orders", encryption=encryption(), **FAST) as consumer:
        assert values(take(consumer, 2)) == [(0, b"old"), (1, b"new")]


def test_transaction_encrypts(clients: ClientKind, service: MemoryPenstock) -> None:
    with (
        service.producer(transactional_id="t", encryption=encryption()) as producer,
        producer.transaction() as open_one,
    ):
        open_one.send("orders", b"booked")
    assert service.records("orders")[0].value != b"booked"
    with clients.consumer("orders", encryption=encryption(), **FAST) as consumer:
        assert values(take(consumer, 1)) == [(0, b"booked")]


def test_old_records_stay_readable_when_a_new_key_encrypts(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"old")
    rotated = OTHER_KEYS | KEYS
    put(service, b"new", keys=rotated)
    with clients.consumer("orders", encryption=encryption(rotated), **FAST) as consumer:
        assert values(take(consumer, 2)) == [(0, b"old"), (1, b"new")]


def test_consumer_without_the_key_raises_with_the_place_until_it_seeks(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    put(service, b"0", keys=None)
    put(service, b"1", keys=OTHER_KEYS)
    put(service, b"2")
    with clients.consumer("orders", encryption=encryption(), **FAST) as consumer:
        assert values(take(consumer, 1)) == [(0, b"0")]
        for _ in range(2):
            with pytest.raises(
                AccessDeniedError, match=r"partition 0 of topic 'orders': offset 1.*key 'other'"
            ) as caught:
                take(consumer, 1)
        assert caught.value.facts == {
            **{"topic": "orders", "partition": 0, "offset": 1, "base_offset": 1, "next_offset": 2},
            "key_id": "other",
        }
        consumer.seek(P0, caught.value.facts["next_offset"])
        assert values(take(consumer, 1)) == [(2, b"2")]


def put_mixed_batch(service: MemoryPenstock) -> None:
    """One batch of five records, whose second and fifth no reader of ours can decrypt."""
    ours, theirs = encryption(), encryption(OTHER_KEYS)
    with service.producer(linger_ms=1_000) as producer:
        for number, by in enumerate((ours, theirs, ours, ours, theirs)):
            value, headers = by.encrypt("orders", b"%d" % number)
            producer.send("orders", value, headers=headers)
    assert len(service.records("orders")) == 5


def test_skipping_passes_over_the_records_that_do_not_decrypt_and_over_no_other(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    put_mixed_batch(service)
    put(service, b"last")
    with clients.consumer("orders", encryption=encryption(), on_undecodable="skip", **FAST) as consumer:
        assert values(take(consumer, 4)) == [(0, b"0"), (2, b"2"), (3, b"3"), (5, b"last")]
        assert consumer.skipped_batches() == {P0: 2}


def test_many_values_in_one_batch_are_skipped_without_decoding_it_again_for_each(
    clients: ClientKind, service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = encryption(OTHER_KEYS, compress=False)
    with service.producer(linger_ms=1_000) as producer:
        for _ in range(500):
            value, headers = theirs.encrypt("orders", b"1")
            producer.send("orders", value, headers=headers)
    put(service, b"last")
    decoded: list[object] = []

    def counted(batches: memoryview) -> Iterator[Record]:
        decoded.append(batches)
        return decode(batches)

    monkeypatch.setattr(partition_cursor, "decode", counted)
    with clients.consumer("orders", encryption=encryption(), on_undecodable="skip", **FAST) as consumer:
        assert values(take(consumer, 1)) == [(500, b"last")]
        assert consumer.skipped_batches() == {P0: 500}
    assert len(decoded) <= 3, "once for each answer"


def test_function_gets_the_offset_and_the_batch_that_holds_it(clients: ClientKind, service: MemoryPenstock) -> None:
    put_mixed_batch(service)
    seen: list[UndecodableBatch] = []
    with clients.consumer("orders", encryption=encryption(), on_undecodable=seen.append, **FAST) as consumer:
        assert values(take(consumer, 3)) == [(0, b"0"), (2, b"2"), (3, b"3")]
        until(lambda: len(seen) == 2, step=lambda: consumer.poll(timeout_ms=20))
    assert [(each.offset, each.base_offset, each.next_offset) for each in seen] == [(1, 0, 2), (4, 0, 5)]
    assert seen[0].data == seen[1].data
    assert {each.error.code for each in seen} == {ErrorCode.ACCESS_DENIED}


@pytest.mark.parametrize("header", CRAFTED)
def test_crafted_header_stops_no_consumer_that_skips(
    clients: ClientKind, service: MemoryPenstock, header: bytes | None
) -> None:
    with service.producer() as producer:
        producer.send("orders", b"1" * 40, headers=[(HEADER, header)]).result()
    put(service, b"last")
    with clients.consumer("orders", encryption=encryption(), on_undecodable="skip", **FAST) as consumer:
        assert values(take(consumer, 1)) == [(1, b"last")]
        assert consumer.skipped_batches() == {P0: 1}


def test_changed_value_is_told_as_corrupt(clients: ClientKind, service: MemoryPenstock) -> None:
    value, headers = encryption().encrypt("orders", b"1", key=b"ada")
    with service.producer() as producer:
        producer.send("orders", value, key=b"bob", headers=headers)
    with (
        clients.consumer("orders", encryption=encryption(), **FAST) as consumer,
        pytest.raises(CorruptError, match="offset 0: the value does not decrypt"),
    ):
        take(consumer, 1)


class AbsentKeys(LocalKeys):
    """Keys behind a network that fails a few times."""

    def __init__(self, failures: int) -> None:
        super().__init__(KEYS)
        self.failures = failures

    def unwrap(self, key_id: str, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        if self.failures:
            self.failures -= 1
            raise UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "KMS could not be asked")
        return super().unwrap(key_id, wrapped, context)


def test_keys_that_do_not_answer_raise_and_lose_no_record(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"1")
    now_ms, keys = [0], AbsentKeys(2)
    given = Encryption(keys, now_ms=lambda: now_ms[0])
    with clients.consumer("orders", encryption=given, on_undecodable="skip", **FAST) as consumer:
        for left in (1, 1, 0):  # a second try within the second asks nobody
            with pytest.raises(UnavailableError, match="KMS could not be asked"):
                take(consumer, 1)
            assert keys.failures == left
            now_ms[0] += 500
        now_ms[0] += 500
        assert values(take(consumer, 1)) == [(0, b"1")]
        assert consumer.skipped_batches() == {}


def test_right_that_comes_later_heals(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"1")
    now_ms, keys = [0], LocalKeys(OTHER_KEYS)
    given = Encryption(keys, now_ms=lambda: now_ms[0])
    with clients.consumer("orders", encryption=given, **FAST) as consumer:
        with pytest.raises(AccessDeniedError):
            take(consumer, 1)
        keys._keys.update(KEYS)
        now_ms[0] = 60_000
        assert values(take(consumer, 1)) == [(0, b"1")]


class DeniedKeys(LocalKeys):
    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        raise AccessDeniedError(ErrorCode.ACCESS_DENIED, "your credentials lack kms:GenerateDataKey")


def test_producer_without_the_right_sends_nothing(clients: ClientKind, service: MemoryPenstock) -> None:
    with clients.producer(encryption=Encryption(DeniedKeys(KEYS))) as producer:
        with pytest.raises(AccessDeniedError, match="lack kms:GenerateDataKey"):
            producer.send("orders", b"secret")
        producer.flush()
    assert service.records("orders") == []


class SlowKeys(LocalKeys):
    """Keys that answer when the test lets them."""

    def __init__(self) -> None:
        super().__init__(KEYS)
        self.asked, self.may_answer = threading.Event(), threading.Event()

    def new_data_key(self, context: Mapping[str, str]) -> DataKey:
        self.asked.set()
        assert self.may_answer.wait(DEADLINE_S)
        return super().new_data_key(context)


def test_records_that_wait_for_a_data_key_keep_their_order_and_hold_up_no_loop(service: MemoryPenstock) -> None:
    keys, turns = SlowKeys(), 0

    async def send_all() -> None:
        nonlocal turns
        async with AsyncProducer(
            transport=ThreadedTransport(service.transport), encryption=Encryption(keys)
        ) as producer:
            sends = [asyncio.create_task(producer.send("orders", b"%d" % number)) for number in range(20)]
            while not keys.asked.is_set():
                await asyncio.sleep(0)
            turns += 1  # the loop runs on while the keys are asked
            keys.may_answer.set()
            await asyncio.gather(*sends)

    asyncio.run(send_all())
    assert turns == 1
    opened = encryption()
    found = [opened.decrypt(each.value, key=each.key, headers=each.headers)[0] for each in service.records("orders")]
    assert found == [b"%d" % number for number in range(20)]


def test_topic_whose_keys_are_slow_holds_up_no_other_topic(service: MemoryPenstock) -> None:
    service.create_topic("quick")
    keys = SlowKeys()
    sealed = Encryption(keys)
    keys.may_answer.set()
    sealed.prepare("quick")
    keys.may_answer.clear()
    keys.asked.clear()

    async def send_both() -> None:
        async with AsyncProducer(transport=ThreadedTransport(service.transport), encryption=sealed) as producer:
            slow = asyncio.create_task(producer.send("orders", b"1"))
            while not keys.asked.is_set():
                await asyncio.sleep(0)
            try:
                async with asyncio.timeout(DEADLINE_S / 4):
                    await (await producer.send("quick", b"2"))
                assert not slow.done()
            finally:
                keys.may_answer.set()
            await (await slow)
            assert len(producer._sender._turns) == 0, "no topic is remembered for its turn"

    asyncio.run(send_both())
    assert len(service.records("quick")) == len(service.records("orders")) == 1


def test_reader_that_requires_encryption_takes_no_plain_value(clients: ClientKind, service: MemoryPenstock) -> None:
    put(service, b"forged", None, keys=None)
    put(service, b"1")
    wary = encryption(requires=True)
    with clients.consumer("orders", encryption=wary, on_undecodable="skip", **FAST) as consumer:
        assert values(take(consumer, 2)) == [(1, None), (2, b"1")]
        assert consumer.skipped_batches() == {P0: 1}


def test_dead_letters_never_lie_open(service: MemoryPenstock) -> None:
    service.create_topic("orders.dead")
    put(service, b"secret")
    with (
        service.consumer("orders", group_id="g", encryption=encryption(), enable_auto_commit=False) as consumer,
        service.producer(transactional_id="open") as open_one,
        service.producer(transactional_id="sealed", encryption=encryption()) as sealed,
    ):
        with pytest.raises(InvalidError, match="dead letters would lie open"):
            DeadLetters(consumer, open_one, "orders.dead")
        with pytest.raises(InvalidError, match="the producer would send in the clear"):
            Transformer(consumer, open_one, print)
        [record] = take(consumer, 1)
        DeadLetters(consumer, sealed, "orders.dead").move(record, "no such customer")
    [dead] = service.records("orders.dead")
    assert dead.value != b"secret"
    assert encryption().decrypt(dead.value, key=dead.key, headers=dead.headers)[0] == b"secret"


def test_dead_letters_and_transformers_refuse_pairs_that_stop_or_write_in_the_clear(service: MemoryPenstock) -> None:
    service.create_topic("orders.dead")
    put(service, b"secret")
    with (
        service.consumer("orders", group_id="g", enable_auto_commit=False) as blind,
        service.share_consumer("orders", group_id="s", encryption=encryption()) as sharing,
        service.producer(transactional_id="open") as open_one,
        service.producer(transactional_id="sealed", encryption=encryption()) as sealed,
    ):
        with pytest.raises(InvalidError, match="the producer encrypts, and no value twice"):
            DeadLetters(blind, sealed, "orders.dead")
        with pytest.raises(InvalidError, match="the producer would send in the clear"):
            Transformer(sharing, open_one, print)
        Transformer(sharing, sealed, print)
        Transformer(blind, sealed, print)
        DeadLetters(blind, open_one, "orders.dead").move(take(blind, 1)[0], "as it is")
    [dead] = service.records("orders.dead")
    assert encryption().decrypt(dead.value, key=dead.key, headers=dead.headers)[0] == b"secret"


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_option_of_another_kind_is_refused_with_what_to_give(clients: ClientKind, kind: str) -> None:
    with pytest.raises(InvalidError, match="encryption is of type str: give an Encryption"):
        getattr(clients, kind)(encryption="alias/orders")


def test_commands_encrypt_and_decrypt_by_keys_of_a_file(service: MemoryPenstock, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({name: base64.b64encode(key).decode() for name, key in KEYS.items()}))
    made = run(service.transport, "produce", "orders", "--encrypt-key", f"file:{path}", stdin=b"first\nsecond\n")
    assert made.exit_code == 0, made.output
    assert b"first" not in (service.records("orders")[0].value or b"first")
    read = run(service.transport, "consume", "orders", "--decrypt-key", f"file:{path}", "--timeout", "0.3")
    assert (read.exit_code, read.stdout) == (0, "first\nsecond\n")
    wrong = run(service.transport, "produce", "orders", "--encrypt-key", "alias/orders", stdin=b"x\n")
    assert wrong.exit_code != 0
    assert "aws kms describe-key" in wrong.stderr
