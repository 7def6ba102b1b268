"""New records of a topic as they come, woken by the service's wake-ups where the stage has them."""

from collections.abc import Iterator

from penstock.api import calls
from penstock.console.decoding import view_of
from penstock.console.page import Asked, Event, Page, Route, Shown, Stream
from penstock.console.pages.records import Row, row_of
from penstock.console.pages.topic import views_of
from penstock.console.rendering import time_text, visible
from penstock.consumer.consumer import Consumer
from penstock.http.client import Client
from penstock_core.limits import CONSOLE_LIVE_RECORDS_MAX

_POLL_MS = 1_000  # then a browser that has gone is noticed


def show(asked: Asked) -> Shown:
    """The page that the records come to: one request."""
    topic = Client(asked.prompt).call(calls.topic_metadata(asked.path["topic"]))
    return Shown(
        template="live.html",
        title=topic.name,
        facts={"topic": topic, "views": views_of(topic.name), "asked": asked, "view": view_of(asked.word("view"))},
    )


def events(asked: Asked) -> Iterator[Event | None]:
    """The new records of all partitions, `CONSOLE_LIVE_RECORDS_MAX` of each poll: a browser cannot show more."""
    topic = asked.path["topic"]
    Client(asked.prompt).call(calls.topic_metadata(topic))  # says so if there is no such topic
    with Consumer(
        topic, transport=asked.transport, auto_offset_reset="latest", filter=asked.word("filter") or None
    ) as consumer:
        consumer.poll(timeout_ms=0)
        yield {"records": [], "left_out": 0}  # from now on every record comes
        while True:
            records = consumer.poll(timeout_ms=_POLL_MS)
            if records:
                shown = records[-CONSOLE_LIVE_RECORDS_MAX:]
                yield {
                    "records": [_event(row_of(each, asked.word("view"))) for each in shown],
                    "left_out": len(records) - len(shown),
                }
            else:
                yield None


def _event(row: Row) -> dict[str, object]:
    record = row.record
    return {
        "path": row.path,
        "time": time_text(record.timestamp_ms),
        "partition": record.partition,
        "offset": record.offset,
        "key": visible(row.key.text),
        "key_kind": row.key.kind,
        "value": visible(row.value.text),
        "value_kind": row.value.kind,
        "headers": visible(" ".join(f"{name}={value.text}" for name, value in row.headers)),
    }


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(Route(method="GET", path="/topics/{topic}/live", answer=show),),
    streams=(Stream(path="/topics/{topic}/live/events", events=events),),
)
