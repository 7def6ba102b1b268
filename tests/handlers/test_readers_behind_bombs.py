"""Every reader passes a legal record of 2 KB that decodes to megabytes, and gets the record behind it."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from penstock.testing import MemoryPenstock
from penstock_core.limits import MIB
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression

NOW_MS = 1_790_000_000_000
ARN = "arn:aws:lambda:eu-west-1:111122223333:function:pack"
FILTER = {"type": ["yes"]}
BOMBS = 2
STEPS_MAX = 100

Step = Callable[[], bool]
"""One call of a reader. True once the record behind the bombs has come."""


def by_subscription(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    handled: list[int] = []
    service.add_function(ARN, lambda event, _: handled.extend(each["offset"] for each in event["records"]["orders-0"]))
    service.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest", **settings})

    def step() -> bool:
        service.deliver_pushes()
        return BOMBS in handled

    return step


def by_json(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    service.create_share_group("workers", "orders", {"start": "earliest", **settings})

    def step() -> bool:
        body = json.dumps({"max_records": 100}).encode()
        answer = service.transport.call("POST", "/v1/share-groups/workers/records", {}, {}, body)
        return any(each["key"] == "good" for each in json.loads(answer.body).get("records", ()))

    return step


def by_share_consumer(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    service.create_share_group("workers", "orders", {"start": "earliest", **settings})
    consumer = service.share_consumer(group_id="workers")

    def step() -> bool:
        records = consumer.poll(timeout_ms=1_000)
        for record in records:
            consumer.accept(record)
        return any(record.key == b"good" for record in records)

    return step


def by_fetch(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    consumer = service.consumer("orders", group_id="readers", auto_offset_reset="earliest", **settings)
    return lambda: any(record.key == b"good" for record in consumer.poll(timeout_ms=1_000))


Reader = tuple[Callable[[MemoryPenstock, Mapping[str, Any]], Step], Mapping[str, Any]]
READERS: Mapping[str, Reader] = {
    "ordered subscription": (by_subscription, {"mode": "ordered"}),
    "parallel subscription": (by_subscription, {"mode": "parallel"}),
    "subscription with a filter": (by_subscription, {"filter": FILTER}),
    "share group, JSON": (by_json, {}),
    "share group by key, JSON": (by_json, {"ordering": "key"}),
    "share group with a filter, JSON": (by_json, {"filter": FILTER}),
    "share group, SDK": (by_share_consumer, {}),
    "share group by key, SDK": (by_share_consumer, {"ordering": "key"}),
    "share group with a filter, SDK": (by_share_consumer, {"filter": FILTER}),
    "consumer, SDK": (by_fetch, {}),
    "consumer with a filter, SDK": (by_fetch, {"filter": FILTER}),
}


@pytest.mark.parametrize("reader", READERS)
def test_reader_gets_the_record_behind_bombs(reader: str) -> None:
    start, settings = READERS[reader]
    bomb = encode([NewRecord(NOW_MS, b"bomb", bytes(8 * MIB))], Compression.ZSTD)
    good = encode([NewRecord(NOW_MS, b"good", b"good", [("type", b"yes")])])
    with MemoryPenstock() as service:
        service.create_topic("orders")
        for data in (*[bomb] * BOMBS, good):
            _put(service, data)
        step = start(service, settings)
        assert any(step() for _ in range(STEPS_MAX))


def _put(service: MemoryPenstock, data: bytes) -> None:
    header = {"acks": "quorum", "batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
    body = frame.encode(header, [data])
    answer = service.transport.call("POST", "/v1/produce", {}, {"Content-Type": frame.FRAME_CONTENT_TYPE}, body)
    assert "error" not in json.loads(answer.body)["results"][0], answer.body
