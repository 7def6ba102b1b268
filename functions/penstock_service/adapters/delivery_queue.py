"""DeliveryQueue on SQS, and the pollers that Lambda keeps on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.message import PushMessage, encode_push_message
from penstock_service.adapters.aws_calls import AwsCalls

_BATCH = 10  # messages of one call


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
