"""Records are walked without being made: their claims are held against the bytes that are there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode
from penstock_core.limits import BATCH_HEADERS_MAX
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import BATCH_HEADER_BYTES
from penstock_core.records.record_walk import check_long_records, claims_fit, may_have_too_many_headers
from tests.support.refusals import refused

_BYTES = st.none() | st.binary(max_size=5)
_RECORDS = st.lists(
    st.builds(
        lambda key, value, headers: NewRecord(timestamp_ms=1, key=key, value=value, headers=tuple(headers)),
        _BYTES,
        _BYTES,
        st.lists(st.tuples(st.text(max_size=3), _BYTES), max_size=3),
    ),
    min_size=1,
    max_size=4,
)


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    parts = []
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _record(key_length: int, headers: int) -> bytes:
    body = bytes([0]) + _varint(0) + _varint(0) + _varint(key_length) + _varint(-1) + _varint(headers)
    return _varint(len(body)) + body


@given(_RECORDS)
def test_claims_of_records_that_were_encoded_fit(records: list[NewRecord]) -> None:
    data = encode(records)[BATCH_HEADER_BYTES:]
    assert claims_fit(memoryview(data), len(records))


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff" * 12, _varint(2**40), _record(2**62, 0), _record(-1, 2**40), _record(-1, -3)],
)
def test_claims_beyond_the_bytes_do_not_fit(data: bytes) -> None:
    assert not claims_fit(memoryview(data), 1)


def test_headers_of_long_records_are_counted_all_together() -> None:
    body = bytes([0]) + _varint(0) + _varint(0) + _varint(-1) + _varint(-1) + _varint(BATCH_HEADERS_MAX // 2 + 1)
    body += bytes(2 * (BATCH_HEADERS_MAX // 2 + 1))
    record = _varint(len(body)) + body
    assert may_have_too_many_headers(memoryview(record * 2))
    check_long_records(memoryview(record), 1)
    refused(ErrorCode.UNSUPPORTED_FORMAT, lambda: check_long_records(memoryview(record * 2), 2))
    refused(ErrorCode.CORRUPT_BATCH, lambda: check_long_records(memoryview(record), 2))
