import contextlib
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock_core
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_RECORDS_MAX
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.records.record_batch import (
    _HEADER,
    BATCH_HEADER_BYTES,
    BatchesSummary,
    BatchHeader,
    Compression,
    check_stored,
    crc_is_valid,
    parse_header,
    stamp,
    validate,
    walk,
)

without_deadline = settings(deadline=None)

FIELDS: dict[str, int] = {
    "base_offset": 0,
    "partition_leader_epoch": -1,
    "magic": 2,
    "attributes": 0,
    "last_offset_delta": 0,
    "first_timestamp_ms": 1_790_000_000_000,
    "max_timestamp_ms": 1_790_000_000_005,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "record_count": 1,
}


def make_batch(payload: bytes = b"\x0c\0\0\0\x01\x01\0", **changed: int) -> bytes:
    """A batch laid out from Kafka's description, not by the code under test. `length`, `crc` are right if not given."""
    field = FIELDS | changed
    length = field.get("length", BATCH_HEADER_BYTES + len(payload))
    head = [field["base_offset"], length - 12, field["partition_leader_epoch"], field["magic"]]
    covered = [field[name] for name in list(FIELDS)[3:]]
    crc = field.get("crc", crc32c(_HEADER.pack(*head, 0, *covered)[21:] + payload))
    return _HEADER.pack(*head, crc, *covered) + payload


def make_batches(*record_counts: int) -> bytes:
    return b"".join(
        make_batch(bytes(10 * count), record_count=count, last_offset_delta=count - 1) for count in record_counts
    )


# Kafka-python 3.0.12 wrote this for one record ("k", "v") of producer 7, epoch 3, sequence 11.
GOLDEN = bytes.fromhex(
    "0000000000000000 0000003a 00000000 02 baad49e3 0000 00000000 000001a0c4506c00 000001a0c4506c00"
    "0000000000000007 0003 0000000b 00000001 10000000026b027600"
)


def test_parse_header_reads_what_kafka_python_wrote() -> None:
    assert parse_header(GOLDEN) == BatchHeader(
        base_offset=0,
        length=len(GOLDEN),
        partition_leader_epoch=0,
        magic=2,
        crc=0xBAAD49E3,
        attributes=0,
        last_offset_delta=0,
        first_timestamp_ms=1_790_000_000_000,
        max_timestamp_ms=1_790_000_000_000,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        record_count=1,
    )
    assert crc_is_valid(GOLDEN, 0, parse_header(GOLDEN))


@given(
    st.fixed_dictionaries(
        {
            "base_offset": st.integers(-(2**63), 2**63 - 1),
            "length": st.integers(BATCH_HEADER_BYTES, 2**31 - 1 + 12),
            "partition_leader_epoch": st.integers(-(2**31), 2**31 - 1),
            "crc": st.integers(0, 2**32 - 1),
            "attributes": st.integers(-(2**15), 2**15 - 1),
            "last_offset_delta": st.integers(0, 2**31 - 1),
            "first_timestamp_ms": st.integers(-(2**63), 2**63 - 1),
            "max_timestamp_ms": st.integers(-(2**63), 2**63 - 1),
            "producer_id": st.integers(-(2**63), 2**63 - 1),
            "producer_epoch": st.integers(-(2**15), 2**15 - 1),
            "base_sequence": st.integers(-(2**31), 2**31 - 1),
            "record_count": st.integers(-(2**31), 2**31 - 1),
        }
    ),
    st.binary(max_size=20),
)
@without_deadline
def test_parse_header_reads_every_field_at_any_position(fields: dict[str, int], before: bytes) -> None:
    header = parse_header(before + make_batch(b"", **fields), len(before))
    assert {name: getattr(header, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("attributes", "compression", "is_log_append_time", "is_transactional", "is_control"),
    [
        (0, Compression.NONE, False, False, False),
        (1, Compression.GZIP, False, False, False),
        (2 | 0x08, Compression.SNAPPY, True, False, False),
        (3 | 0x10, Compression.LZ4, False, True, False),
        (4 | 0x20, Compression.ZSTD, False, False, True),
    ],
)
def test_header_tells_its_attributes(
    attributes: int, compression: Compression, is_log_append_time: bool, is_transactional: bool, is_control: bool
) -> None:
    header = parse_header(make_batch(attributes=attributes))
    assert header.compression is compression
    assert header.is_log_append_time == is_log_append_time
    assert header.is_transactional == is_transactional
    assert header.is_control == is_control


def test_header_compression_is_refused_when_unknown() -> None:
    with pytest.raises(PenstockError, match=r"compression code 5: use 0 \(none\), 1 \(gzip\)") as caught:
        _ = parse_header(make_batch(attributes=5)).compression
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


@pytest.mark.parametrize("member", Compression)
def test_compression_is_parsed_from_its_name(member: Compression) -> None:
    assert Compression.parse(member.name.lower()) is member


@pytest.mark.parametrize("name", ["brotli", "ZSTD", "", "1"])
def test_compression_parse_names_the_choices_when_the_name_is_unknown(name: str) -> None:
    with pytest.raises(PenstockError, match="use one of none, gzip, snappy, lz4, zstd") as caught:
        Compression.parse(name)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_walk_yields_every_batch_with_its_position() -> None:
    data = make_batches(1, 5, 2)
    positions = [0, BATCH_HEADER_BYTES + 10, 2 * BATCH_HEADER_BYTES + 60]
    assert [(position, header.record_count) for position, header in walk(data)] == list(
        zip(positions, (1, 5, 2), strict=True)
    )
    assert [position for position, _ in walk(data, positions[1], positions[2])] == [positions[1]]
    assert list(walk(data, len(data))) == []


def test_walk_refuses_a_batch_that_passes_the_end_it_was_given() -> None:
    data = make_batches(1, 5)
    with pytest.raises(PenstockError, match="batch 1 at byte 71 says it has 111 bytes, 110 are left") as caught:
        list(walk(data, 0, len(data) - 1))
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_validate_sums_up_batches() -> None:
    data = (
        make_batch(bytes(30), record_count=3, last_offset_delta=2, max_timestamp_ms=1_790_000_000_009)
        + make_batch(bytes(500), record_count=2, last_offset_delta=1, attributes=4)
        + make_batch(first_timestamp_ms=-1, max_timestamp_ms=-1)
    )
    expected = BatchesSummary(
        record_count=6, offset_span=6, max_timestamp_ms=1_790_000_000_009, batch_count=3, largest_batch_bytes=561
    )
    assert validate(data) == validate(bytearray(data)) == validate(memoryview(data)) == expected


def test_validate_tells_which_of_its_producers_records_there_are() -> None:
    first: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3}
    data = make_batch(bytes(30), **first, base_sequence=10, record_count=3, last_offset_delta=2) + make_batch(
        **first, base_sequence=13
    )
    expected = ProducerSequence(producer_id=7, epoch=3, first_sequence=10, last_sequence=13)
    assert validate(data).sequence == expected


def test_validate_takes_sequences_up_to_kafkas_largest() -> None:
    last = validate(make_batch(producer_id=2**63 - 1, producer_epoch=2**15 - 1, base_sequence=2**31 - 1)).sequence
    assert last is not None
    assert last.last_sequence == 2**31 - 1


@pytest.mark.parametrize(
    "changed",
    [
        {"producer_id": -2},
        {"producer_epoch": -1},
        {"base_sequence": -1},
        {"base_sequence": 2**31 - 1, "record_count": 2, "last_offset_delta": 1},
    ],
)
def test_validate_refuses_a_producer_that_cannot_be(changed: dict[str, int]) -> None:
    fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0} | changed
    with pytest.raises(PenstockError, match="send a producer id of -1 for none") as caught:
        validate(make_batch(bytes(20), **fields))
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_validate_refuses_batches_out_of_sequence() -> None:
    one = make_batch(producer_id=7, producer_epoch=3, base_sequence=0)
    with pytest.raises(PenstockError, match="in sequence"):
        validate(one + one)


def test_validate_says_that_no_record_has_a_time() -> None:
    assert validate(make_batch(first_timestamp_ms=-1, max_timestamp_ms=-1)).max_timestamp_ms == -1


def test_validate_takes_as_many_records_as_the_limit_says() -> None:
    data = make_batch(bytes(256), attributes=4, record_count=BATCH_RECORDS_MAX, last_offset_delta=BATCH_RECORDS_MAX - 1)
    assert validate(data).record_count == BATCH_RECORDS_MAX


@pytest.mark.parametrize(("compression", "ratio"), [(1, 1_032), (2, 22), (3, 255), (4, 32_768)])
def test_validate_takes_no_more_records_than_the_bytes_can_decompress_to(compression: int, ratio: int) -> None:
    most = 20 * ratio // 7
    made = make_batch(bytes(20), attributes=compression, record_count=most, last_offset_delta=most - 1)
    assert validate(made).record_count == most
    with pytest.raises(PenstockError, match=f"says it has {most + 1} records in 20 bytes"):
        validate(make_batch(bytes(20), attributes=compression, record_count=most + 1, last_offset_delta=most))


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        ({"magic": 1}, ErrorCode.UNSUPPORTED_FORMAT, "has magic 1: send Kafka's RecordBatch v2"),
        ({"crc": 1}, ErrorCode.CORRUPT_BATCH, r"fails its CRC-32C \(0x00000001 in the header\)"),
        ({"length": 60}, ErrorCode.CORRUPT_BATCH, "says it has 60 bytes"),
        ({"length": -1}, ErrorCode.CORRUPT_BATCH, "says it has -1 bytes"),
        ({"length": 69}, ErrorCode.CORRUPT_BATCH, "says it has 69 bytes, 68 are left"),
        ({"attributes": 6}, ErrorCode.UNSUPPORTED_FORMAT, "compression code 6"),
        ({"attributes": 0x10}, ErrorCode.UNSUPPORTED_FORMAT, "has attributes 0x0010: control, transactional"),
        ({"attributes": 0x20}, ErrorCode.UNSUPPORTED_FORMAT, "has attributes 0x0020: control, transactional"),
        ({"attributes": 0x08}, ErrorCode.UNSUPPORTED_FORMAT, "has attributes 0x0008"),
        ({"attributes": -(2**15)}, ErrorCode.UNSUPPORTED_FORMAT, "has attributes 0x8000"),
        ({"record_count": 0}, ErrorCode.CORRUPT_BATCH, "says it has 0 records and last offset delta 0"),
        ({"record_count": -1}, ErrorCode.CORRUPT_BATCH, "says it has -1 records"),
        ({"last_offset_delta": 1}, ErrorCode.CORRUPT_BATCH, "says it has 1 records and last offset delta 1"),
        ({"last_offset_delta": -1}, ErrorCode.CORRUPT_BATCH, "last offset delta -1"),
        ({"record_count": 2, "last_offset_delta": 1}, ErrorCode.CORRUPT_BATCH, "says it has 2 records in 7 bytes"),
        (
            {"attributes": 1, "record_count": BATCH_RECORDS_MAX + 1, "last_offset_delta": BATCH_RECORDS_MAX},
            ErrorCode.UNSUPPORTED_FORMAT,
            "has 1000001 records: at most 1000000",
        ),
        ({"max_timestamp_ms": -2}, ErrorCode.INVALID_TIMESTAMP, "max timestamp -2"),
        ({"first_timestamp_ms": -2}, ErrorCode.INVALID_TIMESTAMP, "first timestamp -2"),
        ({"max_timestamp_ms": 1_789_999_999_999}, ErrorCode.INVALID_TIMESTAMP, "max timestamp 1789999999999"),
    ],
)
def test_validate_names_what_is_wrong_with_which_batch(changed: dict[str, Any], code: ErrorCode, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        validate(make_batches(1) + make_batch(**changed))
    assert caught.value.code is code
    assert "batch 1 at byte 71" in caught.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no batch: send at least one"),
        (make_batch()[:60], "batch 0 at byte 0 is torn: 60 bytes are left"),
        (make_batch() + b"\0" * 16, "batch 1 at byte 68 is torn: 16 bytes are left"),
        (make_batch()[:-1], "batch 0 at byte 0 says it has 68 bytes, 67 are left"),
    ],
)
def test_validate_refuses_what_is_not_whole_batches(data: bytes, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        validate(data)
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


@given(st.data())
@without_deadline
def test_validate_refuses_any_changed_bit_but_those_of_base_offset_and_leader_epoch(data: st.DataObject) -> None:
    batch = bytearray(make_batches(3))
    at = data.draw(st.integers(0, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    if at < 8 or 12 <= at < 16:
        assert validate(batch).record_count == 3
    else:
        with pytest.raises(PenstockError):
            validate(batch)


def _mutations() -> st.SearchStrategy[bytes]:
    whole = make_batches(2, 1)
    sliced = st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole))).map(
        lambda cut: whole[: cut[0]] + whole[cut[1] :]
    )
    replaced = st.tuples(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=12)).map(
        lambda patch: whole[: patch[0]] + patch[1] + whole[patch[0] + len(patch[1]) :]
    )
    return st.one_of(st.binary(max_size=200), sliced, replaced)


@given(_mutations())
@without_deadline
def test_only_penstock_errors_come_out_of_garbage(data: bytes) -> None:
    for call in (
        lambda: validate(data),
        lambda: parse_header(data, 3),
        lambda: stamp(bytearray(data), 2**40),
        lambda: check_stored(data, 3),
    ):
        with contextlib.suppress(PenstockError):
            call()


@given(st.lists(st.integers(1, 20), max_size=5), st.integers(0, 2**62), st.booleans())
@without_deadline
def test_stamp_writes_consecutive_offsets_and_keeps_crcs_right(counts: list[int], base: int, as_view: bool) -> None:
    data = bytearray(make_batches(*counts))
    next_offset = stamp(memoryview(data) if as_view else data, base)
    stamped = list(walk(data))
    assert [header.base_offset for _, header in stamped] == [base + sum(counts[:i]) for i in range(len(counts))]
    assert next_offset == base + sum(counts)
    assert all(crc_is_valid(data, position, header) for position, header in stamped)
    for position, _ in stamped:
        data[position : position + 8] = bytes(8)
    assert data == make_batches(*counts)


def test_stamp_counts_the_offsets_that_compaction_has_emptied() -> None:
    data = bytearray(make_batch(record_count=1, last_offset_delta=9) + make_batch())
    assert stamp(data, 100) == 111
    assert [header.base_offset for _, header in walk(data)] == [100, 110]
    assert parse_header(data).next_offset == 110


def test_stamp_refuses_an_offset_delta_that_would_go_back() -> None:
    with pytest.raises(PenstockError, match="last offset delta -2") as caught:
        stamp(bytearray(make_batch(last_offset_delta=-2)), 100)
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_check_stored_accepts_whole_batches_of_the_right_span() -> None:
    check_stored(make_batches(2, 5), 7)
    check_stored(memoryview(make_batch(record_count=1, last_offset_delta=9)), 10)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (make_batches(2, 4), "covers 6 offsets, its ref says 7; read another copy"),
        (make_batches(2, 5, 1), "covers 8 offsets"),
        (b"", "covers 0 offsets"),
        (make_batches(2, 5)[:-1], "batch 1 at byte 81 says it has 111 bytes, 110 are left"),
        (make_batches(2, 5)[1:], "batch 0 at byte 0"),
        (make_batches(2) + make_batch(bytes(50), record_count=5, last_offset_delta=4, crc=7), "batch at byte 81 fails"),
    ],
)
def test_check_stored_refuses_bytes_that_are_not_what_the_ref_says(data: bytes, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        check_stored(data, 7)
    assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


def test_nothing_copies_the_payload() -> None:
    data = bytearray(make_batch(bytes(4_000_000)))
    tracemalloc.start()
    try:
        validate(data)
        validate(memoryview(data))
        check_stored(data, 1)
        stamp(data, 5)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


@pytest.mark.parametrize("module", ["records.record_batch", "records.frame", "log.segment", "records.partitioner"])
def test_the_binary_path_imports_no_record_codec(module: str) -> None:
    script = f"import sys, penstock_core.{module}; print({{'aiokafka', 'cramjam', 'asyncio'}} & sys.modules.keys())"
    folder = Path(penstock_core.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
