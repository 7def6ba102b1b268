"""New records come to the page as events."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import urllib3

from penstock.testing import MemoryPenstock
from penstock_core.limits import CONSOLE_LIVE_RECORDS_MAX, CONSOLE_STREAMS_MAX
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import HOSTILE
from tests.sdk.console.visitor import Visitor
from tests.support.deadlines import DEADLINE_S


class Events:
    """The events of one live view, as its page gets them."""

    def __init__(self, visitor: Visitor, path: str) -> None:
        cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        self.answer = urllib3.PoolManager(retries=False).request(
            "GET", visitor.origin + path, headers={"Cookie": cookies}, preload_content=False, timeout=DEADLINE_S
        )

    def __iter__(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        name = ""
        for line in self._lines():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)

    def _lines(self) -> Iterator[str]:
        rest = b""
        for part in self.answer.stream(1):
            rest += part
            while b"\n" in rest:
                line, _, rest = rest.partition(b"\n")
                yield line.decode()

    def close(self) -> None:
        self.answer.close()


@pytest.mark.slow
def test_records_come_as_they_are_sent_and_hostile_ones_are_text(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor
) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", "before")
    events = Events(visitor, "/topics/orders/live/events")
    coming = iter(events)
    assert next(coming) == ("message", {"records": [], "left_out": 0})
    with service.producer() as producer:
        for text in HOSTILE:
            producer.send("orders", text, headers=[(text, b"x")])
    values: list[str] = []
    while len(values) < len(HOSTILE):
        name, event = next(coming)
        assert name == "message"
        assert len(event["records"]) <= CONSOLE_LIVE_RECORDS_MAX
        values += [each["value"] for each in event["records"]]
    assert values[0] == HOSTILE[0], "the page sets it as text"
    assert not any("\x1b" in value or "\u202e" in value for value in values)
    events.close()


def test_unknown_topic_ends_the_stream_with_the_reason(visitor: Visitor) -> None:
    events = Events(visitor, "/topics/nothing/live/events")
    [(name, event)] = [*events]
    assert (name, "nothing" in event["error"]) == ("failed", True)


@pytest.mark.slow
def test_too_many_live_views_are_refused(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("orders")
    views = [Events(visitor, "/topics/orders/live/events") for _ in range(CONSOLE_STREAMS_MAX)]
    for view in views:
        next(iter(view))
    assert Events(visitor, "/topics/orders/live/events").answer.status == 429
    for view in views:
        view.close()
