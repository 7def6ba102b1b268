"""Operations that have ended, as spans and metrics tell them. A core notes them; its driver reports them.

A core works under a lock. A span processor of the application may take its time, or send records itself. So the core
only notes what happened, and the driver reports it after it has released the lock.

The names of spans, attributes and metrics, by OpenTelemetry's conventions for messaging.

Spans: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/
Metrics: https://opentelemetry.io/docs/specs/semconv/messaging/messaging-metrics/
Both were read at version 1.44; their status is "Development", so a later version may rename things.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model import ConsumerRecord, TopicPartition
from penstock.model.share import ShareRecord

if TYPE_CHECKING:  # nothing here needs OpenTelemetry
    from opentelemetry.trace import Span, SpanContext

    from penstock.telemetry.telemetry import Telemetry
    from penstock_core.push.targets.webhook_body import WebhookRecord

    AnyRecord = ConsumerRecord | ShareRecord | WebhookRecord
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One send, receive or settlement. Times are nanoseconds since 1970.

    `places` are the partitions that it was about, `count` the number of records. `records` are those received, and
    `origins` the creation contexts of those sent.
    """

    name: str
    type: OperationType
    places: frozenset[TopicPartition]
    count: int | None
    started_ns: int
    ended_ns: int
    group: str | None = None
    records: Sequence["AnyRecord"] = ()
    origins: Sequence["SpanContext"] = ()
    error: BaseException | None = None

    @property
    def topic(self) -> str | None:
        """The topic, if there is one for all."""
        topics = {each.topic for each in self.places}
        return topics.pop() if len(topics) == 1 else None

    @property
    def partition(self) -> int | None:
        """The partition, if there is one for all."""
        return next(iter(self.places)).partition if len(self.places) == 1 else None


class Notes:
    """The operations that a consumer's core has carried out. `now_ns` reads a clock.

    `report` sends them to the telemetry. Call it without the core's lock.
    """

    def __init__(self, telemetry: "Telemetry", group: str | None, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._telemetry = telemetry
        self._group = group or None
        self._operations: deque[Operation] = deque()

    def received(self, records: Sequence["AnyRecord"], started_ns: int, ended_ns: int) -> None:
        """The application has got these records. None are no operation: waiting for records leaves no spans."""
        if records:
            self._operations.append(
                Operation(
                    name="receive",
                    type=OperationType.RECEIVE,
                    places=frozenset(TopicPartition(each.topic, each.partition) for each in records),
                    count=len(records),
                    started_ns=started_ns,
                    ended_ns=ended_ns,
                    group=self._group,
                    records=records,
                )
            )

    def settled(
        self,
        name: str,
        places: Iterable[TopicPartition],
        count: int | None,
        started_ns: int,
        error: BaseException | None,
    ) -> None:
        """The consumer has told the service what happened to records, or an error has kept it from that."""
        self._operations.append(
            Operation(
                name=name,
                type=OperationType.SETTLE,
                places=frozenset(places),
                count=count,
                started_ns=started_ns,
                ended_ns=self.now_ns(),
                group=self._group,
                error=error,
            )
        )

    def report(self) -> None:
        """Report what was noted, once. Several threads may note and report."""
        while self._operations:
            try:
                operation = self._operations.popleft()
            except IndexError:  # another thread has reported it
                return
            self._telemetry.report([operation])

    def processing(self, record: "AnyRecord", *, is_received: bool) -> AbstractContextManager["Span"]:
        """The body handles the record. `is_received`: its receipt was noted."""
        return self._telemetry.processing(record, self._group, is_received=is_received)
