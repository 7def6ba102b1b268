from types import SimpleNamespace
from typing import Any

import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.records import codec as records_module
from penstock_core.records.codec import (
    BatchBuilder,
    NewRecord,
    decode,
    encode,
    keep_records,
    record_bytes_max,
    time_of,
)
from penstock_core.records.compression import SNAPPY_MAGIC, compress
from penstock_core.records.record_batch import (
    BATCH_HEADER_BYTES,
    NO_TIME_MS,
    Compression,
    parse_header,
    stamp,
    validate,
)
from tests.core.records.record_samples import GOLDEN_RECORDS, NOW_MS, contents, every_compression, new_records, sealed

# `GOLDEN_RECORDS` as kafka-python 3.0.12 wrote them with lz4 4.4.5, zstandard 0.25.0 and python-snappy 0.7.3, by the
# producer (7, 3, 11).
GOLDEN = {
    Compression.NONE: (
        "00000000000000000000012f0000000002e101eb91000000000002000001a0c4506c00000001a0c4506c05000000000000000700"
        "030000000b00000003fa01000000066b6579d801" + (b"penstock " * 12).hex() + "0402680231026e01e601000a0201d801"
        "" + (b"penstock " * 12).hex() + "0012000604066b65790100"
    ),
    Compression.GZIP: (
        "000000000000000000000075000000000241d223d8000100000002000001a0c4506c00000001a0c4506c05000000000000000700"
        "030000000b000000031f8b08000648016b02fffbc5c8c0c0c0969d5a7983b12035afb8243f395b810e0c16a60c2643a63cc6678c"
        "0c5c4c8cf4b59b4188818d05e4654606009332b786fe000000"
    ),
    Compression.SNAPPY: (
        "000000000000000000000083000000000276a1118d000200000002000001a0c4506c00000001a0c4506c05000000000000000700"
        "030000000b0000000382534e415050590000000001000000010000003efe014cfa01000000066b6579d80170656e73746f636b20"
        "fe09008a0900340402680231026e01e601000a0201fe7c00b67c00280012000604066b65790100"
    ),
    Compression.LZ4: (
        "00000000000000000000007f00000000022d1aa5a1000300000002000001a0c4506c00000001a0c4506c05000000000000000700"
        "030000000b0000000304224d186840fe00000000000000a237000000ff05fa01000000066b6579d80170656e73746f636b200900"
        "50ef0402680231026e01e601000a02017c005bb00012000604066b6579010000000000"
    ),
    Compression.ZSTD: (
        "00000000000000000000007200000000027efb4b8d000400000002000001a0c4506c00000001a0c4506c05000000000000000700"
        "030000000b0000000328b52ffd20fec50100d402fa01000000066b6579d80170656e73746f636b200402680231026e01e601000a"
        "02010012000604066b657901000200eb0fa902981626"
    ),
}


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python, with cramjam's compression where the checkout lacks the libraries it would use.

    GOLDEN holds what it writes with those libraries.
    """
    if not kafka.codec.has_snappy():
        snappy = SimpleNamespace(
            compress=cramjam.snappy.compress_raw, decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data))
        )
        monkeypatch.setattr(kafka.codec, "snappy", snappy)
    for name in ("lz4", "zstd"):
        if not getattr(kafka.codec, f"has_{name}")():
            module = getattr(cramjam, name)
            monkeypatch.setattr(kafka.codec, f"has_{name}", lambda: True)
            monkeypatch.setattr(
                kafka_python, f"{name}_encode", lambda data, module=module: bytes(module.compress(data))
            )
            monkeypatch.setattr(
                kafka_python, f"{name}_decode", lambda data, module=module: bytes(module.decompress(data))
            )


@given(st.lists(new_records, min_size=1, max_size=3), st.sampled_from(Compression), st.integers(0, 2**60))
def test_decode_returns_what_was_encoded(batches: list[list[NewRecord]], compression: Compression, base: int) -> None:
    data = bytearray(b"".join(encode(records, compression) for records in batches))
    stamp(data, base)
    for buffer in (bytes(data), data, memoryview(data)):
        decoded = list(decode(buffer))
        assert contents(decoded) == [record for records in batches for record in records]
        assert [record.offset for record in decoded] == list(range(base, base + sum(map(len, batches))))


@given(new_records, st.sampled_from(Compression))
def test_what_encode_builds_passes_validation(records: list[NewRecord], compression: Compression) -> None:
    summary = validate(encode(records, compression))
    assert summary.record_count == summary.offset_span == len(records)
    assert summary.max_timestamp_ms == max(record.timestamp_ms for record in records)


def test_encode_writes_golden_bytes() -> None:
    assert encode([NewRecord(NOW_MS, b"k", b"v", [("h", None)]), NewRecord(NOW_MS + 1, None, None)]) == bytes.fromhex(
        "0000000000000000 00000044 ffffffff 02 37456bcd 0000 00000001 000001a0c4506c00 000001a0c4506c01"
        "ffffffffffffffff ffff ffffffff 00000002 16000000026b0276020268010c000202010100"
    )


@every_compression
def test_decode_reads_what_kafka_python_wrote(compression: Compression) -> None:
    data = bytes.fromhex(GOLDEN[compression])
    assert parse_header(data).compression is compression
    assert validate(data).record_count == 3
    assert contents(decode(data)) == GOLDEN_RECORDS


@pytest.mark.slow
@pytest.mark.usefixtures("foreign")
@every_compression
@given(records=new_records)
def test_kafka_python_reads_what_encode_wrote(compression: Compression, records: list[NewRecord]) -> None:
    batch = kafka_python.DefaultRecordBatch(encode(records, compression))
    assert batch.validate_crc()
    decoded = list(batch)
    assert contents(decoded) == records
    assert [record.offset for record in decoded] == list(range(len(records)))


@pytest.mark.slow
@pytest.mark.usefixtures("foreign")
@every_compression
@given(records=new_records)
def test_decode_reads_what_kafka_python_writes(compression: Compression, records: list[NewRecord]) -> None:
    builder = kafka_python.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=2**30,
    )
    for offset, record in enumerate(records):
        builder.append(offset, *record)
    data = bytes(builder.build())
    assert validate(data).record_count == len(records)
    assert contents(decode(data)) == records


@every_compression
def test_encode_compresses_when_that_makes_the_batch_smaller(compression: Compression) -> None:
    plain = encode(GOLDEN_RECORDS)
    batch = encode(GOLDEN_RECORDS, compression)
    assert parse_header(batch).compression is compression
    assert compression is Compression.NONE or len(batch) < len(plain)


@every_compression
def test_encode_leaves_a_batch_uncompressed_when_that_is_smaller(compression: Compression) -> None:
    assert encode([NewRecord(NOW_MS, None, b"v")], compression) == encode([NewRecord(NOW_MS, None, b"v")])


@given(st.binary(max_size=100_000), st.integers(0, 3))
def test_snappy_is_read_with_and_without_blocks(value: bytes, repeat: int) -> None:
    plain = encode([NewRecord(NOW_MS, None, value * repeat)])
    records = plain[BATCH_HEADER_BYTES:]
    blocks = compress(records, Compression.SNAPPY)
    assert blocks.startswith(SNAPPY_MAGIC)
    for payload in (blocks, bytes(cramjam.snappy.compress_raw(records))):
        batch = sealed(plain, payload, attributes=Compression.SNAPPY)
        assert contents(decode(batch)) == [NewRecord(NOW_MS, None, value * repeat, [])]


def test_lz4_blocks_are_independent_as_kafkas_java_client_needs_them() -> None:
    frame_flags = compress(bytes(1_000), Compression.LZ4)[4]
    assert frame_flags & 0x20


def test_builder_says_full_and_stays_below_its_bytes() -> None:
    builder = BatchBuilder(batch_bytes=1_000)
    appended = 0
    while builder.append(NOW_MS, b"key", b"v" * 50):
        appended += 1
    assert 10 < appended == builder.record_count == len(list(decode(builder.build())))
    assert 1_000 - record_bytes_max(b"key", b"v" * 50) <= len(builder.build()) == builder.size_bytes < 1_000


def test_builder_takes_a_first_record_of_any_size() -> None:
    builder = BatchBuilder(batch_bytes=100)
    assert builder.append(NOW_MS, None, b"v" * 500)
    assert not builder.append(NOW_MS, None, b"")
    assert builder.size_bytes == len(builder.build()) > 500


def test_builder_is_full_at_the_record_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "BATCH_RECORDS_MAX", 2)
    builder = BatchBuilder()
    assert [builder.append(NOW_MS, None, b"v") for _ in range(3)] == [True, True, False]
    assert len(list(decode(builder.build()))) == 2


@every_compression
def test_builder_builds_again_with_another_producer_and_further_records(compression: Compression) -> None:
    builder = BatchBuilder(compression)
    for record in GOLDEN_RECORDS:
        builder.append(*record)
    first, again = builder.build(), builder.build(producer_id=7, producer_epoch=3, base_sequence=11)
    assert (parse_header(first).producer_id, parse_header(first).base_sequence) == (-1, -1)
    header = parse_header(again)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    builder.append(NOW_MS, None, b"more")
    assert contents(decode(first)) == contents(decode(again)) == GOLDEN_RECORDS
    assert contents(decode(builder.build())) == [*GOLDEN_RECORDS, NewRecord(NOW_MS, None, b"more", [])]


@given(
    st.lists(st.just(NO_TIME_MS) | st.integers(NO_TIME_MS, 2**62), min_size=1, max_size=8), st.sampled_from(Compression)
)
def test_records_without_a_time_survive_a_round_trip_at_any_place(times: list[int], compression: Compression) -> None:
    records = [NewRecord(time_ms, None, b"v" * 100, []) for time_ms in times]
    data = encode(records, compression)
    assert contents(decode(data)) == records
    header = parse_header(data)
    assert (header.first_timestamp_ms, header.max_timestamp_ms) == (times[0], max(times))
    assert validate(data).max_timestamp_ms == max(times)


def test_batch_with_records_without_a_time_can_lose_others() -> None:
    records = [NewRecord(time_ms, None, b"v", []) for time_ms in (NO_TIME_MS, 5, NO_TIME_MS)]
    kept = keep_records(encode(records), lambda record: record.offset != 1)
    assert kept is not None
    assert [(each.offset, each.timestamp) for each in decode(kept)] == [(0, NO_TIME_MS), (2, NO_TIME_MS)]


@pytest.mark.parametrize(("timestamp_ms", "expected"), [(None, 7), (-2, 7), (NO_TIME_MS, 7), (0, 0), (5, 5)])
def test_copy_has_the_time_of_its_record_or_of_the_copy(timestamp_ms: int | None, expected: int) -> None:
    assert time_of(timestamp_ms, 7) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-2, None, b"v"), "timestamp -2 is before 1970"),
        ((2**63, None, b"v"), "record 1 of the batch"),
        (("now", None, b"v"), "record 1 of the batch"),
        ((NOW_MS, "key", b"v"), "record 1 of the batch.*'str'.*bytes or None for key and value"),
        ((NOW_MS, None, {"a": 1}), "record 1 of the batch.*'dict'"),
        ((NOW_MS, None, b"v", [("h", "text")]), "record 1 of the batch"),
        ((NOW_MS, None, b"v", [(b"h", b"")]), "record 1 of the batch"),
        ((NOW_MS, None, b"v", [("\ud800", b"")]), "record 1 of the batch.*surrogates"),
        ((NOW_MS, None, b"v", [["h", b""]]), "record 1 of the batch.*tuple"),
    ],
)
def test_builder_refuses_a_malformed_record_and_goes_on(arguments: tuple[Any, ...], message: str) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"before")
    with pytest.raises(PenstockError, match=message) as caught:
        builder.append(*arguments)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    builder.append(NOW_MS, None, b"after")
    assert [record.value for record in decode(builder.build())] == [b"before", b"after"]


def test_build_refuses_a_batch_without_records() -> None:
    with pytest.raises(PenstockError, match="a batch without records") as caught:
        encode([])
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_encode_refuses_more_than_one_batch_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "BATCH_RECORDS_MAX", 2)
    with pytest.raises(PenstockError, match="record 2 does not fit") as caught:
        encode([NewRecord(NOW_MS, None, b"")] * 3)
    assert caught.value.code is ErrorCode.RECORD_TOO_LARGE


@given(new_records)
def test_record_bytes_max_bounds_what_a_record_adds(records: list[NewRecord]) -> None:
    builder = BatchBuilder()
    for timestamp_ms, key, value, headers in records:
        before = builder.size_bytes
        builder.append(timestamp_ms, key, value, headers)
        assert 0 < builder.size_bytes - before <= record_bytes_max(key, value, headers)


def test_decode_yields_offsets_with_gaps_when_the_batch_was_compacted() -> None:
    plain = encode([NewRecord(NOW_MS, None, b"a"), NewRecord(NOW_MS, None, b"b")])
    records = bytearray(plain[BATCH_HEADER_BYTES:])
    records[len(records) // 2 + 3] = 2 * 5  # the second record's offset delta, zigzag
    batch = sealed(plain, bytes(records), last_offset_delta=9)
    assert [record.offset for record in decode(batch)] == [0, 5]


def test_decode_yields_nothing_when_compaction_has_emptied_the_batch() -> None:
    assert list(decode(sealed(encode([NewRecord(NOW_MS, None, b"")]), b"", record_count=0, last_offset_delta=4))) == []


@every_compression
def test_decode_gives_the_batchs_time_when_it_is_of_log_append(compression: Compression) -> None:
    records = [NewRecord(NOW_MS, None, bytes(100)), NewRecord(NOW_MS + 9, None, bytes(100))]
    batch = sealed(encode(records, compression), attributes=0x08 | compression)
    assert [record.timestamp for record in decode(batch)] == [NOW_MS + 9] * 2
