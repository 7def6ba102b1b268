"""DeliveryQueue in memory: a list of what was sent."""

from collections.abc import Sequence

from penstock_core.push.message import PushMessage


class MemoryDeliveryQueue:
    """DeliveryQueue: the port documents its methods.

    `messages` are those that were sent and not taken. `pauses` are the receipts of postponed ones, with milliseconds.
    """

    def __init__(self) -> None:
        self.messages: list[PushMessage] = []
        self.pauses: list[tuple[str, int]] = []
        self.is_on = False

    def send(self, messages: Sequence[PushMessage]) -> None:
        self.messages.extend(messages)

    def postpone(self, receipt: str, delay_ms: int) -> None:
        self.pauses.append((receipt, delay_ms))

    def switch_on(self) -> None:
        self.is_on = True
