"""Kafka's variable-length integers, read from many places of a buffer at once.

An integer is zigzag-encoded (0, -1, 1, -2, … become 0, 1, 2, 3, …) and cut into groups of seven bits, the lowest
first; every byte but the last has its high bit set. Source: https://kafka.apache.org/documentation/#recordheader
"""

from mmap import mmap
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]

_MORE = 0x80
_BITS = 0x7F
_LONGEST = 10  # bytes of a 64-bit integer


def read_varints(buffer: Bytes, positions: Integers) -> tuple[Integers, Integers]:
    """The integers that begin at `positions`, and the positions behind them.

    A position outside the buffer reads its last byte: callers compare where they end with where they must. One that is
    longer than ten bytes counts as ending behind the tenth.
    """
    first = buffer.take(positions, mode="clip")
    raw = (first & _BITS).astype(np.uint64)
    ends = positions + 1
    rows = np.flatnonzero(first & _MORE)
    for shift in range(7, 7 * _LONGEST, 7):
        if not rows.size:
            break
        byte = buffer.take(ends[rows], mode="clip")
        raw[rows] |= (byte & _BITS).astype(np.uint64) << np.uint64(shift)
        ends[rows] += 1
        rows = rows[byte >= _MORE]
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), ends


def walk_records(data: bytes | mmap, position: int, count: int, starts: list[int]) -> int:
    """Adds to `starts` where each of `count` records begins, each with its length, and returns where the last ends.

    One step of the interpreter per record, as each length is needed to find the next. Raises IndexError behind the
    buffer's end. A negative length is not noticed here: it is taken for the positive one beside it.
    """
    add = starts.append
    for _ in range(count):
        add(position)
        length = data[position]
        position += 1
        if length >= _MORE:
            byte = data[position]
            position += 1
            length = length & _BITS | (byte & _BITS) << 7
            shift = 14
            while byte >= _MORE:
                byte = data[position]
                position += 1
                length |= (byte & _BITS) << shift
                shift += 7
        position += length >> 1
    return position
