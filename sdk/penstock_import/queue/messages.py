"""Messages of a queue, and the queue as the drain sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock_core.records.codec import Headers

MESSAGE_ID_HEADER = "sqs-message-id"
DEDUPLICATION_ID_HEADER = "sqs-deduplication-id"


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
