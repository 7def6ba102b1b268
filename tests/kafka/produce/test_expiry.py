"""Kafka's clients set the header of an expiry, and the gateway sets the flag: within a budget."""

import pytest
from confluent_kafka import Producer

from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_core.records.record_batch import Compression
from penstock_kafka.checked_batches import checked
from tests.kafka.running_gateway import RunningGateway
from tests.support.poison import undecodable_batch
from tests.support.service import head_of

EXPIRING = NewRecord(7, b"k", b"v" * 100, [("a", b"b"), (EXPIRES_AT_HEADER, b"1790000000000")])
PLAIN = NewRecord(7, b"k", f"{EXPIRES_AT_HEADER}".encode(), [("a", EXPIRES_AT_HEADER.encode())])


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_header_of_a_kafka_client_gives_its_batch_the_flag_and_no_other_one(
    gateway: RunningGateway, compression: str, is_transactional: bool
) -> None:
    settings: dict[str, object] = {"transactional.id": "t"} if is_transactional else {}
    config = {"bootstrap.servers": gateway.address, "compression.type": compression, "linger.ms": 200, **settings}
    producer = Producer(config)
    if is_transactional:
        producer.init_transactions(30)
        producer.begin_transaction()
    for partition in (0, 1):
        for number in range(20):
            headers = [(EXPIRES_AT_HEADER, b"1790000000000")] if partition == 1 and number == 13 else [("a", b"b")]
            producer.produce("orders", str(number), partition=partition, headers=headers)
    if is_transactional:
        producer.commit_transaction(30)
    else:
        assert producer.flush(30) == 0
    instance = gateway.service.transport._instance
    assert not any(ref.may_expire for ref in head_of(instance, "orders", 0).tail)
    assert any(ref.may_expire for ref in head_of(instance, "orders", 1).tail)
    gateway.service.create_share_group("g", "orders")
    with gateway.service.share_consumer("orders", group_id="g") as consumer:
        found: list[bytes | None] = []
        while len(found) < 39:
            found += [record.value for record in consumer.poll()]
    assert found.count(b"13") == 1


@pytest.mark.parametrize("compression", list(Compression))
def test_flag_is_that_of_the_records(compression: Compression) -> None:
    assert checked(encode([PLAIN, EXPIRING], compression)).may_expire
    assert checked(encode([PLAIN], compression) + encode([PLAIN, EXPIRING], compression)).may_expire
    assert not checked(encode([PLAIN, PLAIN], compression)).may_expire


def test_batches_behind_the_budget_have_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag too many costs a look, and one too few hands out an expired record."""
    monkeypatch.setattr("penstock_kafka.checked_batches.READ_DECODED_BYTES_MAX", 1)
    assert not checked(encode([PLAIN])).may_expire
    assert checked(encode([PLAIN]) + encode([PLAIN])).may_expire


def test_batch_that_cannot_be_decoded_has_no_flag() -> None:
    assert not checked(undecodable_batch()).may_expire
