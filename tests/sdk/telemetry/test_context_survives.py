"""The trace context of a record on its ways through the service: it is a header, and headers stay."""

import base64
from typing import Any

from penstock import DeadLetters, Reject, Transaction, Transformer, tracing, webhook
from penstock.model import ConsumerRecord
from penstock.testing import MemoryPenstock
from tests.sdk.telemetry.recorded import Recorded, carried_by, context_of, links_of, parent_of
from tests.support.deadlines import until

CONSUMED = "messaging.client.consumed.messages"
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


def send(penstock: MemoryPenstock, **options: Any) -> None:
    penstock.producer().send("orders", b"1", **options).result()


def test_a_dead_letter_links_to_the_record_that_it_was(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.create_topic("orders.dead")
    penstock.create_share_group("workers", "orders", {"start": "earliest", "dead_letter_topic": "orders.dead"})
    send(penstock)
    consumer = penstock.share_consumer("orders", group_id="workers")
    consumer.reject(next(consumer), "bad")
    consumer.flush()
    assert consumer.poll(timeout_ms=100) == []
    dead = next(penstock.consumer("orders.dead", auto_offset_reset="earliest"))
    assert carried_by(dead.headers) == context_of(recorded.span("create orders"))
    assert Reject("bad").reason.encode() in [value for _, value in dead.headers]


def test_a_redriven_record_goes_on_in_its_trace(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.create_topic("orders.dead")
    penstock.create_share_group("workers", "orders", {"start": "earliest", "dead_letter_topic": "orders.dead"})
    send(penstock)
    consumer = penstock.share_consumer("orders", group_id="workers")
    consumer.reject(next(consumer), "bad")
    consumer.flush()
    assert consumer.poll(timeout_ms=100) == []
    assert penstock.admin().redrive("orders.dead").moved == 1
    first, again = penstock.records("orders")
    assert carried_by(again.headers) == carried_by(first.headers) == context_of(recorded.span("create orders"))


def test_a_dead_letter_of_a_plain_group_keeps_its_context(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.create_topic("orders.dead")
    send(penstock)
    consumer = penstock.consumer("orders", group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False)
    producer = penstock.producer(transactional_id="billing-dead")
    DeadLetters(consumer, producer, "orders.dead").move(next(consumer), reason="bad")
    (dead,) = penstock.records("orders.dead")
    assert carried_by(dead.headers) == context_of(recorded.span("create orders"))
    assert recorded.spans("create orders.dead") == []
    assert links_of(recorded.span("send orders.dead")) == [context_of(recorded.span("create orders"))]
    assert recorded.span("commit orders")


def test_a_delayed_record_keeps_its_context(penstock: MemoryPenstock, recorded: Recorded) -> None:
    send(penstock, delay_ms=100)
    until(lambda: len(penstock.records("orders")) == 1)
    (record,) = penstock.records("orders")
    assert carried_by(record.headers) == context_of(recorded.span("create orders"))
    assert links_of(recorded.span("send orders")) == [carried_by(record.headers)]


def test_a_transformers_effects_are_in_the_trace_of_their_record(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.create_topic("bills")
    send(penstock)

    def bill(record: ConsumerRecord, transaction: Transaction) -> None:
        transaction.send("bills", record.value)

    consumer = penstock.consumer("orders", group_id="b", delivery="exactly_once", auto_offset_reset="earliest")
    transformer = Transformer(consumer, penstock.producer(transactional_id="b"), bill)
    while not transformer.run_once():
        pass
    (made,) = penstock.records("bills")
    processed, created = recorded.span("process orders"), recorded.span("create bills")
    assert parent_of(processed) == context_of(recorded.span("create orders"))
    assert parent_of(created) == context_of(processed)
    assert carried_by(made.headers) == context_of(created)
    assert recorded.span("commit orders")


def test_a_function_gets_the_context_in_its_event(penstock: MemoryPenstock, recorded: Recorded) -> None:
    events: list[dict[str, Any]] = []
    penstock.add_function(ARN, lambda event, _context: events.append(event))
    penstock.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest"})
    send(penstock)
    penstock.deliver_pushes()
    (record,) = events[0]["records"]["orders-0"]
    headers = [
        (name, bytes(each % 256 for each in value)) for part in record["headers"] for name, value in part.items()
    ]
    context = tracing.context_of(tuple(headers))
    with recorded.tracer.start_as_current_span("pack", context=context):
        pass
    assert parent_of(recorded.span("pack")) == context_of(recorded.span("create orders"))


def test_a_copied_record_keeps_its_context(penstock: MemoryPenstock, recorded: Recorded) -> None:
    penstock.create_topic("mirror")
    penstock.admin().put_subscription("copy", "orders", {"topic": "mirror"}, {"start": "earliest"})
    send(penstock)
    penstock.deliver_pushes()
    (copy,) = penstock.records("mirror")
    assert carried_by(copy.headers) == context_of(recorded.span("create orders"))


def test_a_webhook_is_processed_in_the_trace_of_its_record(penstock: MemoryPenstock, recorded: Recorded) -> None:
    send(penstock)
    (sent,) = penstock.records("orders")
    secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    record = webhook.WebhookRecord(
        topic="orders",
        partition=0,
        offset=0,
        timestamp_ms=0,
        key=None,
        value=b"1",
        headers=sent.headers,
        attempt=1,
    )
    request = webhook.sign(secret, [record])
    (received,) = webhook.verify(secret, request.headers, request.body).records
    with tracing.processing(received, group="packing"):
        pass
    processed = recorded.span("process orders")
    assert parent_of(processed) == context_of(recorded.span("create orders"))
    groups = [point.attributes.get("messaging.consumer.group.name") for point in recorded.points(CONSUMED)]
    assert groups == [None, "packing"], "the read of the test is the first"
