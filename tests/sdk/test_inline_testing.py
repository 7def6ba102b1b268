"""A program that a test runs on a service in memory sees the same records where small appends are items."""

import pytest

from penstock import Admin, TopicPartition
from penstock.testing import MemoryPenstock


@pytest.mark.parametrize("inline_bytes_max", [0, 300])
def test_records_are_the_same_when_small_appends_are_items(inline_bytes_max: int) -> None:
    values = [b"small", b"large" * 100, b"transaction"]
    with MemoryPenstock(inline_bytes_max=inline_bytes_max) as service:
        with Admin(transport=service.transport) as admin:
            admin.create_topic("orders")
        producer = service.producer(linger_ms=0)
        for value in values[:2]:
            producer.send("orders", value).result()
        transactional = service.producer(transactional_id="ledger")
        with transactional.transaction():
            transactional.send("orders", values[2])
        consumer = service.consumer(auto_offset_reset="earliest")
        consumer.assign([TopicPartition("orders", 0)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for record in consumer.poll(timeout_ms=1_000)]
    assert found == values
