"""DeliveryQueue in memory, with the rules of a standard SQS queue: what is received is hidden, and comes again.

```
 sent ──receive──▶ hidden until a time ──▶ visible again ──receive──▶ …
                    │      postpone sets another time
                    └─delete─▶ gone
```
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PUSH_MESSAGE_AGE_MS_MAX, PUSH_VISIBILITY_MS
from penstock_core.push.message import PushMessage
from penstock_service.ports.runtime import Clock

_SECOND_MS = 1_000
_AT_ONCE = 10  # messages that SQS gives in one call at most


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """One receipt of a message. `receive_count` counts from 1."""

    message_id: str
    receipt: str
    message: PushMessage
    sent_ms: int
    receive_count: int
    hidden_until_ms: int


class MemoryDeliveryQueue:
    """DeliveryQueue: the port documents its methods. A consumer calls `receive` and `delete`, as Lambda does on SQS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._messages: dict[str, ReceivedMessage] = {}
        self._sent = 0
        self.is_on = False

    @property
    def messages(self) -> Sequence[PushMessage]:
        """All messages that are not deleted, hidden ones too, in the order of their sending."""
        with self._lock:
            return [each.message for each in self._messages.values()]

    @property
    def next_visible_ms(self) -> int | None:
        """The time at which the first message is visible, None if there is none."""
        with self._lock:
            return min((each.hidden_until_ms for each in self._messages.values()), default=None)

    def send(self, messages: Sequence[PushMessage]) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            for message in messages:
                self._sent += 1
                message_id = f"message-{self._sent}"
                self._messages[message_id] = ReceivedMessage(
                    message_id=message_id,
                    receipt="",
                    message=message,
                    sent_ms=now_ms,
                    receive_count=0,
                    hidden_until_ms=now_ms,
                )

    def postpone(self, receipt: str, delay_ms: int) -> None:
        now_ms = self._clock.now_ms()
        with self._lock:
            received = self._of_receipt(receipt)
            if received is None or received.hidden_until_ms <= now_ms:
                raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"no message is in flight under {receipt!r}")
            delay_s = -(-delay_ms // _SECOND_MS)
            self._messages[received.message_id] = replace(received, hidden_until_ms=now_ms + delay_s * _SECOND_MS)

    def switch_on(self) -> None:
        self.is_on = True

    def receive(self, limit: int = 1) -> Sequence[ReceivedMessage]:
        """At most `limit`, 10 in all, of the visible messages. They are hidden for `PUSH_VISIBILITY_MS` then.

        None before the queue is switched on.
        """
        now_ms = self._clock.now_ms()
        with self._lock:
            for each in [*self._messages.values()]:
                if each.sent_ms + PUSH_MESSAGE_AGE_MS_MAX <= now_ms:
                    del self._messages[each.message_id]
            visible = [each for each in self._messages.values() if self.is_on and each.hidden_until_ms <= now_ms]
            return [self._received(each, now_ms) for each in visible[: min(limit, _AT_ONCE)]]

    def delete(self, receipt: str) -> None:
        """Removes the message, unless it was received again since: then an old receipt does nothing, as SQS may do."""
        with self._lock:
            received = self._of_receipt(receipt)
            if received is not None:
                del self._messages[received.message_id]

    def _received(self, message: ReceivedMessage, now_ms: int) -> ReceivedMessage:
        count = message.receive_count + 1
        received = replace(
            message,
            receipt=f"{message.message_id}.{count}",
            receive_count=count,
            hidden_until_ms=now_ms + PUSH_VISIBILITY_MS,
        )
        self._messages[message.message_id] = received
        return received

    def _of_receipt(self, receipt: str) -> ReceivedMessage | None:
        message = self._messages.get(receipt.rpartition(".")[0])
        return message if message is not None and message.receipt == receipt else None
