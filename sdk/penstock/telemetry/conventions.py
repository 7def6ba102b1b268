"""The names of spans, attributes and metrics, by OpenTelemetry's conventions for messaging.

Spans: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
Metrics: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/
Both were read at version 1.44; their status is "Development", so a later version may rename things.
"""

from enum import StrEnum

SYSTEM = "penstock"  # the value of messaging.system

MESSAGING_SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION_NAME = "messaging.destination.name"
DESTINATION_PARTITION_ID = "messaging.destination.partition.id"
CONSUMER_GROUP_NAME = "messaging.consumer.group.name"
BATCH_MESSAGE_COUNT = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

SENT_MESSAGES = "messaging.client.sent.messages"
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
OPERATION_DURATION = "messaging.client.operation.duration"
PROCESS_DURATION = "messaging.process.duration"

# Seconds: the advice of the metrics page, for both histograms.
DURATION_BOUNDARIES = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class OperationType(StrEnum):
    """The types of operations. The kind of a span follows from its type."""

    CREATE = "create"
    SEND = "send"
    RECEIVE = "receive"
    PROCESS = "process"
    SETTLE = "settle"


def span_name(operation: str, topic: str | None) -> str:
    """`{operation} {destination}`. An operation on several topics has no destination."""
    return f"{operation} {topic}" if topic else operation
