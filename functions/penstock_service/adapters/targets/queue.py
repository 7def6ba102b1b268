"""SQS queues as targets."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import QUEUE_BYTES_MAX
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch
from penstock_core.push.targets.queue_message import QueueMessage, attribute_type, queue_message
from penstock_core.push.targets.target import QueueTarget
from penstock_service.adapters.targets.calls import (
    AWS_ERRORS,
    EntryCalls,
    EntrySizes,
    Refusals,
    error_code,
    failure_of,
    is_denied,
    is_missing,
    statement_id,
)

# SQS refuses this message after it has looked at the caller's rights.
_REFUSED_ENTRY = {"Id": "check", "MessageBody": "\0"}
_REFUSED_CODE = "InvalidMessageContents"


class SqsQueues:
    """Sends a message for each record. `role_arn` is the role that sends."""

    def __init__(self, client: Callable[[], Any], calls: EntryCalls, role_arn: str) -> None:
        self._client = client
        self._calls = calls
        self._role_arn = role_arn

    def check(self, target: QueueTarget) -> None:
        """One SendMessageBatch with a message that SQS refuses. Raises as `Targets.check`."""
        try:
            self._client().send_message_batch(QueueUrl=target.url, Entries=[_REFUSED_ENTRY])
        except AWS_ERRORS as error:
            if error_code(error) != _REFUSED_CODE:
                raise self._refusal(target, error) from error

    def deliver(self, target: QueueTarget, batch: PushBatch, timeout_ms: int) -> Answer:
        """One SendMessageBatch for each ten records. A queue keeps no order."""
        messages = [queue_message(record) for record in batch.records]
        sizes = [message.size_bytes for message in messages]

        def call(indices: Sequence[int]) -> Refusals | Failed:
            return self._send(target.url, {index: messages[index] for index in indices})

        return self._calls.send(
            batch, EntrySizes(sizes=sizes, bytes_max=QUEUE_BYTES_MAX, service="SQS"), call, timeout_ms
        )

    def _send(self, url: str, messages: dict[int, QueueMessage]) -> Refusals | Failed:
        entries = [_entry(str(index), message) for index, message in messages.items()]
        try:
            failed = self._client().send_message_batch(QueueUrl=url, Entries=entries).get("Failed", [])
        except AWS_ERRORS as error:
            return failure_of(error)
        for each in failed:
            if not each["SenderFault"]:
                return Failed(failure=Failure.AWAY, error=_entry_error(each))
        return {int(each["Id"]): _entry_error(each) for each in failed}

    def _refusal(self, target: QueueTarget, error: Exception) -> PenstockError:
        if is_denied(error):
            why = (
                f"the service may not send to {target.url}, or there is no such queue. "
                f"Add this statement to the queue's policy:\n{json.dumps(self._statement(target))}"
            )
            return PenstockError(ErrorCode.ACCESS_DENIED, why)
        if is_missing(error):
            return PenstockError(ErrorCode.INVALID_CONFIG, f"target.sqs={shown(target.url)}: there is no such queue")
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"SQS did not answer for {target.url}: {error}")

    def _statement(self, target: QueueTarget) -> dict[str, Any]:
        _, account, name = urlsplit(target.url).path.split("/")
        partition, region = self._role_arn.split(":")[1], self._client().meta.region_name
        return {
            "Sid": statement_id(self._role_arn),
            "Effect": "Allow",
            "Principal": {"AWS": self._role_arn},
            "Action": "sqs:SendMessage",
            "Resource": f"arn:{partition}:sqs:{region}:{account}:{name}",
        }


def _entry(entry_id: str, message: QueueMessage) -> dict[str, Any]:
    attributes = {}
    for name, value in message.attributes.items():
        field = "BinaryValue" if isinstance(value, bytes) else "StringValue"
        attributes[name] = {
            "DataType": attribute_type(value),
            field: value if isinstance(value, bytes) else str(value),
        }
    return {"Id": entry_id, "MessageBody": message.body, "MessageAttributes": attributes}


def _entry_error(failed: dict[str, Any]) -> str:
    return f"{failed['Code']}: {failed.get('Message', '')}"
