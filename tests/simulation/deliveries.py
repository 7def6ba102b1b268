"""What Lambda hands to the function `replicate`: records of the log table's stream, and messages of the repair queue.

A stream's records come in order, and again from the first that failed; a message comes again until it was handled.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from handlers import replicate
from penstock_broker.broker import Broker
from penstock_core.index import Head
from penstock_core.items import head_item
from penstock_core.keys import PartitionKey
from penstock_core.repair import Repair, encode_repair

Call = Callable[[Callable[[Broker], replicate.Failures]], replicate.Failures]

_STREAM_BATCH = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedHead:
    """A head as the append left it whose segment some zone had not confirmed."""

    number: int
    key: PartitionKey
    head: Head


def deliver_stream(call: Call, stream: list[StreamedHead]) -> None:
    """Hand over the oldest records, and drop those that were handled. Raises what `call` does: all come again then."""
    batch = stream[:_STREAM_BATCH]
    event = {"Records": [_streamed(each) for each in batch]}
    failures = call(lambda broker: replicate.serve(event, broker))["batchItemFailures"]
    failed = {failure["itemIdentifier"] for failure in failures}
    handled = 0
    while handled < len(batch) and str(batch[handled].number) not in failed:
        handled += 1
    del stream[:handled]


def deliver_repairs(call: Call, repairs: Sequence[Repair]) -> list[Repair]:
    """Hand over messages; those that are to come again. Raises what `call` does: all come again then."""
    event = {"Records": [_queued(str(number), repair) for number, repair in enumerate(repairs)]}
    failures = call(lambda broker: replicate.serve(event, broker))["batchItemFailures"]
    return [repairs[int(failure["itemIdentifier"])] for failure in failures]


def _streamed(record: StreamedHead) -> dict[str, Any]:
    image = json.loads(
        json.dumps(head_item(record.key, record.head), default=lambda data: base64.b64encode(data).decode())
    )
    return {
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "Keys": {name: image[name] for name in ("pk", "sk")},
            "NewImage": image,
            "SequenceNumber": str(record.number),
        },
    }


def _queued(number: str, repair: Repair) -> dict[str, Any]:
    return {"eventSource": "aws:sqs", "messageId": number, "body": encode_repair(repair)}
