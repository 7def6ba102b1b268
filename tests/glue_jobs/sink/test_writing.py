"""Rows to records, by the SDK on the service in memory: a micro-batch is there once, however often it runs."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from penstock import FencedError, Producer
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KIB, REQUEST_BYTES_MAX, TRANSACTION_STAGES_MAX
from penstock_spark.sink.writing import (
    MICRO_BATCH_BYTES_MAX,
    MicroBatchWriter,
    Row,
    WriteOptions,
    WriterCache,
    check_micro_batch_size,
    parse_write_options,
    rows_of,
    send_all,
    size_of,
    transactional_id,
)

QUERY = "5f0c"
COLUMNS = {"key": "binary", "value": "string"}


@pytest.fixture
def service() -> Iterator[MemoryPenstock]:
    with MemoryPenstock() as service:
        service.create_topic("orders", partitions=3)
        yield service


def rows(*values: str) -> list[Row]:
    return [Row(topic="orders", value=value, key=value, headers=(), partition=None) for value in values]


def write(service: MemoryPenstock, batch_id: int, *values: str, query_id: str = QUERY) -> bool:
    """Write a micro-batch as a driver that has just started."""
    with closing(writer(service, query_id)) as new:
        return new.write(batch_id, rows(*values))


def writer(service: MemoryPenstock, query_id: str = QUERY) -> MicroBatchWriter:
    producer = service.producer(transactional_id=transactional_id(query_id))
    return MicroBatchWriter(producer, service.admin(), query_id)


def values_of(service: MemoryPenstock) -> list[bytes]:
    return sorted(record.value or b"" for record in service.records("orders"))


def test_a_micro_batch_that_runs_again_is_not_written_again(service: MemoryPenstock) -> None:
    assert write(service, 0, "a", "b")
    assert not write(service, 0, "b", "a"), "the rows may come in any order, from any tasks"
    assert write(service, 1, "c")
    assert not write(service, 0, "a", "b")

    assert values_of(service) == [b"a", b"b", b"c"]


def test_a_micro_batch_that_fails_midway_leaves_nothing_and_is_written_next_time(service: MemoryPenstock) -> None:
    def torn() -> Iterator[Row]:
        yield from rows("a", "b")
        raise ConnectionError("the executor is gone")

    with closing(writer(service)) as failing, pytest.raises(ConnectionError):
        failing.write(0, torn())
    assert values_of(service) == []

    assert write(service, 0, "a", "b")
    assert values_of(service) == [b"a", b"b"]


def test_driver_writes_nothing_when_another_has_fenced_it(service: MemoryPenstock) -> None:
    def overtaken() -> Iterator[Row]:
        yield from rows("a")
        assert write(service, 0, "a")

    with closing(writer(service)) as old, pytest.raises(FencedError):
        old.write(0, overtaken())
    assert values_of(service) == [b"a"]


def test_writer_sends_one_request_for_a_micro_batch_when_it_is_kept(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    call = service.transport.call

    def counted(method: str, path: str, *arguments: Any) -> Response:
        paths.append(path)
        return call(method, path, *arguments)

    monkeypatch.setattr(service.transport, "call", counted)
    with closing(writer(service)) as kept:
        assert kept.write(3, rows("a"))
        paths.clear()
        assert kept.write(4, rows("b"))
        assert paths == ["/v1/transactions"]
        assert not kept.write(5, [])
        assert not kept.write(4, rows("b")), "the note is read again where it could be written already"
    assert values_of(service) == [b"a", b"b"]


def test_kept_writer_writes_nothing_when_another_driver_wrote_in_between(service: MemoryPenstock) -> None:
    with closing(writer(service)) as kept:
        assert kept.write(0, rows("a"))
        assert write(service, 1, "b")
        with pytest.raises(FencedError):
            kept.write(1, rows("b"))
        with pytest.raises(FencedError):
            kept.write(2, rows("c"))
    assert values_of(service) == [b"a", b"b"]


def test_a_process_keeps_its_writer_until_it_fails_or_another_query_comes(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_producer(_: WriteOptions, transactional_id: str) -> Producer:
        opened.append(transactional_id)
        return service.producer(transactional_id=transactional_id)

    monkeypatch.setattr("penstock_spark.sink.writing.open_producer", open_producer)
    monkeypatch.setattr("penstock_spark.sink.writing.open_admin", lambda _: service.admin())
    options = parse_write_options({"topic": "orders"}, COLUMNS, is_stream=True)
    kept = WriterCache()

    kept.write(options, QUERY, 0, rows("a"))
    kept.write(options, QUERY, 1, rows("b"))
    assert opened == ["spark-5f0c"]
    assert write(service, 2, "c")
    with pytest.raises(FencedError):
        kept.write(options, QUERY, 2, rows("c"))
    kept.write(options, QUERY, 2, rows("c"))
    kept.write(options, "other", 0, rows("d"))
    assert opened == ["spark-5f0c", "spark-5f0c", "spark-other"]
    kept.close()
    assert values_of(service) == [b"a", b"b", b"c", b"d"]


def test_queries_do_not_take_each_others_micro_batches_for_theirs(service: MemoryPenstock) -> None:
    assert write(service, 0, "a")
    assert write(service, 0, "a", query_id="other")

    assert values_of(service) == [b"a", b"a"]


def test_a_micro_batch_without_rows_writes_nothing(service: MemoryPenstock) -> None:
    assert not write(service, 0)
    assert write(service, 1, "a")


def test_rows_have_all_that_the_columns_say(service: MemoryPenstock) -> None:
    service.create_topic("bills")
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "value": pa.array([b"v", None], pa.binary()),
            "key": pa.array([None, "k"], pa.string()),
            "headers": pa.array([[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], None], headers),
            "topic": pa.array(["orders", "bills"]),
            "partition": pa.array([2, None], pa.int32()),
        }
    )

    with service.producer() as producer:
        assert send_all(producer, rows_of([batch], None)) == 2

    [first] = service.records("orders")
    [second] = service.records("bills")
    assert (first.key, first.value, first.partition) == (None, b"v", 2)
    assert [tuple(each) for each in first.headers] == [("h", b"1"), ("n", None)]
    assert (second.key, second.value) == (b"k", None)


def test_the_option_topic_goes_before_the_column_and_a_row_must_have_one() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "topic": pa.array([None], pa.string())})

    assert [row.topic for row in rows_of([batch], "orders")] == ["orders"]
    with pytest.raises(PenstockError, match="topic is null"):
        list(rows_of([batch], None))


@pytest.mark.parametrize(
    ("given", "columns", "message"),
    [
        ({}, COLUMNS, "no topic to write to"),
        ({"topic": "a", "acks": "0"}, COLUMNS, "unknown option 'acks'"),
        ({"topic": "a"}, {"key": "string"}, "there must be one called value"),
        ({"topic": "a"}, {"value": "bigint"}, "column value of type bigint cannot be written"),
        ({"topic": "a"}, {**COLUMNS, "amount": "int"}, "column amount"),
        ({"topic": "a", "compressionType": "rar"}, COLUMNS, "compressionType"),
        ({"topic": "a", "delivery": "exactly_once"}, COLUMNS, "only streams are written exactly once"),
    ],
)
def test_write_is_refused_with_the_way_out_when_its_options_are_wrong(
    given: dict[str, str], columns: dict[str, str], message: str
) -> None:
    with pytest.raises(PenstockError, match=message) as raised:
        parse_write_options(given, columns, is_stream=False)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_streams_are_written_exactly_once_by_default() -> None:
    options: dict[str, Any] = {"topic": "orders", "checkpointLocation": "somewhere"}

    assert parse_write_options(options, COLUMNS, is_stream=True).delivery == "exactly_once"
    options_given = parse_write_options({**options, "delivery": "at_least_once"}, COLUMNS, is_stream=True)
    assert options_given.delivery == "at_least_once"


def test_a_micro_batch_that_no_transaction_holds_is_refused_before_it_is_sent() -> None:
    check_micro_batch_size(MICRO_BATCH_BYTES_MAX)
    with pytest.raises(
        PenstockError, match=r"of 241 MiB: 240 MiB at most .* delivery=at_least_once; .* less at a time"
    ):
        check_micro_batch_size(MICRO_BATCH_BYTES_MAX + 1)


@pytest.mark.parametrize("value_bytes", [0, 10, 1_000])
def test_micro_batch_fits_into_a_transaction_when_it_is_not_refused(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch, value_bytes: int
) -> None:
    """The test scales requests and batches down to a hundredth."""
    request_bytes, batch_bytes = REQUEST_BYTES_MAX // 100, 256 * KIB // 100
    stages: list[int] = []
    call = service.transport.call

    def counted(method: str, path: str, *arguments: Any) -> Response:
        stages.append(path == "/v1/transactions")
        return call(method, path, *arguments)

    monkeypatch.setattr(service.transport, "call", counted)
    values = pa.array([b"x" * value_bytes] * 100, pa.binary())
    some = pa.record_batch({"value": values, "key": values, "partition": pa.array([*range(3), None] * 25, pa.int32())})
    limit = TRANSACTION_STAGES_MAX * (request_bytes - batch_bytes)
    producer = service.producer(
        transactional_id=transactional_id(QUERY), max_request_bytes=request_bytes, batch_bytes=batch_bytes
    )

    with closing(MicroBatchWriter(producer, service.admin(), QUERY)) as new:
        assert new.write(0, rows_of([some] * (limit // size_of(some)), "orders"))

    assert len(list(service.records("orders"))) == limit // size_of(some) * 100
    assert TRANSACTION_STAGES_MAX // 2 < sum(stages) <= TRANSACTION_STAGES_MAX + 1


def test_a_micro_batch_over_98_partitions_is_written_and_over_99_refused_with_what_to_do(
    service: MemoryPenstock,
) -> None:
    service.create_topic("wide", partitions=99)

    def over(partitions: int) -> list[Row]:
        return [Row(topic="wide", value="v", key=None, headers=(), partition=each) for each in range(partitions)]

    with closing(writer(service)) as new, pytest.raises(PenstockError) as raised:
        new.write(0, over(99))
    assert raised.value.code is ErrorCode.TRANSACTION_TOO_LARGE
    assert "99 partitions and 1 offsets: 99 together at most" in raised.value.message
    assert "delivery=at_least_once" in raised.value.message
    assert list(service.records("wide")) == []

    with closing(writer(service)) as new:
        assert new.write(0, over(98))
    assert len(list(service.records("wide"))) == 98
