"""Variable-length integers: many at once agree with one at a time, and an endless integer is refused at once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_spark.decode.headers import headers_column
from penstock_spark.decode.varints import (
    INT_BYTES_MAX,
    LONG_BYTES_MAX,
    DoubtfulBatchError,
    find_records,
    read_varints,
    walk_records,
)


def varint(value: int) -> bytes:
    """The integer as Kafka writes it: zigzag, then seven bits a byte, the lowest first."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    digits = bytearray()
    while raw >= 0x80:
        digits.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*digits, raw])


@given(st.lists(st.integers(-(2**62), 2**62 - 1), min_size=1, max_size=50))
def test_integers_are_read_back_with_the_positions_behind_them(values: list[int]) -> None:
    pieces = [varint(each) for each in values]
    ends = np.cumsum([len(each) for each in pieces])
    starts = np.array([0, *ends[:-1]], np.int64)
    found, positions = read_varints(np.frombuffer(b"".join(pieces), np.uint8), starts, LONG_BYTES_MAX)
    assert found.tolist() == values
    assert positions.tolist() == ends.tolist()


@given(st.lists(st.integers(0, 20_000), max_size=20))
def test_records_are_walked_from_length_to_length(lengths: list[int]) -> None:
    data = b"".join(varint(each) + bytes(each) for each in lengths)
    starts: list[int] = []
    assert walk_records(data, 0, len(lengths), starts) == len(data)
    assert len(starts) == len(lengths)


@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 63, 64, 100, 8_191, 8_192]), st.integers(1, 80)), max_size=8),
    st.binary(max_size=9),
)
def test_records_of_one_length_in_a_row_are_found_where_a_walk_finds_them(
    rows: list[tuple[int, int]], behind: bytes
) -> None:
    lengths = [length for length, count in rows for _ in range(count)]
    data = b"".join(varint(each) + bytes(each) for each in lengths) + behind
    walked: list[int] = []
    end = walk_records(data, 0, len(lengths), walked)
    starts, found_end = find_records(data, 0, len(lengths))
    assert (starts.tolist(), found_end) == (walked, end)


def test_row_that_ends_between_two_looks_ends_with_its_last_record() -> None:
    for count in (31, 32, 33, 255, 256, 257, 300):
        data = (varint(5) + bytes(5)) * count + varint(6) + bytes(6)
        starts, end = find_records(data, 0, count + 1)
        assert (starts.tolist(), end) == ([6 * number for number in range(count + 1)], len(data))


@pytest.mark.parametrize("length", [5, -1, -2])
def test_records_that_end_behind_the_buffer_are_refused_or_end_elsewhere(length: int) -> None:
    data = (varint(length) + bytes(max(0, length))) * 40
    try:
        _, end = find_records(data, 0, 80)
    except IndexError:
        return
    assert end != len(data)


@pytest.mark.parametrize("bytes_max", [INT_BYTES_MAX, LONG_BYTES_MAX])
def test_an_integer_of_too_many_bytes_ends_behind_the_buffer(bytes_max: int) -> None:
    longest = b"\x80" * (bytes_max - 1) + b"\x01"
    data = np.frombuffer(longest + b"\x80" + longest, np.uint8)
    _, positions = read_varints(data, np.array([0, bytes_max], np.int64), bytes_max)
    assert positions.tolist() == [bytes_max, len(data) + 1]


def test_walk_is_refused_when_a_length_has_more_than_five_bytes() -> None:
    data = b"\xff" * (4 << 20)  # would be a number of 29 million bits, and minutes of work
    with pytest.raises(DoubtfulBatchError, match=f"a length of more than {INT_BYTES_MAX} bytes"):
        walk_records(data, 0, 1, [])


def test_headers_are_refused_when_a_number_has_more_than_five_bytes() -> None:
    data = b"\xff" * (4 << 20)
    one = np.array([0], np.int64)
    with pytest.raises(DoubtfulBatchError, match="a number of more than 5 bytes"):
        headers_column(data, one, one + 1, one + len(data))


def test_headers_are_lists_where_there_are_some_and_null_elsewhere() -> None:
    data = varint(1) + b"k" + varint(2) + b"vv" + varint(1) + b"n" + varint(-1)
    column = headers_column(
        data, np.array([0, 0], np.int64), np.array([2, 0], np.int64), np.array([len(data), 0], np.int64)
    )
    assert isinstance(column, pa.ListArray)
    assert column.to_pylist() == [[{"key": "k", "value": b"vv"}, {"key": "n", "value": None}], None]
