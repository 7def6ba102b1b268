"""The types of the jobs' arguments: the texts that each type takes, and the message for a wrong text."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_spark import arguments


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (arguments.whole_number, "0", 0),
        (arguments.whole_number, "86400000", 86_400_000),
        (arguments.positive_number, "1", 1),
        (arguments.byte_count, "67108864", 67_108_864),
        (arguments.duration_ms, "0", 0),
        (arguments.hour_count, "9999", 9_999),
        (arguments.share, "0", 0.0),
        (arguments.share, "0.5", 0.5),
        (arguments.share, "1", 1.0),
        (arguments.record_rate, "500", 500.0),
        (arguments.time_ms, "2026-11-21T08:00:00Z", 1_795_248_000_000),
        (arguments.table_name, "web_orders_2", "web_orders_2"),
        (arguments.table_name, "Web-orders.2", "web_orders_2"),
        (arguments.partition_list, "3,0,3", (0, 3)),
        (arguments.partition_offsets, '{"10": 7, "2": 0}', ((2, 0), (10, 7))),
    ],
)
def test_argument_becomes_a_value_when_it_is_valid(parse: Callable[[str], Any], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (arguments.whole_number, "-1", "'-1' is no whole number from 0"),
        (arguments.whole_number, "٣", "'٣' is no whole number from 0"),
        (arguments.whole_number, "", "'' is no whole number from 0"),
        (arguments.positive_number, "0", "0 is too small: give 1 or more"),
        (arguments.positive_number, "x", "'x' is no whole number from 0"),
        (arguments.byte_count, "0", "'0' is no number of bytes"),
        (arguments.byte_count, "64MiB", "'64MiB' is no number of bytes"),
        (arguments.duration_ms, "1h", "'1h' is no number of milliseconds"),
        (arguments.hour_count, "10000", "'10000' is no whole number from 0 to 9999"),
        (arguments.hour_count, "1.5", "'1.5' is no whole number from 0 to 9999"),
        (arguments.share, "half", "'half' is no share from 0 to 1"),
        (arguments.share, "1.01", "'1.01' is no share from 0 to 1"),
        (arguments.share, "nan", "'nan' is no share from 0 to 1"),
        (arguments.record_rate, "0", "'0' is no number of records"),
        (arguments.time_ms, "yesterday", "'yesterday' is no time: give milliseconds since 1970"),
        (
            arguments.table_name,
            "../orders",
            "'../orders' is no table: give its name (letters, digits and _)",
        ),
        (arguments.table_name, "..", "'..' is no table"),
        (arguments.partition_list, "0,x", "'x' is no partition"),
        (arguments.partition_offsets, "23", "'23': give offsets by partition as JSON, {\"0\": 23}"),
        (arguments.partition_offsets, '{"a": 1}', "'a' is no partition"),
        (arguments.partition_offsets, '{"0": -1}', "'-1' is no offset"),
    ],
)
def test_argument_is_refused_with_the_value_when_it_is_wrong(
    parse: Callable[[str], Any], text: str, message: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=re.escape(message)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1790000000000", 1_790_000_000_000),
        ("2026-11-21T08:00:00Z", 1_795_248_000_000),
        ("2026-11-21T08:00:00", 1_795_248_000_000),
        ("2026-11-21T09:00:00.001+01:00", 1_795_248_000_001),
        ("2026-11-21", 1_795_219_200_000),
    ],
)
def test_time_is_read_as_it_is_written(text: str, timestamp_ms: int) -> None:
    assert arguments.parse_time(text) == timestamp_ms


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2026-13-01"])
def test_time_is_refused_when_it_is_none(text: str) -> None:
    with pytest.raises(PenstockError, match="is no time: give milliseconds since 1970") as raised:
        arguments.parse_time(text)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
