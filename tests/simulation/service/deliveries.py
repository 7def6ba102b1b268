"""Lambda's deliveries to the function `replicate`: records of the log table's stream, and messages of the repair queue.

Lambda delivers a stream's records in order, and again from the first that failed. It delivers a message again until
the function has handled it.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.log.repair import Look, Repair, encode_message
from penstock_handlers import replicate
from penstock_service.instance.instance import Instance

Call = Callable[[Callable[[Instance], replicate.Failures]], replicate.Failures]

_STREAM_BATCH = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedImage:
    """A record of the stream that the function's filter lets through (infra/penstock_cdk/service/repair.py)."""

    number: int
    image: Mapping[str, Any]

    @staticmethod
    def is_wanted(image: Mapping[str, Any]) -> bool:
        """True of a head whose newest append some zone had not confirmed."""
        return bool(image["sk"]["S"] == "head" and image["under_replicated"]["N"] != "0")


def deliver_stream(call: Call, stream: list[StreamedImage]) -> None:
    """Deliver the oldest records, and drop the handled ones. An error of `call` passes, and all records come again."""
    batch = stream[:_STREAM_BATCH]
    event = {"Records": [_streamed(each) for each in batch]}
    failures = call(lambda instance: replicate.serve(event, instance))["batchItemFailures"]
    failed = {failure["itemIdentifier"] for failure in failures}
    handled = 0
    while handled < len(batch) and str(batch[handled].number) not in failed:
        handled += 1
    del stream[:handled]


def deliver_messages(call: Call, messages: Sequence[Repair | Look]) -> list[Repair | Look]:
    """Deliver messages, and return those that failed. An error of `call` passes, and all messages come again."""
    event = {"Records": [_queued(str(number), message) for number, message in enumerate(messages)]}
    failures = call(lambda instance: replicate.serve(event, instance))["batchItemFailures"]
    return [messages[int(failure["itemIdentifier"])] for failure in failures]


def _streamed(record: StreamedImage) -> dict[str, Any]:
    image = json.loads(json.dumps(record.image, default=lambda data: base64.b64encode(data).decode()))
    return {
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "Keys": {name: image[name] for name in ("pk", "sk")},
            "NewImage": image,
            "SequenceNumber": str(record.number),
        },
    }


def _queued(number: str, message: Repair | Look) -> dict[str, Any]:
    return {"eventSource": "aws:sqs", "messageId": number, "body": encode_message(message)}
