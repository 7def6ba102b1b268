"""The headers column: a list of names and values for each record with headers, and null for a record without."""

from collections.abc import Iterator
from mmap import mmap

import numpy as np
import pyarrow as pa

from penstock_spark.decode.varints import INT_BYTES_MAX, DoubtfulBatchError, Integers

_MORE, _BITS = 0x80, 0x7F


def headers_column(data: bytes | mmap, positions: Integers, counts: Integers, ends: Integers) -> pa.Array:
    """One row per record. A record's headers begin at its entry in `positions` and end at its entry in `ends`.

    Raises DoubtfulBatchError if the headers end elsewhere, if a name is not UTF-8, and for a length below -1.
    """
    with_headers = np.flatnonzero(counts)
    names: list[str] = []
    values: list[bytes | None] = []
    for row in with_headers:
        at, end = int(positions[row]), int(ends[row])
        try:
            for name, value in _read(data, at, end, int(counts[row])):
                names.append(name)
                values.append(value)
        except (IndexError, ValueError) as error:
            raise DoubtfulBatchError(f"{counts[row]} headers in {end - at} bytes: {error!s:.100}") from error
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, mask=pa.array(counts == 0))


def _read(data: bytes | mmap, position: int, end: int, count: int) -> Iterator[tuple[str, bytes | None]]:
    for _ in range(count):
        length, position = _varint(data, position)
        name = _cut(data, position, length, end)
        position += length
        length, position = _varint(data, position)
        if length == -1:
            yield name.decode(), None
            continue
        yield name.decode(), _cut(data, position, length, end)
        position += length
    if position != end:
        raise ValueError(f"they end at byte {position}, not {end}")


def _cut(data: bytes | mmap, position: int, length: int, end: int) -> bytes:
    if length < 0 or position + length > end:
        raise ValueError(f"{length} bytes from byte {position}, and the record ends at {end}")
    return data[position : position + length]


def _varint(data: bytes | mmap, position: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 7 * INT_BYTES_MAX, 7):
        byte = data[position]
        position += 1
        raw |= (byte & _BITS) << shift
        if byte < _MORE:
            return (raw >> 1) ^ -(raw & 1), position
    raise ValueError(f"a number of more than {INT_BYTES_MAX} bytes ends behind byte {position}")
