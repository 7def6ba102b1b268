"""The form that sends a record."""

from typing import NamedTuple

from penstock.api import calls
from penstock.console.page import Asked, Moved, Page, Route, Shown
from penstock.console.pages.records import record_path
from penstock.console.pages.topic import views_of
from penstock.console.parsing import bytes_of, headers_of
from penstock.http.client import Client
from penstock.model import Headers, RecordMetadata
from penstock.producer.producer import Producer

_DELIVERY_MS_MAX = 15_000  # a person waits


class NewRecord(NamedTuple):
    """The record of a form."""

    value: bytes | None
    key: bytes | None
    headers: Headers


def show_form(asked: Asked) -> Shown:
    """The form, for a topic that exists: one request."""
    topic = Client(asked.prompt).call(calls.topic_metadata(asked.path["topic"]))
    return Shown(template="produce.html", title=topic.name, facts={"topic": topic, "views": views_of(topic.name)})


def produce(asked: Asked) -> Moved:
    """Send the record, and wait until it is stored."""
    topic, form = asked.path["topic"], asked.form
    key = form.get("key", "")
    record = NewRecord(
        value=None if form.get("is_null") else bytes_of(form.get("value", ""), form.get("value_form", ""), "value"),
        key=bytes_of(key, form.get("key_form", ""), "key") if key else None,
        headers=headers_of(form.get("headers", "")),
    )
    metadata = stored(asked, topic, record, asked.number("partition", 0) if asked.word("partition") else None)
    return Moved(
        to=record_path(topic, metadata.partition, metadata.offset),
        said=f"Stored in partition {metadata.partition} at offset {metadata.offset:,}.",
    )


def stored(asked: Asked, topic: str, record: NewRecord, partition: int | None = None) -> RecordMetadata:
    """Send the record, and wait until it is stored. Without a partition the key decides."""
    with Producer(transport=asked.transport, linger_ms=0, delivery_timeout_ms=_DELIVERY_MS_MAX) as producer:
        return producer.send(topic, record.value, key=record.key, headers=record.headers, partition=partition).result()


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(
        Route(method="GET", path="/topics/{topic}/produce", answer=show_form),
        Route(method="POST", path="/topics/{topic}/produce", answer=produce),
    ),
)
