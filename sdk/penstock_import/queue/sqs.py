"""An SQS queue by botocore.

Messages of a queue, and the queue as the drain sees it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import botocore.exceptions
import botocore.session
from botocore.config import Config

from penstock.errors import ConnectionFailedError, NotConfiguredError, NotFoundError, UnavailableError
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import IMPORT_VISIBILITY_S, PUSH_ENTRIES_MAX
from penstock_core.records.codec import Headers
from penstock_import.source.address import QueueAddress

_REGION = re.compile(r"https?://sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/")
_UNKNOWN = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
_DENIED = ("AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken")
MESSAGE_ID_HEADER = "sqs-message-id"
DEDUPLICATION_ID_HEADER = "sqs-deduplication-id"


def sqs_client(address: QueueAddress) -> Any:
    """A client by the usual AWS chain of credentials, region and endpoint. The URL of a queue tells its region."""
    found = _REGION.match(address.queue)
    region = found[1] if found else None
    try:
        return botocore.session.get_session().create_client(
            "sqs", region_name=region, config=Config(retries={"mode": "standard", "total_max_attempts": 5})
        )
    except botocore.exceptions.NoRegionError as error:
        raise NotConfiguredError("no AWS region for the queue: set AWS_REGION, or give its URL") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMessage:
    """A received message. `group` is that of a FIFO queue. `headers` are its attributes, and its ids at the end."""

    message_id: str
    receipt: str
    body: str
    sent_ms: int | None = None
    group: str | None = None
    headers: Headers = ()

    @property
    def key(self) -> bytes | None:
        """The record's key: the message group, so that a group keeps its order."""
        return None if self.group is None else self.group.encode()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory and in a request."""
        return len(self.body) + sum(len(name) + len(value or b"") for name, value in self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """About how many messages a queue holds: to receive, received and not deleted, and not due yet."""

    visible: int
    in_flight: int
    delayed: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.visible + self.in_flight + self.delayed


class MessageQueue(Protocol):
    """One queue. A received message is hidden for a time, and comes again unless it is deleted."""

    @property
    def identity(self) -> str:
        """The name under which taken messages are noted."""

    def receive(self, wait_ms: int) -> Sequence[QueueMessage]:
        """A few messages; none if none was there for `wait_ms`. In a FIFO queue, a group in flight gives no more."""

    def delete(self, messages: Sequence[QueueMessage]) -> int:
        """Delete messages. Returns how many could not be deleted: they come again."""

    def counts(self) -> QueueCounts:
        """The counts now."""


class SqsQueue:
    """A MessageQueue in SQS."""

    def __init__(self, client: Any, address: QueueAddress) -> None:
        """One or two requests. Raises NotFoundError for an unknown queue."""
        self._client = client
        self._shown = address.queue
        self._url = address.queue
        if not address.is_url:
            self._url = self._call("get_queue_url", QueueName=address.queue)["QueueUrl"]
        self.identity = f"sqs:{self._attributes('QueueArn')['QueueArn']}"

    def receive(self, wait_ms: int) -> Sequence[QueueMessage]:
        """As MessageQueue.receive. One request, which waits in whole seconds."""
        answer = self._call(
            "receive_message",
            QueueUrl=self._url,
            MaxNumberOfMessages=PUSH_ENTRIES_MAX,
            WaitTimeSeconds=wait_ms // 1_000,
            VisibilityTimeout=IMPORT_VISIBILITY_S,
            MessageAttributeNames=["All"],
            MessageSystemAttributeNames=["SentTimestamp", "MessageGroupId", "MessageDeduplicationId"],
        )
        return [queue_message(each) for each in answer.get("Messages", [])]

    def delete(self, messages: Sequence[QueueMessage]) -> int:
        """As MessageQueue.delete. One request for ten messages."""
        left = iter(messages)
        failed = 0
        while some := list(islice(left, PUSH_ENTRIES_MAX)):
            entries = [{"Id": str(number), "ReceiptHandle": each.receipt} for number, each in enumerate(some)]
            answer = self._call("delete_message_batch", QueueUrl=self._url, Entries=entries)
            failed += len(answer.get("Failed", []))
        return failed

    def counts(self) -> QueueCounts:
        """As MessageQueue.counts. One request; SQS counts with a delay."""
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
        found = self._attributes(*names)
        visible, in_flight, delayed = (int(found.get(name, 0)) for name in names)
        return QueueCounts(visible=visible, in_flight=in_flight, delayed=delayed)

    def _attributes(self, *names: str) -> Mapping[str, str]:
        answer = self._call("get_queue_attributes", QueueUrl=self._url, AttributeNames=list(names))
        found: Mapping[str, str] = answer.get("Attributes", {})
        return found

    def _call(self, name: str, **parameters: Any) -> Any:
        try:
            return getattr(self._client, name)(**parameters)
        except botocore.exceptions.ClientError as error:
            raise _as_penstock_error(error, self._shown) from error
        except (botocore.exceptions.NoCredentialsError, botocore.exceptions.PartialCredentialsError) as error:
            raise NotConfiguredError(f"queue {shown(self._shown)}: {error}") from error
        except botocore.exceptions.BotoCoreError as error:
            raise ConnectionFailedError(f"queue {shown(self._shown)}: {error}", maybe_applied=False) from error


def queue_message(message: Mapping[str, Any]) -> QueueMessage:
    """A message as SQS answers it."""
    system = message.get("Attributes", {})
    headers = [(name, _value(each)) for name, each in message.get("MessageAttributes", {}).items()]
    headers.append((MESSAGE_ID_HEADER, message["MessageId"].encode()))
    if "MessageDeduplicationId" in system:
        headers.append((DEDUPLICATION_ID_HEADER, system["MessageDeduplicationId"].encode()))
    return QueueMessage(
        message_id=message["MessageId"],
        receipt=message["ReceiptHandle"],
        body=message["Body"],
        sent_ms=int(system["SentTimestamp"]) if "SentTimestamp" in system else None,
        group=system.get("MessageGroupId"),
        headers=tuple(headers),
    )


def _value(attribute: Mapping[str, Any]) -> bytes:
    if "BinaryValue" in attribute:
        return bytes(attribute["BinaryValue"])
    return str(attribute.get("StringValue", "")).encode()


def _as_penstock_error(error: botocore.exceptions.ClientError, queue: str) -> PenstockError:
    found = error.response.get("Error", {})
    code, text = str(found.get("Code", "")), str(found.get("Message", ""))
    if code in _UNKNOWN:
        return NotFoundError(
            ErrorCode.INVALID_NAME, f"there is no queue {shown(queue)} in this account and region: {text}"
        )
    if code in _DENIED:
        return PenstockError(
            ErrorCode.NOT_AUTHORIZED,
            f"queue {shown(queue)}: {code}: {text}. Allow sqs:GetQueueUrl, GetQueueAttributes, ReceiveMessage and "
            "DeleteMessage",
        )
    return UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, f"queue {shown(queue)}: {code}: {text}")
