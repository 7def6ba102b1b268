"""RepairQueue on SQS.

What a stage switches on when it is first needed: rules of EventBridge, and Lambda's pollers of queues.

Both begin switched off, because pollers of a queue that nobody uses cost money (docs/adr/0039).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REPAIR_DELAY_MS

if TYPE_CHECKING:
    from penstock_core.log.repair import Look, Repair
    from penstock_core.push.lane import PushMessage


_BATCH = 10  # messages of one call
_ENABLED = ("Enabled", "Enabling")


class NoRepairQueue:
    """RepairQueue of a stage with one zone. A segment there has one copy, and no other to repair it from."""

    def send(self, message: Repair | Look) -> None:
        pass


class SqsRepairQueue:
    """RepairQueue: the port documents its method. Asks for its client at a message, because few instances send one."""

    def __init__(self, client: Callable[[], Any], url: str) -> None:
        self._client = client
        self._url = url

    def send(self, message: Repair | Look) -> None:
        from botocore.exceptions import BotoCoreError, ClientError  # a healthy zone has none

        from penstock_core.log.repair import Look, encode_message

        body, delay_s = encode_message(message), REPAIR_DELAY_MS // 1_000 if isinstance(message, Look) else 0
        try:
            self._client().send_message(QueueUrl=self._url, MessageBody=body, DelaySeconds=delay_s)
        except (ClientError, BotoCoreError) as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE,
                f"SQS did not take the message {body:.200}: {error}",
                maybe_applied=True,
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPlaces:
    """The queue of deliveries, by URL and ARN, and the rule of the look, by name."""

    queue_url: str
    queue_arn: str
    rule: str


def parse_delivery_places(text: str | None) -> DeliveryPlaces | None:
    """The places of `<queue's URL>,<queue's ARN>,<rule>`, None for no text. Raises ValueError for anything else."""
    if not text:
        return None
    parts = text.split(",")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"{text!r} does not name the queue of deliveries: give QUEUE_URL,QUEUE_ARN,RULE")
    return DeliveryPlaces(queue_url=parts[0], queue_arn=parts[1], rule=parts[2])


class SqsDeliveryQueue:
    """DeliveryQueue: the port documents its methods. Makes a client when it first needs it."""

    def __init__(self, places: DeliveryPlaces, client: Callable[[str], Any]) -> None:
        self._places = places
        self._aws = AwsCalls(client)

    def send(self, messages: Sequence[PushMessage]) -> None:
        from penstock_core.push.lane import encode_push_message  # which functions of records need not load

        for start in range(0, len(messages), _BATCH):
            entries = [
                {"Id": str(number), "MessageBody": encode_push_message(message)}
                for number, message in enumerate(messages[start : start + _BATCH])
            ]
            answer = self._aws.call("sqs", "send_message_batch", QueueUrl=self._places.queue_url, Entries=entries)
            if failed := answer.get("Failed"):
                raise PenstockError(
                    ErrorCode.STORAGE_UNAVAILABLE,
                    f"SQS did not take {len(failed)} of {len(entries)} messages: {failed[0]!r:.200}",
                    maybe_applied=True,
                )

    def postpone(self, receipt: str, delay_ms: int) -> None:
        self._aws.call(
            "sqs",
            "change_message_visibility",
            QueueUrl=self._places.queue_url,
            ReceiptHandle=receipt,
            VisibilityTimeout=-(-delay_ms // 1_000),
        )

    def switch_on(self) -> None:
        self._aws.open_queue(self._places.queue_arn)
        self._aws.enable_rule(self._places.rule)


class AwsCalls:
    """Calls to AWS's control services, each once. `client` gives the client of a service when it is first needed."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        """The answer to `operation`. Raises STORAGE_UNAVAILABLE, `maybe_applied`."""
        from botocore.exceptions import BotoCoreError, ClientError  # which few instances need

        try:
            return getattr(self._client(service), operation)(**arguments)
        except (ClientError, BotoCoreError) as error:
            raise PenstockError(
                ErrorCode.STORAGE_UNAVAILABLE, f"{service} did not answer {operation}: {error}", maybe_applied=True
            ) from error

    def enable_rule(self, rule: str) -> None:
        """Lets the rule run. It may be repeated. One call."""
        self.call("events", "enable_rule", Name=rule)

    def open_queue(self, queue_arn: str) -> None:
        """Lets Lambda poll the queue. It may be repeated. One call, and one for each mapping that is off."""
        found = self.call("lambda", "list_event_source_mappings", EventSourceArn=queue_arn)
        for mapping in found["EventSourceMappings"]:
            if mapping["State"] not in _ENABLED:
                self.call("lambda", "update_event_source_mapping", UUID=mapping["UUID"], Enabled=True)
