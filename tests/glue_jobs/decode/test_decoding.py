"""Batches to Arrow: the result agrees, row for row, with the record codec and with a foreign decoder."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import MIB
from penstock_core.records.codec import NewRecord, encode, with_records
from penstock_core.records.codec import decode as decode_records
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, NO_TIME_MS, Compression, parse_header, stamp
from penstock_core.records.undecodable import raise_undecodable
from penstock_spark.decode import decoding
from penstock_spark.decode.by_codec import ARROW_ROWS_MAX, BatchRange, decode_by_codec
from penstock_spark.decode.decoding import StoredBatches, decode, kafka_schema
from tests.support.poison import bomb, undecodable_batch
from tests.support.push_records import StoredRecord

NOW_MS = 1_790_000_000_000

batches_of_records = st.lists(
    st.tuples(
        st.sampled_from(Compression),
        st.lists(
            st.builds(
                NewRecord,
                timestamp_ms=st.integers(0, 2**47),
                key=st.none() | st.binary(max_size=200),
                value=st.none() | st.binary(max_size=300) | st.integers(0, 900).map(lambda n: b"penstock " * n),
                headers=st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3),
            ),
            min_size=1,
            max_size=20,
        ),
    ),
    min_size=1,
    max_size=6,
)


def stored(data: bytes, base_offset: int = 0, **changes: Any) -> StoredBatches:
    whole = StoredBatches(
        topic="orders", partition=3, data=data, base_offset=base_offset, start_offset=0, end_offset=2**62
    )
    return replace(whole, **changes)


def rows_of(*pieces: StoredBatches, with_headers: bool = True) -> list[dict[str, Any]]:
    return [row for batch in decode(pieces, kafka_schema(with_headers=with_headers)) for row in batch.to_pylist()]


def milliseconds(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def summary(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["offset"], row["key"], row["value"]) for row in rows]


@given(batches=batches_of_records, base_offset=st.integers(0, 2**40), data=st.data())
def test_decode_agrees_with_the_record_codec_on_any_batches(
    batches: Any, base_offset: int, data: st.DataObject
) -> None:
    content = bytearray(b"".join(encode(records, compression) for compression, records in batches))
    end_offset = stamp(content, base_offset)
    start = data.draw(st.integers(base_offset, end_offset))
    end = data.draw(st.integers(start, end_offset))

    found = rows_of(stored(bytes(content), base_offset, start_offset=start, end_offset=end))

    expected = [record for record in decode_records(bytes(content)) if start <= record.offset < end]
    assert [
        (row["offset"], milliseconds(row["timestamp"]), row["key"], row["value"], row["headers"]) for row in found
    ] == [
        (
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            [{"key": name, "value": value} for name, value in record.headers] or None,
        )
        for record in expected
    ]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in found} <= {("orders", 3, 0)}


@given(batches=batches_of_records)
def test_decode_agrees_with_aiokafka_on_uncompressed_batches(batches: Any) -> None:
    plain = [encode(records) for _, records in batches]
    expected: list[tuple[int, bytes | None, bytes | None]] = []
    for batch in plain:
        base = len(expected)
        expected += [(base + record.offset, record.key, record.value) for record in DefaultRecordBatch(batch)]

    assert summary(rows_of(stored(b"".join(plain)), with_headers=False)) == expected


def test_decode_yields_nothing_of_nothing() -> None:
    assert rows_of() == []
    assert rows_of(stored(encode([NewRecord(NOW_MS, None, b"one")]), start_offset=1)) == []


def test_decode_keeps_offsets_of_batches_with_gaps_and_without_records() -> None:
    gapped = without(encode([NewRecord(NOW_MS, b"k", b"%d" % n) for n in range(6)]), removed={0, 2, 3, 5})
    empty = without(encode([NewRecord(NOW_MS, b"k", b"gone")] * 4), removed={0, 1, 2, 3})
    last = encode([NewRecord(NOW_MS, None, b"last")])

    found = rows_of(stored(gapped + empty + last, 100))

    assert summary(found) == [(101, b"k", b"1"), (104, b"k", b"4"), (110, None, b"last")]


@pytest.mark.parametrize("compression", Compression)
def test_decode_takes_ten_megabytes_of_one_key(compression: Compression) -> None:
    records = [NewRecord(NOW_MS, b"one key", bytes([n]) * MIB) for n in range(10)]

    found = rows_of(stored(encode(records, compression)), with_headers=False)

    assert [row["value"] for row in found] == [record.value for record in records]


def test_decode_bounds_its_batches_by_rows_and_bytes() -> None:
    many = stored(encode([NewRecord(NOW_MS, None, b"x")] * (ARROW_ROWS_MAX + 5)))
    large = stored(encode([NewRecord(NOW_MS, None, bytes(9 * MIB))] * 3), partition=4)

    sizes = [batch.num_rows for batch in decode([many, large], kafka_schema(with_headers=False))]

    assert sizes == [ARROW_ROWS_MAX, 5, 1, 1, 1]


def test_decode_joins_small_ranges_of_several_partitions_in_one_batch() -> None:
    pieces = [stored(encode([NewRecord(NOW_MS, None, b"%d" % n)]), 10 * n, partition=n) for n in range(20)]

    [batch] = decode(pieces, kafka_schema(with_headers=False))

    assert batch.column("partition").to_pylist() == list(range(20))
    assert batch.column("offset").to_pylist() == [10 * n for n in range(20)]


def test_decode_keeps_topics_apart() -> None:
    piece = stored(encode([NewRecord(NOW_MS, None, b"x")]))

    batches = list(decode([piece, replace(piece, topic="bills")], kafka_schema(with_headers=False)))

    assert [batch.column("topic").to_pylist() for batch in batches] == [["orders"], ["bills"]]


def test_decode_survives_a_buffer_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "CHUNK_BYTES", 1_000)
    pieces = [stored(encode([NewRecord(NOW_MS, None, b"%d" % n * 400)] * 2), 2 * n) for n in range(10)]

    batches = list(decode(pieces, kafka_schema(with_headers=False)))

    assert len(batches) > 3
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert values == [b"%d" % (n // 2) * 400 for n in range(20)]


def test_decode_takes_the_batch_time_of_log_append_time() -> None:
    batch = bytearray(encode([NewRecord(NOW_MS, None, b"a"), NewRecord(NOW_MS + 7, None, b"b")]))
    struct.pack_into(">h", batch, 21, 0x08)

    found = rows_of(stored(sealed(batch)))

    assert [(milliseconds(row["timestamp"]), row["timestampType"]) for row in found] == [(NOW_MS + 7, 1)] * 2


def by_codec(piece: StoredBatches) -> list[dict[str, Any]]:
    """The rows of a piece that is one batch, as where NumPy has doubts."""
    batch = BatchRange(**{field.name: getattr(piece, field.name) for field in fields(BatchRange)})
    found = decode_by_codec(batch, kafka_schema(with_headers=True), raise_undecodable)
    return [row for each in found for row in each.to_pylist()]


@pytest.mark.parametrize("read", [rows_of, by_codec])
def test_decode_takes_a_time_below_minus_one_for_none(read: Callable[[StoredBatches], list[dict[str, Any]]]) -> None:
    header = parse_header(encode([NewRecord(NOW_MS, None, b"v")] * 3))
    records = [StoredRecord(at, time_ms) for at, time_ms in enumerate((NOW_MS, -2, -(2**61)))]
    found = read(stored(with_records(header, records)))
    assert [milliseconds(row["timestamp"]) for row in found] == [NOW_MS, NO_TIME_MS, NO_TIME_MS]


@given(position=st.integers(BATCH_HEADER_BYTES, 400), value=st.integers(0, 255))
def test_decode_refuses_or_reads_but_never_crashes_on_a_batch_built_wrongly(position: int, value: int) -> None:
    batch = bytearray(
        encode([NewRecord(NOW_MS + n, b"key-%d" % n, b"value" * n, [("name", b"%d" % n)]) for n in range(12)])
    )
    batch[position % (len(batch) - BATCH_HEADER_BYTES) + BATCH_HEADER_BYTES] = value

    found = rows_or_error(sealed(batch))

    if isinstance(found, PenstockError):
        assert found.code is ErrorCode.CORRUPT_BATCH
        assert found.facts == {"topic": "orders", "partition": 3, "base_offset": 0, "next_offset": 12}
    else:
        assert len(found) == 12
        assert [row["offset"] for row in found] == sorted({row["offset"] for row in found})


def rows_or_error(data: bytes) -> list[dict[str, Any]] | PenstockError:
    try:
        return rows_of(stored(data))
    except PenstockError as error:
        return error


def test_decode_refuses_control_batches() -> None:
    batch = bytearray(encode([NewRecord(NOW_MS, None, b"marker")]))
    struct.pack_into(">h", batch, 21, 0x20)

    with pytest.raises(PenstockError, match="control batch"):
        rows_of(stored(sealed(batch)))


def test_decode_hands_over_an_undecodable_batch_and_goes_on_behind_it() -> None:
    data = b"".join([encode([NewRecord(NOW_MS, None, b"one")]), undecodable_batch(5), bomb(1), undecodable_batch(2)])
    errors: list[PenstockError] = []

    batches = decode([stored(data, 10)], kafka_schema(with_headers=False), errors.append)

    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [10, 16]
    assert [(error.facts["base_offset"], error.facts["next_offset"]) for error in errors] == [(11, 16), (17, 19)]


def test_decode_yields_the_records_before_an_undecodable_batch_of_a_large_chunk_once() -> None:
    many = encode([NewRecord(NOW_MS, None, bytes(100), [("n", b"v")])] * (ARROW_ROWS_MAX + 10))
    bad_headers = encode([NewRecord(NOW_MS, None, b"v", [("n", b"v")])] * 3).replace(b"\x02n", b"\x02\xff", 1)
    errors: list[PenstockError] = []

    found = decode([stored(many + sealed(bytearray(bad_headers)))], kafka_schema(with_headers=True), errors.append)

    offsets = [offset for batch in found for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(ARROW_ROWS_MAX + 10))
    assert [error.facts["base_offset"] for error in errors] == [ARROW_ROWS_MAX + 10]


def test_decode_takes_a_negative_length_for_null_as_the_sdk_does() -> None:
    batch = encode([NewRecord(NOW_MS, None, b"v")]).replace(b"\0\0\0\x01\x02v", b"\0\0\0\x05\x02v")  # a key of -3

    [row] = rows_of(stored(sealed(bytearray(batch))))

    assert (row["key"], row["value"]) == (None, b"v")
    assert [record.key for record in decode_records(sealed(bytearray(batch)))] == [None]


def without(batch: bytes, removed: set[int]) -> bytes:
    """The batch without some of its records, as compaction leaves it. The others keep their offsets."""
    header = parse_header(batch)
    kept = [record for index, record in enumerate(raw_records(batch)) if index not in removed]
    rest = bytearray(batch[:BATCH_HEADER_BYTES] + b"".join(kept))
    struct.pack_into(">i", rest, 8, len(rest) - 12)
    struct.pack_into(">i", rest, 57, len(kept))
    assert parse_header(sealed(rest)).offset_span == header.offset_span
    return sealed(rest)


def raw_records(batch: bytes) -> Iterator[bytes]:
    """Each record's bytes. All are shorter than 64, so that a length is one byte."""
    position = BATCH_HEADER_BYTES
    while position < len(batch):
        end = position + 1 + (batch[position] >> 1)
        yield batch[position:end]
        position = end


def sealed(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)
