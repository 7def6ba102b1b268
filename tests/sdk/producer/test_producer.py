import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest

from penstock.errors import (
    BufferFullError,
    ClosedError,
    InvalidError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
)
from penstock.model import RecordMetadata, TopicPartition
from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError
from penstock_core.records import frame
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.client_kinds import ClientKind
from tests.sdk.http.faulty_transport import FaultyTransport, answer, lost_request
from tests.sdk.polling import poll_count
from tests.support.deadlines import DEADLINE_S, until

PRODUCE = "/v1/produce"


@pytest.fixture
def orders(service: MemoryPenstock) -> str:
    return service.create_topic("orders", partitions=3).name


def _values(service: MemoryPenstock, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in service.records(topic)]


def test_sent_record_arrives_as_it_was(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.producer() as producer:
        sent = producer.send(
            orders, b"\xffvalue", key=b"key", headers=[("h", b"1"), ("h", None)], partition=2, timestamp_ms=1_234
        )
    assert sent.result(DEADLINE_S) == RecordMetadata("orders", 2, 0, 1_234)
    (record,) = service.records(orders)
    assert record == ("orders", 2, 0, 1_234, b"key", b"\xffvalue", (("h", b"1"), ("h", None)))


def test_text_is_sent_as_utf8_and_none_as_tombstone(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.producer() as producer:
        producer.send(orders, "é", key="ключ", partition=0)
        producer.send(orders, None, key="ключ", partition=0)
    assert [(record.key, record.value) for record in service.records(orders)] == [
        ("ключ".encode(), "é".encode()),
        ("ключ".encode(), None),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_arrives_once_and_in_order_under_each_compression(
    clients: ClientKind, service: MemoryPenstock, orders: str, compression: str
) -> None:
    with clients.producer(compression_type=compression, batch_bytes=2_000) as producer:
        for number in range(3_000):
            producer.send(orders, b"%d" % number, key=b"%d" % (number % 7))
    records = service.records(orders)
    assert sorted(int(record.value or b"") for record in records) == list(range(3_000))
    for partition in range(3):
        numbers = [int(record.value or b"") for record in records if record.partition == partition]
        assert numbers == sorted(numbers)


def test_key_decides_the_partition_as_in_kafka(clients: ClientKind, orders: str) -> None:
    with clients.producer() as producer:
        sent = {key: producer.send(orders, b"", key=key) for key in (b"a", b"b", b"customer 7", b"")}
    assert {key: each.result(DEADLINE_S).partition for key, each in sent.items()} == {
        key: partition_for_key(key, 3) for key in sent
    }


def test_several_topics_and_partitions_travel_in_one_request(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, orders: str
) -> None:
    service.create_topic("payments", partitions=2)
    with clients.producer(transport=faulty, linger_ms=60_000) as producer:
        for partition in range(3):
            producer.send(orders, b"o", partition=partition)
        producer.send("payments", b"p", partition=1)
        producer.flush(DEADLINE_S)
        assert faulty.count(PRODUCE) == 1
    assert len(_values(service)) == 3
    assert _values(service, "payments") == [b"p"]


def test_unknown_topic_and_partition_are_refused_at_send(clients: ClientKind, orders: str) -> None:
    with clients.producer() as producer:
        with pytest.raises(UnknownTopicError):
            producer.send("nothing", b"v")
        with pytest.raises(UnknownPartitionError, match="0 to 2"):
            producer.send(orders, b"v", partition=3)
        with pytest.raises(InvalidError):
            producer.send("a/b", b"v")


def test_new_partition_is_found_when_it_is_named(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.producer() as producer:
        producer.send(orders, b"v", partition=0)
        service.admin().add_partitions(orders, 5)
        assert producer.send(orders, b"v", partition=4).result(DEADLINE_S).partition == 4


def test_topic_made_anew_with_fewer_partitions_is_noticed(
    clients: ClientKind, service: MemoryPenstock, orders: str
) -> None:
    with clients.producer() as producer:
        keys = [b"%d" % number for number in range(20)]
        for key in keys:
            producer.send(orders, b"old", key=key)
        producer.flush()
        service.admin().delete_topic(orders)
        service.create_topic(orders, partitions=1)
        for key in keys:
            producer.send(orders, b"lost or new", key=key)
        producer.flush()
        sent = [producer.send(orders, b"new", key=key) for key in keys]
    assert {each.result(DEADLINE_S).partition for each in sent} == {0}


@pytest.mark.parametrize("wrong", [{"value": 7}, {"value": b"", "key": 7}, {"value": b"", "timestamp_ms": -2}])
def test_values_of_a_wrong_type_are_refused_at_send(
    clients: ClientKind, service: MemoryPenstock, orders: str, wrong: dict[str, Any]
) -> None:
    with clients.producer() as producer:
        with pytest.raises(InvalidError):
            producer.send(orders, **wrong)
        producer.send(orders, b"good", partition=0)
    assert _values(service) == [b"good"]


def test_record_over_the_topics_limit_is_refused_at_send(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("small", config={"max_batch_bytes": 2_000})
    with clients.producer() as producer:
        with pytest.raises(RecordTooLargeError, match="max_batch_bytes is 2,000"):
            producer.send("small", b"x" * 2_000)
        for _ in range(10):
            producer.send("small", b"y" * 1_500)
    assert len(service.records("small")) == 10


def test_record_without_a_key_is_refused_at_send_when_the_topic_is_compacted(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("table", config={"cleanup_policy": "compact"})
    with clients.producer() as producer:
        for partition in (None, 0):
            with pytest.raises(InvalidError, match="INVALID_RECORD: topic 'table' is compacted"):
                producer.send("table", b"v", partition=partition)
        producer.send("table", None, key=b"")
    assert len(service.records("table")) == 1


def test_send_waits_for_memory_then_gives_up(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    gate = threading.Event()
    faulty.faults[PRODUCE] = [lambda send: (gate.wait(), send())[1]]
    with clients.producer(
        transport=faulty, buffer_bytes=1_000, batch_bytes=1_000, max_block_ms=1, linger_ms=0
    ) as producer:
        try:
            first = producer.send(orders, b"x" * 900, partition=0)
            with pytest.raises(BufferFullError, match="buffer_bytes"):
                producer.send(orders, b"x" * 900, partition=0)
        finally:
            gate.set()
        first.result(DEADLINE_S)
        assert producer.send(orders, b"x" * 900, partition=0).result(DEADLINE_S).offset == 1


def test_blocked_send_goes_on_when_memory_is_free(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.producer(buffer_bytes=5_000, batch_bytes=1_000, linger_ms=60_000) as producer:
        for _ in range(200):
            producer.send(orders, b"x" * 100)
    assert len(_values(service)) == 200


def test_flush_does_not_linger_and_leaves_nothing_undelivered(clients: ClientKind, orders: str) -> None:
    with clients.producer(linger_ms=600_000) as producer:
        sent = [producer.send(orders, b"v") for _ in range(10)]
        producer.flush(DEADLINE_S)
        assert all(each.done() for each in sent)


def test_flush_raises_when_its_time_runs_out(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    gate = threading.Event()
    faulty.faults[PRODUCE] = [lambda send: (gate.wait(), send())[1]]
    with clients.producer(transport=faulty) as producer:
        producer.send(orders, b"v")
        try:
            with pytest.raises(TimeoutError):
                producer.flush(0.001)
        finally:
            gate.set()


def test_close_delivers_all_records_and_leaves_no_thread(service: MemoryPenstock, orders: str) -> None:
    before = set(threading.enumerate())
    producer = service.producer(linger_ms=600_000)
    sent = producer.send(orders, b"v")
    producer.close()
    assert sent.done()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("penstock-sender")]
    with pytest.raises(ClosedError):
        producer.send(orders, b"v")
    producer.close()


def test_idle_topic_is_forgotten_and_described_again_when_there_are_too_many(
    clients: ClientKind, service: MemoryPenstock, faulty: FaultyTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.producer.producer_core.SDK_TOPICS_REMEMBERED_MAX", 2)
    for name in ("a", "b", "c"):
        service.create_topic(name)
    described: list[int] = []
    with clients.producer(transport=faulty) as producer:
        for name in ("a", "b", "b", "c", "a"):
            producer.send(name, b"v").result(DEADLINE_S)
            described.append(faulty.count("/v1/metadata"))
    assert described == [1, 2, 2, 3, 4]
    assert [len(service.records(name)) for name in ("a", "b", "c")] == [2, 2, 1]


def test_close_fails_undelivered_records_when_its_time_is_over(
    clients: ClientKind, faulty: FaultyTransport, orders: str
) -> None:
    faulty.faults[PRODUCE] = [lost_request] * 1_000
    producer = clients.producer(transport=faulty, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    sent = producer.send(orders, b"v")
    producer.close(timeout=0.01)
    assert isinstance(sent.exception(DEADLINE_S), PenstockError)


def test_callbacks_tell_each_record(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    told: list[tuple[str | None, int]] = []
    faulty.faults[PRODUCE] = [answer(403, b"{}")]
    with clients.producer(
        transport=faulty, on_delivery=lambda error, at: told.append((error.code.name if error else None, at.offset))
    ) as producer:
        producer.send(orders, b"v", partition=0)
        producer.flush()
        producer.send(orders, b"v", partition=0)
        producer.send(orders, b"v", partition=0, on_delivery=lambda error, at: told.append(("own", at.offset)))
        producer.flush()
    assert told == [("ACCESS_DENIED", -1), (None, 0), ("own", 1)]


def test_exception_of_a_delivery_callback_harms_no_other_record(clients: ClientKind, orders: str) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with clients.producer(on_delivery=fail) as producer:
        assert producer.send(orders, b"v").result(DEADLINE_S).offset == 0


def test_future_works_with_wait_asyncio_and_late_callbacks(service: MemoryPenstock, orders: str) -> None:
    async def as_awaitable(sent: concurrent.futures.Future[RecordMetadata]) -> RecordMetadata:
        return await asyncio.wrap_future(sent)

    with service.producer() as producer:
        sent = [producer.send(orders, b"v", partition=0) for _ in range(20)]
        done, _ = concurrent.futures.wait(sent[:10], DEADLINE_S)
        assert len(done) == 10
        assert asyncio.run(as_awaitable(sent[10])).offset == 10
        assert not sent[11].cancel()
        sent[12].result(DEADLINE_S)
    told: list[int] = []
    sent[13].add_done_callback(lambda each: told.append(each.result().offset))
    assert told == [13]
    with pytest.raises(AttributeError):
        sent[14].nothing  # noqa: B018 - the look-up is tested


def test_many_threads_may_send(clients: ClientKind, service: MemoryPenstock, orders: str) -> None:
    with clients.producer(batch_bytes=500) as producer:

        def send(thread: int) -> None:
            for number in range(200):
                producer.send(orders, b"%d %d" % (thread, number), partition=thread % 3)

        threads = [threading.Thread(target=send, args=(each,)) for each in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = [tuple(map(int, (value or b"").split())) for value in _values(service)]
    assert sorted(seen) == [(thread, number) for thread in range(6) for number in range(200)]
    for sender in range(6):
        assert [number for each, number in seen if each == sender] == list(range(200))


@pytest.mark.parametrize(
    "setting",
    [
        {"acks": "some"},
        {"compression_type": "rar"},
        {"linger_ms": -1},
        {"batch_bytes": 0},
        {"max_request_bytes": 5 * 1024 * 1024},
        {"buffer_bytes": 1},
        {"max_in_flight": 0},
    ],
)
def test_settings_that_can_not_be_are_refused(clients: ClientKind, setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=str(next(iter(setting.values())))):
        clients.producer(**setting)


def test_request_stays_within_4_mib(clients: ClientKind, faulty: FaultyTransport, orders: str) -> None:
    with clients.producer(transport=faulty, compression_type="none", linger_ms=60_000) as producer:
        for number in range(1_000):
            producer.send(orders, b"x" * 20_000, partition=number % 3)
    bodies = [body for _, path, body in faulty.calls if path == PRODUCE]
    assert max(map(len, bodies)) <= 4 * 1024 * 1024
    for body in bodies:
        header, _ = frame.decode(body)
        named = [TopicPartition(each["topic"], each["partition"]) for each in header["batches"]]  # type: ignore[attr-defined]  # JSON
        assert len(named) == len(set(named))


def test_flush_in_on_delivery_is_refused_instead_of_waiting_for_itself(service: MemoryPenstock) -> None:
    orders = service.create_topic("orders").name
    told: list[InvalidError] = []
    with service.producer(max_in_flight=1) as producer:

        def flush(_error: object, _metadata: object) -> None:
            producer.send(orders, b"2")
            with pytest.raises(InvalidError, match="outside") as refused:
                producer.flush()
            told.append(refused.value)

        producer.send(orders, b"1", on_delivery=flush)
        producer.flush()
        until(lambda: told)
    assert [each.value for each in service.records(orders)] == [b"1", b"2"]


def test_close_in_on_delivery_delivers_what_was_sent_before(service: MemoryPenstock) -> None:
    orders = service.create_topic("orders").name
    producer = service.producer(max_in_flight=1)
    later: list[concurrent.futures.Future[RecordMetadata]] = []

    def close(_error: object, _metadata: object) -> None:
        later.append(producer.send(orders, b"2"))
        producer.close()

    producer.send(orders, b"1", on_delivery=close)
    until(lambda: later and later[0].done())
    with pytest.raises(ClosedError):
        producer.send(orders, b"3")
    producer.close()
    assert [each.value for each in service.records(orders)] == [b"1", b"2"]


def test_flush_waits_for_callbacks_that_are_under_way(service: MemoryPenstock, orders: str) -> None:
    told: list[int] = []
    is_begun, may_end = threading.Event(), threading.Event()

    def tell(_: PenstockError | None, at: RecordMetadata) -> None:
        is_begun.set()
        may_end.wait(DEADLINE_S)
        told.append(at.offset)

    with service.producer(on_delivery=tell) as producer:
        producer.send(orders, b"v", partition=0)
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        assert is_begun.wait(DEADLINE_S)
        flushing.join(0.05)
        assert flushing.is_alive()
        may_end.set()
        flushing.join(DEADLINE_S)
        assert told == [0]


@pytest.mark.parametrize(
    "headers", [{"a": "é", "b": None}, [("a", "é"), ("b", None)], (("a", "é".encode()), ("b", None))]
)
def test_headers_are_a_dict_or_pairs_and_text_is_utf8(service: MemoryPenstock, headers: Any) -> None:
    service.create_topic("told")
    with service.producer() as producer:
        producer.send("told", b"v", headers=headers).result()
    with service.consumer("told", auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        assert poll_count(1, consumer)[0].headers == (("a", "é".encode()), ("b", None))
