"""The types of options that take a time, a duration, or the place where reading starts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from penstock.consumer.consumer import Consumer
from penstock.consumer.fetch_buffer import OffsetReset
from penstock.model import TopicPartition
from penstock.model.times import (
    DUE_FORMS,
    TIME_FORMS,
    duration_text,
    is_ago,
    names_no_zone,
    parse_duration_ms,
    parse_time_ms,
    with_zone,
)
from penstock_core.limits import UNLIMITED

_FOREVER = "forever"


class TimeType(click.ParamType[int]):
    """A click type: milliseconds since 1970. With `is_due`, a time to come: a duration is none, for it means ago."""

    name = "time"

    def __init__(self, *, is_due: bool = False) -> None:
        self._is_due = is_due

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of the text. Fails with the forms that there are."""
        if isinstance(value, int):
            return value
        if self._is_due and is_ago(str(value)):
            self.fail(f"{value!r:.100} is a duration: give it to --delay, or here {DUE_FORMS}", param, ctx)
        try:
            return typed_time_ms(str(value))
        except ValueError as error:
            forms = DUE_FORMS if self._is_due else TIME_FORMS
            self.fail(f"{value!r:.100} is not a time ({error!s:.100}): give {forms}", param, ctx)


TIME = TimeType()
DUE_TIME = TimeType(is_due=True)


def typed_time_ms(text: str) -> int:
    """Milliseconds since 1970 of what a user typed. Raises ValueError.

    It says on stderr what a time without a zone means.
    """
    timestamp_ms = parse_time_ms(text, time.time_ns() // 1_000_000)
    if timestamp_ms < 0:
        raise ValueError("it is before 1970")
    if names_no_zone(text):
        click.echo(f"{text} is {with_zone(timestamp_ms)}", err=True)
    return timestamp_ms


class Duration(click.ParamType[int]):
    """A click type: a number with its unit becomes milliseconds, at most `ms_max` of them.

    A number without a unit is seconds. With `has_forever`, `forever` becomes -1.
    """

    name = "duration"

    def __init__(self, *, has_forever: bool, ms_max: int | None = None) -> None:
        self._forms = f"write a number with ms, s, m, h or d{f', or {_FOREVER}' if has_forever else ''}"
        self._has_forever = has_forever
        self._ms_max = ms_max

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of the text. Fails with the format if it is not a duration, and with the longest one."""
        if self._has_forever and value == _FOREVER:
            return UNLIMITED
        try:
            duration_ms = parse_duration_ms(_with_unit(str(value)))
        except ValueError:
            self.fail(f"{value!r:.100} is not a duration: {self._forms}", param, ctx)
        if self._ms_max is not None and duration_ms > self._ms_max:
            self.fail(f"{value!r:.100} is too long: give {duration_text(self._ms_max)} at most", param, ctx)
        return duration_ms


def _with_unit(text: str) -> str:
    return f"{text}s" if text.replace(".", "", 1).isdecimal() else text


DURATION = Duration(has_forever=False)
DURATION_OR_FOREVER = Duration(has_forever=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Exactly one is given. `last` counts offsets back from the end of each partition."""

    end: str | None = None  # "earliest" or "latest"
    offset: int | None = None
    timestamp_ms: int | None = None
    last: int | None = None

    @property
    def offset_reset(self) -> OffsetReset:
        """What to do if the start does not exist. If you ask for an offset, you mean that offset and no other."""
        if self.offset is not None:
            return "none"
        return "latest" if self.end == "latest" else "earliest"

    def offsets(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset to start at in each of these partitions. One or two calls per topic."""
        if self.offset is not None:
            return dict.fromkeys(partitions, self.offset)
        if self.end == "earliest":
            return consumer.beginning_offsets(partitions)
        ends = consumer.end_offsets(partitions)
        if self.timestamp_ms is not None:
            at_time = consumer.offsets_for_times(dict.fromkeys(partitions, self.timestamp_ms))
            # A partition without a record so late starts at its end: later records will be that late.
            return ends | {each: at.offset for each, at in at_time.items() if at is not None}
        if self.last is not None:
            starts = consumer.beginning_offsets(partitions)
            return {each: max(starts[each], end - self.last) for each, end in ends.items()}
        return ends


class StartType(click.ParamType[Start]):
    """A click type: earliest, latest, an offset or a time."""

    name = "where"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        """The start that the text means. Fails with the forms that there are."""
        if isinstance(value, Start):
            return value
        text = str(value)
        if text in ("earliest", "latest"):
            return Start(end=text)
        if text.isascii() and text.isdigit():
            return Start(offset=int(text))
        try:
            return Start(timestamp_ms=typed_time_ms(text))
        except ValueError as error:
            forms = f"earliest, latest, an offset, {TIME_FORMS}"
            self.fail(f"{text!r:.100} ({error!s:.100}): give {forms}", param, ctx)


START = StartType()
