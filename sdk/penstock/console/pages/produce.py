"""The form that sends a record."""

from penstock.api import calls
from penstock.console.page import Asked, Moved, Page, Route, Shown
from penstock.console.pages.records import record_path
from penstock.console.pages.topic import views_of
from penstock.console.parsing import bytes_of, headers_of
from penstock.http.client import Client
from penstock.producer.producer import Producer

_DELIVERY_MS_MAX = 15_000  # a person waits


def show_form(asked: Asked) -> Shown:
    """The form, for a topic that exists: one request."""
    topic = Client(asked.prompt).call(calls.topic_metadata(asked.path["topic"]))
    return Shown(template="produce.html", title=topic.name, facts={"topic": topic, "views": views_of(topic.name)})


def produce(asked: Asked) -> Moved:
    """Send the record, and wait until it is stored."""
    topic, form = asked.path["topic"], asked.form
    key = form.get("key", "")
    with Producer(transport=asked.transport, linger_ms=0, delivery_timeout_ms=_DELIVERY_MS_MAX) as producer:
        metadata = producer.send(
            topic,
            None if form.get("is_null") else bytes_of(form.get("value", ""), form.get("value_form", ""), "value"),
            key=bytes_of(key, form.get("key_form", ""), "key") if key else None,
            headers=headers_of(form.get("headers", "")),
            partition=asked.number("partition", 0) if asked.word("partition") else None,
        ).result()
    return Moved(
        to=record_path(topic, metadata.partition, metadata.offset),
        said=f"Stored in partition {metadata.partition} at offset {metadata.offset:,}.",
    )


PAGE = Page(
    menu=None,
    path="/topics",
    routes=(
        Route(method="GET", path="/topics/{topic}/produce", answer=show_form),
        Route(method="POST", path="/topics/{topic}/produce", answer=produce),
    ),
)
