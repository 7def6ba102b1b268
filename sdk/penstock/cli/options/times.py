"""The type of options that take a point in time (penstock/typed_times.py)."""

import time
from typing import Any

import click

from penstock.typed_times import TIME_FORMS, names_no_zone, parse_time_ms, with_zone


class TimeType(click.ParamType[int]):
    """A click type: milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The milliseconds of the text. Fails with the forms that there are."""
        if isinstance(value, int):
            return value
        try:
            return typed_time_ms(str(value))
        except ValueError as error:
            self.fail(f"{value!r:.100} is not a time ({error!s:.100}): give {TIME_FORMS}", param, ctx)


TIME = TimeType()


def typed_time_ms(text: str) -> int:
    """Milliseconds since 1970 of what a user typed. Raises ValueError.

    It says on stderr what a time without a zone means.
    """
    timestamp_ms = parse_time_ms(text, time.time_ns() // 1_000_000)
    if names_no_zone(text):
        click.echo(f"{text} is {with_zone(timestamp_ms)}", err=True)
    return timestamp_ms
