"""Traces of OpenTelemetry for records that come without a client: to a webhook of yours, or to a Lambda function.

    from penstock import tracing, webhook

    delivery = webhook.verify(secret, request.headers, request_body)
    for record in delivery.records:
        with tracing.processing(record, group=delivery.subscription):
            bill(record)  # its spans, and what it sends, belong to the record's trace

Consumers have a method `processing` of their own; `ShareConsumer.run` and `Transformer` do it by themselves. Without a
provider of OpenTelemetry `processing` does nothing. docs/how-to/tracing.md shows the whole.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from penstock.model import ConsumerRecord, Headers
from penstock.telemetry.opening import find_telemetry
from penstock.webhook import WebhookRecord

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["context_of", "processing"]


def processing(record: ConsumerRecord | WebhookRecord, *, group: str | None = None) -> AbstractContextManager[object]:
    """A `process` span (kind CONSUMER) around the body, which handles the record. It counts as consumed.

    The span links to the record's creation context. That context is also its parent, unless another span is current.
    An exception ends the span with an error, and goes on. `group` names the consumer group or the subscription.
    """
    telemetry = find_telemetry()
    return nullcontext() if telemetry is None else telemetry.processing(record, group, is_received=False)


def context_of(headers: Headers) -> "Context":
    """The context that a record's headers carry, for `tracer.start_span(context=…)` and for links; empty without one.

    Needs OpenTelemetry: raises ModuleNotFoundError without it.
    """
    from penstock.telemetry.telemetry import context_in

    return context_in(headers)
