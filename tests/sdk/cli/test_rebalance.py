"""`penstock topics rebalance`: what is hot now, by which key."""

from penstock.testing import MemoryPenstock
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.cli.command import run, run_json

KEYS = [b"%d" % number for number in range(400)]


def test_hot_key_is_found_among_the_newest_records(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=4)
    with service.producer() as producer:
        for key in KEYS:
            producer.send("orders", b"v", key=key)
            producer.send("orders", b"v", key=b"whale")
            producer.send("orders", b"v", key=b"whale")
    found = run_json(service.transport, "topics", "rebalance", "orders")
    hot_number = partition_for_key(b"whale", 4)
    assert sum(each["records"] for each in found["partitions"]) == 3 * len(KEYS)
    [hot] = found["hot"]
    assert (hot["partition"], hot["key"], hot["sampled"] <= 1_000) == (hot_number, "whale", True)
    assert "More partitions do not help" in found["advice"]
    shown = run(service.transport, "topics", "rebalance", "orders").output
    assert "whale" in shown


def test_nothing_is_hot_when_records_are_old_or_even(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(300):
            producer.send("orders", b"v", partition=0, timestamp_ms=1_000 + number)
        producer.flush()
        for key in KEYS:
            producer.send("orders", b"v", key=key)
    found = run_json(service.transport, "topics", "rebalance", "orders", "--since", "1h")
    assert found["hot"] == []
    assert "Nothing to do" in found["advice"]
