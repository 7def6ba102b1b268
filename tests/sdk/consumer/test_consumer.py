import threading
from typing import Any

import pytest

from penstock.consumer.consumer import Consumer
from penstock.errors import (
    AccessDeniedError,
    ClosedError,
    InvalidError,
    NoOffsetError,
    UnavailableError,
    UnknownTopicError,
)
from penstock.http.async_client import AsyncClient
from penstock.http.client import Client
from penstock.http.http_message import Response
from penstock.model import ConsumerRecord, TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_request
from tests.support.deadlines import until

FETCH = "/v1/fetch"
OFFSETS = "/v1/groups/g/offsets"
OVERHEAD_BYTES = 200  # of a batch of one record, and of its share of an answer
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
FAST: dict[str, Any] = {"fetch_wait_ms": 10, "retry_backoff_ms": 1}


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    service.create_topic("orders", partitions=3)
    _send(service, 0, range(10))
    _send(service, 1, range(10))
    return "orders"


def _send(service: MemoryPenstock, partition: int, numbers: range, topic: str = "orders") -> None:
    with service.producer() as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=partition, timestamp_ms=1_000 + number)


def _take(consumer: Consumer, count: int, **settings: Any) -> list[ConsumerRecord]:
    """Poll until there are exactly `count` records."""
    records: list[ConsumerRecord] = []
    until(
        lambda: len(records) >= count,
        step=lambda: records.extend(consumer.poll(max_records=count - len(records), **settings)),
        shown=lambda: f"{len(records)} of {count} records came",
    )
    return records


def _numbers(records: list[ConsumerRecord], partition: int) -> list[int]:
    return [int(record.value or b"") for record in records if record.partition == partition]


def test_consumer_of_a_topic_reads_all_partitions_each_in_order(clients: ClientKind, orders: str) -> None:
    with clients.consumer(orders, **FAST) as consumer:
        records = _take(consumer, 20)
        assert _numbers(records, 0) == _numbers(records, 1) == list(range(10))
        assert consumer.assignment() == [P0, P1, P2]
        assert [consumer.position(each) for each in (P0, P1, P2)] == [10, 10, 0]


def test_iteration_gives_the_same_and_ends_after_its_timeout(clients: ClientKind, orders: str) -> None:
    with clients.consumer(orders, consumer_timeout_ms=500, **FAST) as consumer:
        records = list(consumer)
    assert _numbers(records, 0) == _numbers(records, 1) == list(range(10))


def test_poll_gives_up_after_its_time(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("empty")
    with clients.consumer("empty", **FAST) as consumer:
        assert consumer.poll(timeout_ms=1) == []


def test_record_that_comes_later_ends_the_wait(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("later")
    with clients.consumer("later", **FAST) as consumer:
        assert consumer.poll(timeout_ms=0) == []
        _send(service, 0, range(1), "later")
        assert [record.value for record in _take(consumer, 1)] == [b"0"]


def test_latest_starts_at_the_end(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.consumer(orders, auto_offset_reset="latest", **FAST) as consumer:
        assert consumer.position(P0) == 10
        _send(service, 0, range(10, 12))
        assert _numbers(_take(consumer, 2), 0) == [10, 11]


def test_none_raises_without_a_place_to_start(clients: ClientKind, orders: str) -> None:
    with clients.consumer(auto_offset_reset="none", group_id="g", **FAST) as consumer:
        consumer.assign([P0])
        with pytest.raises(NoOffsetError, match="group 'g' has no committed offset"):
            consumer.poll()
        consumer.seek(P0, 8)
        assert _numbers(_take(consumer, 2), 0) == [8, 9]


def test_seek_in_the_middle_of_iteration_takes_effect_at_the_next_record(clients: ClientKind, orders: str) -> None:
    with clients.consumer(**FAST) as consumer:
        consumer.assign([P0])
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        assert consumer.position(P0) == 3
        consumer.seek(P0, 7)
        assert next(consumer).offset == 7
        consumer.seek_to_beginning()
        assert next(consumer).offset == 0
        consumer.seek_to_end(P0)
        assert consumer.position(P0) == 10


def test_poll_goes_on_where_iteration_stopped(clients: ClientKind, orders: str) -> None:
    with clients.consumer(**FAST) as consumer:
        consumer.assign([P0])
        assert next(consumer).offset == 0
        assert [record.offset for record in _take(consumer, 9)] == list(range(1, 10))


def test_paused_partition_is_left_out_until_it_is_resumed(clients: ClientKind, orders: str) -> None:
    with clients.consumer(**FAST) as consumer:
        consumer.assign([P0, P1])
        first = next(consumer)
        stopped = TopicPartition(first.topic, first.partition)
        consumer.pause(stopped)
        assert consumer.paused() == [stopped]
        assert {record.partition for record in _take(consumer, 10)} == {1 - stopped.partition}
        assert consumer.poll(timeout_ms=30) == []
        consumer.resume(stopped)
        assert [record.offset for record in _take(consumer, 9)] == list(range(1, 10))


def test_truncated_offset_follows_the_reset(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    service.admin().truncate(orders, {0: 6})
    with clients.consumer(**FAST) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 2)
        assert _numbers(_take(consumer, 4), 0) == [6, 7, 8, 9]


def test_new_partitions_are_read_from_their_beginning(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    with clients.consumer(orders, auto_offset_reset="latest", metadata_max_age_ms=1, **FAST) as consumer:
        assert consumer.poll(timeout_ms=0) == []
        service.admin().add_partitions(orders, 4)
        _send(service, 3, range(2))
        assert _numbers(_take(consumer, 2), 3) == [0, 1]


def test_offsets_are_listed(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    service.admin().truncate(orders, {0: 6})
    with clients.consumer(**FAST) as consumer:
        assert consumer.beginning_offsets([P0, P1]) == {P0: 6, P1: 0}
        assert consumer.end_offsets([P0, P2]) == {P0: 10, P2: 0}
        assert consumer.offsets_for_times({P0: 1_008, P1: 1_003, P2: 0}) == {P0: (8, 1_008), P1: (3, 1_003), P2: None}


# Commits.


def test_group_goes_on_where_it_committed(clients: ClientKind, orders: str) -> None:
    with clients.consumer(group_id="g", enable_auto_commit=False, **FAST) as consumer:
        consumer.assign([P0])
        _take(consumer, 4)
        consumer.commit()
        _take(consumer, 2)
        assert consumer.committed(P0) == 4
    with clients.consumer(group_id="g", **FAST) as consumer:
        consumer.assign([P0])
        assert _numbers(_take(consumer, 6), 0) == [4, 5, 6, 7, 8, 9]


def test_iteration_commits_exactly_the_returned_records(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    with clients.consumer(group_id="g", **FAST) as consumer:
        consumer.assign([P0])
        for record in consumer:
            if record.offset == 3:
                break
    assert service.admin().group_offsets("g")[0].offset == 4


def test_exception_leaves_the_last_records_uncommitted(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    def work() -> None:
        with clients.consumer(group_id="g", **FAST) as consumer:
            consumer.assign([P0])
            next(consumer)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert service.admin().group_offsets("g") == []


def test_auto_commit_leaves_the_records_of_the_last_poll_uncommitted(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    with clients.consumer(group_id="g", auto_commit_interval_ms=0, **FAST) as consumer:
        consumer.assign([P0])
        _take(consumer, 4)
        assert all(each.offset == 0 for each in service.admin().group_offsets("g"))
        consumer.poll(1)
        assert service.admin().group_offsets("g")[0].offset == 4


def test_at_most_once_commits_before_it_hands_over(clients: ClientKind, orders: str) -> None:
    with clients.consumer(group_id="g", delivery="at_most_once", **FAST) as consumer:
        consumer.assign([P0])
        _take(consumer, 4)
        assert consumer.committed(P0) == 4


def test_at_most_once_hands_nothing_over_when_the_commit_fails(
    clients: ClientKind, faulty: FaultyTransport, orders: str
) -> None:
    with clients.consumer(transport=faulty, group_id="g", delivery="at_most_once", **FAST) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        faulty.faults[OFFSETS] = [answer(403, b"{}")]
        with pytest.raises(AccessDeniedError):
            consumer.poll(4)
        assert _numbers(_take(consumer, 4), 0) == [0, 1, 2, 3]


def test_failed_auto_commit_is_tried_again_later(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clients.consumer(transport=faulty, group_id="g", auto_commit_interval_ms=0, **FAST) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        _take(consumer, 4)

        def fail(*_: object) -> None:
            raise UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "down")

        with monkeypatch.context() as patch:
            for client in (Client, AsyncClient):
                patch.setattr(client, "document", fail)
            consumer.poll(1)
    assert service.admin().group_offsets("g")[0].offset == 5


def test_commit_takes_explicit_offsets(clients: ClientKind, orders: str) -> None:
    with clients.consumer(group_id="g", **FAST) as consumer:
        consumer.commit({P1: 3})
        assert consumer.committed(P1) == 3
        assert consumer.committed(P0) is None


def test_commit_without_a_group_is_refused(clients: ClientKind, orders: str) -> None:
    with clients.consumer(orders, **FAST) as consumer, pytest.raises(InvalidError, match="group_id"):
        consumer.commit({P0: 1})


# Failures.


@pytest.mark.parametrize("fault", [lost_request, answer(503, b"{}"), answer(200, b"<html>")])
def test_passing_failure_of_a_fetch_is_tried_again(
    clients: ClientKind, faulty: FaultyTransport, orders: str, fault: Any
) -> None:
    faulty.faults[FETCH] = [fault, fault]
    with clients.consumer(orders, transport=faulty, **FAST) as consumer:
        assert len(_take(consumer, 20)) == 20


def test_permanent_failure_is_raised_by_poll_and_the_next_may_succeed(
    clients: ClientKind, faulty: FaultyTransport, orders: str
) -> None:
    faulty.faults[FETCH] = [answer(403, b"{}")]
    with clients.consumer(
        orders, transport=faulty, retry_backoff_max_ms=5, fetch_wait_ms=10, retry_backoff_ms=1
    ) as consumer:
        with pytest.raises(AccessDeniedError):
            consumer.poll(timeout_ms=30_000)
        assert len(_take(consumer, 20)) == 20


def test_unknown_topic_is_raised_by_poll(clients: ClientKind) -> None:
    with clients.consumer("nothing", **FAST) as consumer, pytest.raises(UnknownTopicError):
        consumer.poll()


def test_prefetched_records_stay_within_the_buffer(
    clients: ClientKind, service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, fetched = service.transport.call, [0]

    def count(method: str, path: str, *request: Any) -> Response:
        answered = call(method, path, *request)
        if path == FETCH:
            fetched.append(len(answered.body))
        return answered

    monkeypatch.setattr(service.transport, "call", count)
    service.create_topic("big")
    with service.producer(compression_type="none", batch_bytes=10_000) as producer:
        for _ in range(100):
            producer.send("big", b"x" * 9_000)
    with clients.consumer("big", fetch_max_bytes=20_000, buffer_bytes=60_000, **FAST) as consumer:
        returned = 0
        while returned < 100:
            returned += len(consumer.poll(1))
            assert sum(fetched) - returned * 9_000 <= 60_000 + returned * OVERHEAD_BYTES


def test_close_leaves_no_thread_and_refuses_to_go_on(service: MemoryPenstock, orders: str) -> None:
    before = set(threading.enumerate())
    consumer = service.consumer(orders, **FAST)
    consumer.poll()
    consumer.close()
    consumer.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("penstock-fetcher")]
    with pytest.raises(ClosedError):
        consumer.poll()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"delivery": "exactly_twice"}, "'exactly_once'"),
        ({"delivery": "exactly_once"}, "group_id"),
        ({"delivery": "at_most_once"}, "group_id"),
        ({"auto_offset_reset": "first"}, "'earliest'"),
        ({"fetch_max_bytes": 0}, "fetch_max_bytes=0"),
        ({"buffer_bytes": 1}, "buffer_bytes=1"),
        ({"fetch_wait_ms": 60_000}, "fetch_wait_ms=60000"),
        ({"max_poll_records": 0}, "max_poll_records=0"),
    ],
)
def test_settings_that_can_not_be_are_refused(clients: ClientKind, setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        clients.consumer("orders", **setting)


def test_assign_and_topics_exclude_each_other(clients: ClientKind, orders: str) -> None:
    with clients.consumer(orders, **FAST) as consumer, pytest.raises(InvalidError, match="one or the other"):
        consumer.assign([P0])
