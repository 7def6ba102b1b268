"""Walk the records of a batch without making them: their claims are checked before anything is allocated for them.

The compiled codec makes each record whole. A length near 2**63 passes its check of bounds, and a record of a few MB may
hold millions of headers, each of which takes some 100 bytes as an object.

| field of a record        |                                              |
|--------------------------|----------------------------------------------|
| length                   | varint: the bytes behind it                  |
| attributes               | u8                                           |
| timestamp and offset     | two varints, relative to the batch           |
| key, value               | each a varint of its length, -1 for none, and its bytes |
| headers                  | a varint of their number, and the headers    |
"""

from collections.abc import Iterator

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_HEADERS_MAX, KIB

_VARINT_BYTES_MAX = 10
_LONG_RECORD_BYTES = 4 * KIB  # it has 2,000 headers at most: a codec that makes 128 of them at once takes 26 MB


def may_have_too_many_headers(records: memoryview) -> bool:
    """True if the bytes of the records could hold more than `BATCH_HEADERS_MAX` headers, which take 2 at the least."""
    return len(records) >= 2 * BATCH_HEADERS_MAX


def check_long_records(records: memoryview, record_count: int) -> None:
    """Refuse long records whose headers would take gigabytes as objects, all together.

    It steps over the other records by their lengths alone. Few of them are made at once, so count theirs as they come.
    Raises UNSUPPORTED_FORMAT for more than `BATCH_HEADERS_MAX`, and CORRUPT_BATCH if the records cannot be walked.
    """
    try:
        check_header_count(sum(_header_counts(records, record_count, least_bytes=_LONG_RECORD_BYTES)))
    except ValueError as error:
        raise PenstockError(
            ErrorCode.CORRUPT_BATCH, f"its {record_count} records cannot be read ({error!s:.100})"
        ) from error


def check_header_count(count: int) -> None:
    """Raise UNSUPPORTED_FORMAT for more headers than one batch may have."""
    if count > BATCH_HEADERS_MAX:
        raise PenstockError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"its records have {count} headers or more, and {BATCH_HEADERS_MAX} at most are read",
        )


def claims_fit(records: memoryview, record_count: int) -> bool:
    """True if each length that a record claims lies within the record."""
    try:
        return all(count >= 0 for count in _header_counts(records, record_count, checks_headers=True))
    except ValueError:
        return False


def _header_counts(
    records: memoryview, record_count: int, *, least_bytes: int = 0, checks_headers: bool = False
) -> Iterator[int]:
    """The number of headers that each record of `least_bytes` and more claims.

    Raises ValueError at the first record whose lengths claim more bytes than it has; those of its headers only with
    `checks_headers`.
    """
    position = 0
    for _ in range(record_count):
        first = records[position] if position < len(records) else 0x80
        # A million calls for the lengths of short records would take longer than the codec does.
        length, start = (first >> 1, position + 1) if not first & 0x81 else _varint(records, position)
        end = start + length
        if not start <= end <= len(records):
            raise ValueError(f"a record claims {length} bytes, and {len(records) - start} are there")
        if length < least_bytes:
            position = end
            continue
        _, position = _varint(records, start + 1)
        _, position = _varint(records, position)
        position = _behind(records, position, end, 2)
        count, position = _varint(records, position)
        if checks_headers:
            _behind(records, position, end, 2 * count)
        yield count
        position = end


def _behind(records: memoryview, position: int, end: int, values: int) -> int:
    """The position behind so many values, each of which has its length before it."""
    for _ in range(values):
        size, position = _varint(records, position)
        position += max(0, size)
        if position > end:
            raise ValueError(f"a value claims {size} bytes, which end behind its record")
    return position


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """The zigzag number at the position, and the position behind it."""
    value = 0
    for place in range(_VARINT_BYTES_MAX):
        if position + place >= len(data):
            break
        byte = data[position + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + place + 1
    raise ValueError("a number does not end")
