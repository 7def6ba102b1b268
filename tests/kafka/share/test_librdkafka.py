"""The share consumer of librdkafka, as Python has it."""

from dataclasses import replace

from confluent_kafka import ShareConsumer

from penstock.testing import MemoryPenstock
from tests.kafka.running_gateway import SETTINGS, running_gateway
from tests.support.deadlines import until

RECORDS = 30


def test_consumers_of_one_group_share_the_records_and_leave(service: MemoryPenstock) -> None:
    with service.producer() as producer:
        for number in range(RECORDS):
            producer.send("orders", value=str(number).encode(), partition=number % 3)
    with running_gateway(service, replace(SETTINGS, share_start="earliest")) as gateway:
        consumers = [
            ShareConsumer({"bootstrap.servers": gateway.address, "group.id": "workers", "max.poll.records": 5})
            for _ in range(2)
        ]
        for each in consumers:
            each.subscribe(["orders"])
        found: list[bytes | None] = []

        def read() -> None:
            for each in consumers:
                found.extend(message.value() for message in each.poll(0.3) if not message.error())

        until(lambda: len(found) >= RECORDS, step=read, shown=lambda: len(found))
        for each in consumers:
            each.commit_sync()
            each.close()
    assert sorted(int(each or b"") for each in found) == [*range(RECORDS)]
    assert [each.lag for each in service.admin().describe_share_group("workers").partitions] == [0, 0, 0]
