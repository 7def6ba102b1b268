"""A batch may hold a record with a time below -1, which its header does not show. Each reader gives it as -1."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.console.browsing import Wanted, browse
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.records.codec import NewRecord, decode, encode, keep_records, with_records
from penstock_core.records.record_batch import NO_TIME_MS, parse_header
from tests.support.poison import NOW_MS, put_batch
from tests.support.push_records import StoredRecord

STORED = (NOW_MS, -2, NO_TIME_MS, -(2**61), NOW_MS)
SHOWN = [NOW_MS, NO_TIME_MS, NO_TIME_MS, NO_TIME_MS, NOW_MS]
BATCH = with_records(
    parse_header(encode([NewRecord(NOW_MS, None, b"v")] * len(STORED))),
    [StoredRecord(offset, time_ms) for offset, time_ms in enumerate(STORED)],
)
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


def ask(service: MemoryPenstock, method: str, path: str, body: Any = None) -> Any:
    answer = service.transport.call(method, path, {}, {}, b"" if body is None else json.dumps(body).encode())
    assert answer.status in (200, 201), answer.body
    return json.loads(answer.body)


def by_json(service: MemoryPenstock) -> list[int]:
    return [each["timestamp_ms"] for each in ask(service, "GET", "/v1/topics/orders/partitions/0/records")["records"]]


def by_json_of_a_share_group(service: MemoryPenstock) -> list[int]:
    service.create_share_group("workers", "orders", {"start": "earliest"})
    answer = ask(service, "POST", "/v1/share-groups/workers/records", {"max_records": 9})
    return [each["timestamp_ms"] for each in answer["records"]]


def by_the_consumer(service: MemoryPenstock) -> list[int]:
    return [each.timestamp_ms for each in service.records("orders")]


def by_the_share_consumer(service: MemoryPenstock) -> list[int]:
    service.create_share_group("workers", "orders", {"start": "earliest"})
    return [each.timestamp_ms for each in service.share_consumer(group_id="workers").poll(timeout_ms=1_000)]


def by_the_console(service: MemoryPenstock) -> list[int]:
    page = browse(service.transport, Wanted(place=TopicPartition("orders", 0), offset=0))
    return [each.timestamp_ms for each in page.records]


def by_a_subscription(service: MemoryPenstock) -> list[int]:
    times: list[int] = []

    def handle(event: dict[str, Any], _context: None) -> None:
        times.extend(each["timestamp"] for records in event["records"].values() for each in records)

    service.add_function(ARN, handle)
    service.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest"})
    service.deliver_pushes()
    return times


def by_search(service: MemoryPenstock) -> list[int]:
    """The last record is the first of its time behind the first one: nothing of the others is found."""
    found = service.admin().list_offsets("orders", NOW_MS)
    assert [*found.values()] == [0]
    return SHOWN


@pytest.mark.parametrize(
    "read",
    [
        by_json,
        by_json_of_a_share_group,
        by_the_consumer,
        by_the_share_consumer,
        by_the_console,
        by_a_subscription,
        by_search,
    ],
)
def test_reader_gives_a_time_below_minus_one_as_none(read: Callable[[MemoryPenstock], list[int]]) -> None:
    with MemoryPenstock() as service:
        service.create_topic("orders")
        put_batch(service.transport, "orders", BATCH)
        assert read(service) == SHOWN


def test_batch_that_loses_records_keeps_none_of_these_times() -> None:
    kept = keep_records(BATCH, lambda record: record.offset < 4)
    assert kept is not None
    assert [record.timestamp for record in decode(kept)] == SHOWN[:4]
