"""A queue in memory. A received message is hidden until `time_out`, and a FIFO group in flight gives no more."""

from collections.abc import Sequence

from penstock_import.queue.sqs import QueueCounts, QueueMessage


class MemoryQueue:
    """A MessageQueue that hands out `limit` messages at a time, and fails `failing_deletes` times to delete."""

    identity = "sqs:arn:aws:sqs:eu-central-1:1:orders"

    def __init__(self, *, limit: int = 3, failing_deletes: int = 0) -> None:
        self.messages: dict[str, QueueMessage] = {}
        self.hidden: set[str] = set()
        self._limit = limit
        self._failing_deletes = failing_deletes

    def send(self, body: str, group: str | None = None, sent_ms: int = 1_000) -> None:
        message_id = f"id-{len(self.messages)}"
        self.messages[message_id] = QueueMessage(
            message_id=message_id, receipt=message_id, body=body, sent_ms=sent_ms, group=group, headers=(("a", b"1"),)
        )

    def time_out(self) -> None:
        """All hidden messages are to be received again."""
        self.hidden.clear()

    def receive(self, wait_ms: int) -> Sequence[QueueMessage]:
        busy = {self.messages[each].group for each in self.hidden} - {None}
        found = [each for each in self.messages.values() if each.message_id not in self.hidden]
        found = [each for each in found if each.group not in busy][: self._limit]
        self.hidden |= {each.message_id for each in found}
        return found

    def delete(self, messages: Sequence[QueueMessage]) -> int:
        failed = min(self._failing_deletes, len(messages))
        self._failing_deletes -= failed
        for each in messages[failed:]:
            self.messages.pop(each.message_id, None)
            self.hidden.discard(each.message_id)
        return failed

    def counts(self) -> QueueCounts:
        hidden = len(self.hidden)
        return QueueCounts(visible=len(self.messages) - hidden, in_flight=hidden, delayed=0)
