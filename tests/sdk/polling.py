"""Polls consumers in turns until a condition holds."""

from collections.abc import Callable
from typing import Any

from penstock.model import ConsumerRecord
from tests.support.deadlines import until

POLL_MS = 20


def poll_until(holds: Callable[[list[ConsumerRecord]], object], *consumers: Any) -> list[ConsumerRecord]:
    """Poll `consumers` in turns until `holds` is true of the records that they have returned; those records."""
    records: list[ConsumerRecord] = []

    def poll() -> None:
        for consumer in consumers:
            records.extend(consumer.poll(timeout_ms=POLL_MS))

    until(lambda: holds(records), step=poll, shown=lambda: (len(records), [each.assignment() for each in consumers]))
    return records


def poll_count(count: int, *consumers: Any) -> list[ConsumerRecord]:
    """Poll `consumers` in turns until they have returned `count` records or more."""
    return poll_until(lambda records: len(records) >= count, *consumers)


def has(count: int, *consumers: Any) -> Callable[[object], bool]:
    """For `poll_until`: each of `consumers` has `count` partitions."""
    return lambda _: all(len(consumer.assignment()) == count for consumer in consumers)
