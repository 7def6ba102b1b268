"""Reads Kafka's variable-length integers from many places of a buffer at once.

An integer is zigzag-encoded (0, -1, 1, -2, … become 0, 1, 2, 3, …) and cut into groups of seven bits, the lowest first;
every byte but the last has its high bit set. Source: https://kafka.apache.org/documentation/#recordheader
"""

from mmap import mmap
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int64]

_MORE = 0x80  # a byte with this bit is not the last one
_BITS = 0x7F
# Without a bound, a batch of 0xFF bytes takes quadratic time. A producer that writes more bytes than an integer needs
# is taken at its word by the record codec alone (decoding.py).
INT_BYTES_MAX = 5  # a 32-bit integer: lengths, counts, deltas of offsets
LONG_BYTES_MAX = 9  # 63 bits: deltas of timestamps
_SHIFT_END = 7 * INT_BYTES_MAX
_RUN_MIN = 32  # fewer records of one length in a row are not worth NumPy's calls
_RUN_LENGTH_BYTES = 3  # of a length: a record below 1 MiB


class DoubtfulBatchError(ValueError):
    """A batch that the fast decoder leaves to the record codec, which reads it or says what is wrong with it."""


def read_varints(buffer: Bytes, positions: Integers, bytes_max: int = INT_BYTES_MAX) -> tuple[Integers, Integers]:
    """The integers that begin at `positions`, and the positions behind them.

    A position outside the buffer reads the buffer's last byte, so callers compare the end of each field with its bound.
    An integer longer than `bytes_max` is 0 and ends behind the buffer.
    """
    first = buffer.take(positions, mode="clip")
    raw = (first & _BITS).astype(np.uint64)
    ends = positions + 1
    rows = np.flatnonzero(first & _MORE)
    for shift in range(7, 7 * bytes_max, 7):
        if not rows.size:
            break
        byte = buffer.take(ends[rows], mode="clip")
        raw[rows] |= (byte & _BITS).astype(np.uint64) << np.uint64(shift)
        ends[rows] += 1
        rows = rows[byte >= _MORE]
    raw[rows], ends[rows] = 0, len(buffer) + 1
    return (raw >> np.uint64(1)).astype(np.int64) ^ -(raw & np.uint64(1)).astype(np.int64), ends


def find_records(data: bytes | mmap, position: int, count: int) -> tuple[Integers, int]:
    """The starts of `count` records, and the end of the last one.

    Each length is needed to find the next record. Records of one length in a row are found by a few steps of NumPy, the
    others by one step of the interpreter each. Raises as `walk_records` does.
    """
    buffer: Bytes = np.frombuffer(data, np.uint8)
    parts: list[Integers] = []
    walked = 4 * _RUN_MIN  # grows where there are no rows, so looking for them costs little
    while count:
        run, step = _run(data, buffer, position, count)
        if run:
            parts.append(np.arange(position, position + run * step, step))
            position += run * step
            walked = 4 * _RUN_MIN
        else:
            run, starts = min(walked, count), list[int]()
            position = walk_records(data, position, run, starts)
            parts.append(np.array(starts, np.int64))
            walked *= 2
        count -= run
    return (np.concatenate(parts) if parts else np.empty(0, np.int64)), position


def _run(data: bytes | mmap, buffer: Bytes, position: int, count: int) -> tuple[int, int]:
    """The number of records in a row with the same bytes of a length, and the bytes of each; 0 if they are few."""
    length = size = 0
    more = True
    while more and size < _RUN_LENGTH_BYTES:
        byte = data[position + size]
        length |= (byte & _BITS) << 7 * size
        size += 1
        more = byte >= _MORE
    step = size + (length >> 1)
    prefix = data[position : position + size]
    last = position + (_RUN_MIN - 1) * step
    if more or count < _RUN_MIN or any(data[at : at + size] != prefix for at in (position + step, last)):
        return 0, 0
    fit = min(count, (len(buffer) - size - position) // step + 1)
    run = looked = _RUN_MIN // 8
    while run == looked < fit:  # rows may be short, so look at eight times as many only if all are alike
        looked = min(8 * looked, fit)
        is_same = buffer[position : position + (looked - 1) * step + 1 : step] == prefix[0]
        for at in range(1, size):
            is_same &= buffer[position + at : position + at + (looked - 1) * step + 1 : step] == prefix[at]
        run = looked if is_same.all() else int(np.argmin(is_same))
    return (run, step) if run >= _RUN_MIN else (0, 0)


def walk_records(data: bytes | mmap, position: int, count: int, starts: list[int]) -> int:
    """Append the start of each of `count` records to `starts`. Returns the end of the last record.

    A record begins with its length. Raises IndexError behind the buffer's end, and DoubtfulBatchError for a length of
    more than `INT_BYTES_MAX` bytes. A negative length -n goes unnoticed here and counts as n - 1.
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
                if shift == _SHIFT_END:
                    raise DoubtfulBatchError(f"a length of more than {INT_BYTES_MAX} bytes")
                byte = data[position]
                position += 1
                length |= (byte & _BITS) << shift
                shift += 7
        position += length >> 1
    return position
