"""The types of the jobs' command-line arguments, for argparse.

Each type turns one argument's text into a value. For a wrong text it raises `argparse.ArgumentTypeError`, and argparse
prints the message behind the option's name. This module knows no storage and no Spark.
"""

import json
import re
from argparse import ArgumentTypeError
from datetime import UTC, datetime, timedelta

from penstock_core.errors import ErrorCode, PenstockError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_HOURS_MAX = 9_999  # over a year: longer than any topic's records arrive late


def whole_number(text: str) -> int:
    """A whole number from 0."""
    return _number(text, 0, "whole number from 0")


def positive_number(text: str) -> int:
    """A whole number from 1."""
    if whole_number(text) == 0:
        raise ArgumentTypeError("0 is too small: give 1 or more")
    return int(text)


def byte_count(text: str) -> int:
    """A number of bytes from 1."""
    return _number(text, 1, "number of bytes")


def duration_ms(text: str) -> int:
    """A number of milliseconds from 0."""
    return _number(text, 0, "number of milliseconds")


def hour_count(text: str) -> int:
    """A number of hours from 0 to 9,999."""
    hours = _number(text, 0, f"whole number from 0 to {_HOURS_MAX}")
    if hours > _HOURS_MAX:
        raise ArgumentTypeError(f"{text!r} is no whole number from 0 to {_HOURS_MAX}")
    return hours


def share(text: str) -> float:
    """A share from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is no share from 0 to 1")
    return value


def record_rate(text: str) -> float:
    """A number of records per second from 1."""
    return float(_number(text, 1, "number of records"))


def time_ms(text: str) -> int:
    """A time, as `parse_time` takes it, in milliseconds since 1970."""
    try:
        return parse_time(text)
    except PenstockError as error:
        raise ArgumentTypeError(error.message) from error


def table_name(text: str) -> str:
    """The name of an archived table, also from its topic's name: `ux-meals` is the table `ux_meals`."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", text) or not text.strip("."):
        raise ArgumentTypeError(f"{text!r} is no table: give its name (letters, digits and _), or that of its topic")
    return plain_table_name(text)


def plain_table_name(topic: str) -> str:
    """The name that the table of a topic has, unless another topic has taken it before."""
    return re.sub(r"[^a-z0-9_]", "_", topic.lower())


def partition_list(text: str) -> tuple[int, ...]:
    """Partitions with commas between them, in ascending order, each once."""
    return tuple(sorted({_number(part, 0, "partition") for part in text.split(",")}))


def partition_offsets(text: str) -> tuple[tuple[int, int], ...]:
    """Offsets by partition as a JSON object, `{"0": 23}`: pairs of a partition and an offset, by partition."""
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ArgumentTypeError(f'{text!r}: give offsets by partition as JSON, {{"0": 23}}')
    return tuple(
        sorted((_number(name, 0, "partition"), _number(str(each), 0, "offset")) for name, each in document.items())
    )


def parse_time(text: str) -> int:
    """Milliseconds since 1970: such a number, or a time such as `2026-11-21T08:00:00Z`. A time without a zone is UTC.

    Raises INVALID_REQUEST.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{text!r} is no time: give milliseconds since 1970, or a time such as 2026-11-21T08:00:00Z",
        ) from error
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MS


def _number(text: str, low: int, noun: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= low):
        raise ArgumentTypeError(f"{text!r} is no {noun}")
    return int(text)
