"""`penstock consume --from`: where to start, as people write it, and the offsets that it means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from penstock.cli.options.times import typed_time_ms
from penstock.consumer.consumer import Consumer
from penstock.consumer.fetch_buffer import OffsetReset
from penstock.model import TopicPartition
from penstock.typed_times import TIME_FORMS


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
