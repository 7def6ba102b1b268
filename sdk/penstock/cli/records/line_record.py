"""A record as one line of input gives it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class LineRecord(NamedTuple):
    """The parts that the line gives; None for the partition and the time means that the producer chooses."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def text_line_parser(
    *, key: bytes | None, separator: bytes | None, null: bytes | None
) -> Callable[[bytes], LineRecord]:
    """The parser of `KEY<separator>VALUE`, or of values alone with one key. A part that equals `null` is null.

    The parser raises ValueError for a line without the separator.
    """

    def parse(line: bytes) -> LineRecord:
        line_key = key
        if separator is not None:
            line_key, found, line = line.partition(separator)
            if not found:
                raise ValueError(f"it has no {separator.decode(errors='replace')!r}")
            if line_key == null:
                line_key = None
        return LineRecord(line_key, None if line == null else line)

    return parse
