"""Decoding refuses what is malformed, with an error of ours and within bounded memory."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

import penstock_core
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, BATCH_HEADERS_MAX
from penstock_core.records import codec as records_module
from penstock_core.records import record_walk
from penstock_core.records.codec import NewRecord, Record, decode, encode
from penstock_core.records.compression import SNAPPY_MAGIC, compress
from penstock_core.records.record_batch import BATCH_HEADER_BYTES, Compression
from tests.core.records.record_samples import GOLDEN_RECORDS, NOW_MS, contents, every_compression, sealed
from tests.support import poison


def assert_refused(data: bytes, code: ErrorCode, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        list(decode(data))
    assert caught.value.code is code


@every_compression
@pytest.mark.parametrize("record_count", [0, 1, 2, 4, 100, 1_000_000])
def test_decode_refuses_a_record_count_that_lies(compression: Compression, record_count: int) -> None:
    batch = sealed(
        encode(GOLDEN_RECORDS, compression), record_count=record_count, last_offset_delta=max(record_count - 1, 0)
    )
    assert_refused(batch, ErrorCode.CORRUPT_BATCH, f"its {record_count} records cannot be read")


@pytest.mark.parametrize("record_count", [-1, 1_000_001, 2**31 - 1])
def test_decode_refuses_a_record_count_that_cannot_be(record_count: int) -> None:
    batch = sealed(encode(GOLDEN_RECORDS), record_count=record_count)
    assert_refused(batch, ErrorCode.UNSUPPORTED_FORMAT, f"says it has {record_count} records")


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (1, 2), (-1, 0)])
def test_decode_refuses_offsets_that_are_not_increasing_within_the_batch(deltas: tuple[int, int]) -> None:
    plain = encode([NewRecord(NOW_MS, None, b"a"), NewRecord(NOW_MS, None, b"b")])
    records = bytearray(plain[BATCH_HEADER_BYTES:])
    half = len(records) // 2
    for at, delta in zip((3, half + 3), deltas, strict=True):
        records[at] = 2 * delta if delta >= 0 else -2 * delta - 1
    assert_refused(sealed(plain, bytes(records)), ErrorCode.CORRUPT_BATCH, "not increasing within")


@every_compression
@pytest.mark.parametrize("record_count", [127, 128, 129, 1_000, 1_024])
def test_decode_goes_through_a_batch_of_any_number_of_records(compression: Compression, record_count: int) -> None:
    records = [NewRecord(NOW_MS + n, b"%d" % n, b"v", []) for n in range(record_count)]
    batch = encode(records, compression)
    assert contents(decode(batch + batch)) == 2 * records
    lying = sealed(batch, record_count=record_count - 1, last_offset_delta=record_count - 2)
    assert_refused(lying, ErrorCode.CORRUPT_BATCH, f"its {record_count - 1} records cannot be read")


def test_decode_refuses_offsets_that_go_back_far_into_a_batch() -> None:
    def records(start: int) -> bytes:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**20)
        for offset in range(start, start + 1_000):
            builder.append(offset, NOW_MS, None, b"v", [])
        return bytes(builder.build()[BATCH_HEADER_BYTES:])

    plain = encode([NewRecord(NOW_MS, None, b"v")])
    rising = sealed(plain, records(0) + records(1_000), record_count=2_000, last_offset_delta=1_999)
    assert [record.offset for record in decode(rising)] == list(range(2_000))
    repeated = sealed(plain, records(0) + records(999), record_count=2_000, last_offset_delta=1_999)
    assert_refused(repeated, ErrorCode.CORRUPT_BATCH, "not increasing within")


def test_decode_refuses_the_second_batch_after_yielding_the_first() -> None:
    batch = encode(GOLDEN_RECORDS)
    records: Iterator[Record] = decode(batch + batch[:-1] + b"\x07")
    assert contents(next(records) for _ in range(3)) == GOLDEN_RECORDS
    with pytest.raises(PenstockError, match=f"batch at byte {len(batch)}: fails its CRC-32C") as caught:
        next(records)
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_decode_refuses_control_batches_and_unknown_compression() -> None:
    plain = encode(GOLDEN_RECORDS)
    assert_refused(sealed(plain, attributes=0x20), ErrorCode.UNSUPPORTED_FORMAT, "is a control batch")
    assert_refused(sealed(plain, attributes=5), ErrorCode.UNSUPPORTED_FORMAT, "compression code 5")


@pytest.mark.parametrize(
    "record",
    [
        b"\x0c\0\0\0" + b"\xfe" + b"\xff" * 8 + b"\x01",  # key of 2**63 - 1 bytes
        b"\x0c\0\0\0" + b"\xf6\xfe" + b"\xff" * 7 + b"\x01",  # a little less: overflows with the position only
        b"\x0c\0\0\0\x01\x01\x02\x80",  # a header's name begins at the end
        b"\x0c\0\0\0\x01\x01\x02\x00\x81",  # a number cut off by the end
        b"\x0c\0\0\0\x01\x01\x02\x02\xff\x00",  # a header's name that is not UTF-8
        b"\x0c\0\0\0\x01\x01\x01",  # -1 headers
        b"\xff" * 12,
        b"",
    ],
)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_decode_refuses_a_malformed_record(record: bytes, compression: Compression) -> None:
    plain = encode([NewRecord(NOW_MS, None, b"")])
    payload = compress(record, compression)
    assert_refused(sealed(plain, payload, attributes=compression), ErrorCode.CORRUPT_BATCH, "1 records cannot be read")


@every_compression
@given(data=st.data())
def test_only_penstock_errors_come_out_of_changed_bytes(compression: Compression, data: st.DataObject) -> None:
    batch = encode(GOLDEN_RECORDS, compression)
    at = data.draw(st.integers(BATCH_HEADER_BYTES, len(batch) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=12))
    tail = data.draw(st.sampled_from([batch[at + len(patch) :], batch[at:], b""]))
    with contextlib.suppress(PenstockError):
        list(decode(sealed(batch[:at] + patch + tail)))


@pytest.mark.parametrize("compression", list(Compression)[1:])
@given(payload=st.binary(max_size=200))
def test_only_penstock_errors_come_out_of_a_payload_of_garbage(compression: Compression, payload: bytes) -> None:
    plain = encode([NewRecord(NOW_MS, None, b"")])
    with contextlib.suppress(PenstockError):
        list(decode(sealed(plain, payload, attributes=compression)))
    with contextlib.suppress(PenstockError):
        list(decode(sealed(plain, SNAPPY_MAGIC + bytes(8) + payload, attributes=Compression.SNAPPY)))


_DECODE_WITH_LITTLE_MEMORY = """
import resource, sys
from penstock_core.records.codec import decode
from penstock_core.errors import PenstockError
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    list(decode(open(sys.argv[1], "rb").read()))
except PenstockError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_decode_refuses_a_bomb_within_bounded_memory(compression: Compression, tmp_path: Path) -> None:
    frame = compress(bytes(16 * 2**20), compression)
    blocks = frame[16:] if compression is Compression.SNAPPY else frame
    payload = frame + 127 * blocks  # 2 GiB when decompressed: frames and blocks may follow one another
    bomb = sealed(encode([NewRecord(NOW_MS, None, b"")]), payload, attributes=compression)
    path = tmp_path / "bomb"
    path.write_bytes(bomb)
    done = subprocess.run(
        [sys.executable, "-c", _DECODE_WITH_LITTLE_MEMORY, str(path)],
        cwd=Path(penstock_core.__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("UNSUPPORTED_FORMAT: the batch with offsets [0, ")
    assert f"expands beyond the {BATCH_DECODED_BYTES_MAX} bytes" in done.stdout


def test_decode_takes_a_batch_that_expands_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encode([NewRecord(NOW_MS, None, bytes(50_000))], Compression.ZSTD)
    expanded_bytes = len(encode([NewRecord(NOW_MS, None, bytes(50_000))])) - BATCH_HEADER_BYTES
    monkeypatch.setattr(records_module, "BATCH_DECODED_BYTES_MAX", expanded_bytes)
    assert len(list(decode(batch))) == 1
    monkeypatch.setattr(records_module, "BATCH_DECODED_BYTES_MAX", expanded_bytes - 1)
    assert_refused(batch, ErrorCode.UNSUPPORTED_FORMAT, "expands beyond")


def test_shortage_of_memory_is_no_corrupt_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader would skip it, or reject it to its dead letters."""

    class Short:
        def __init__(self, _plain: object) -> None:
            pass

        def __iter__(self) -> Iterator[Record]:
            raise MemoryError

    batch = encode([NewRecord(NOW_MS, b"k", b"v", [("name", b"x"), ("none", None)])], Compression.ZSTD)
    compiled = records_module._compiled()._replace(Batch=Short)
    monkeypatch.setattr(records_module, "_compiled", lambda: compiled)
    with pytest.raises(MemoryError):
        list(decode(batch))


def test_shortage_of_memory_for_the_scratch_is_no_corrupt_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("penstock_core.records.codec.mmap.mmap", refuse)
    with pytest.raises(MemoryError, match="to decompress a batch into"):
        list(decode(encode([NewRecord(NOW_MS, None, bytes(1_000))], Compression.ZSTD)))


@pytest.mark.parametrize("claim", [2**63 - 1, 2**63 - 2**20, 2**62])
def test_length_that_no_memory_holds_is_a_corrupt_batch(claim: int) -> None:
    value = varint(claim)
    body = b"\x00\x00\x00\x01" + value + b"v"
    assert_refused(
        sealed(encode([NewRecord(NOW_MS, None, b"v")]), varint(len(body)) + body), ErrorCode.CORRUPT_BATCH, ""
    )


def test_batch_whose_headers_would_take_gigabytes_is_refused() -> None:
    count = BATCH_HEADERS_MAX + 1
    body = b"\x00\x00\x00\x01\x01" + varint(count) + b"\x00\x01" * count
    record = varint(len(body)) + body
    assert_refused(poison.sealed(record, 1), ErrorCode.UNSUPPORTED_FORMAT, f"{count} headers")


def test_batch_of_short_records_with_too_many_headers_is_refused() -> None:
    headers = b"\x01\x01" + varint(1_900) + b"\x00\x01" * 1_900
    count = BATCH_HEADERS_MAX // 1_900 + 1
    bodies = [b"\x00\x00" + varint(number) + headers for number in range(count)]
    records = b"".join(varint(len(each)) + each for each in bodies)
    assert_refused(poison.sealed(records, count), ErrorCode.UNSUPPORTED_FORMAT, "headers or more")


def test_short_records_of_a_large_batch_are_stepped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    read = record_walk._varint
    calls: list[int] = []

    def counted(data: memoryview, position: int) -> tuple[int, int]:
        calls.append(position)
        return read(data, position)

    monkeypatch.setattr(record_walk, "_varint", counted)
    records = [NewRecord(NOW_MS, None, bytes(40)) for _ in range(100_000)]
    assert sum(1 for _ in decode(encode(records, Compression.ZSTD))) == len(records)
    assert not calls


@every_compression
def test_decode_takes_large_batches_with_headers(compression: Compression) -> None:
    records = [NewRecord(NOW_MS, b"k", bytes(5_000), [("a", b"b"), ("c", None)]) for _ in range(1_000)]
    assert contents(decode(encode(records, compression))) == records


def varint(value: int) -> bytes:
    """The zigzag form of a number that is not negative."""
    value *= 2
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
