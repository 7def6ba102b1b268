"""The port of wake-ups. `penstock_service.ports` says what all methods raise."""

from dataclasses import dataclass
from typing import Protocol

from penstock_core.log.wake_up import WakeUpMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeUpPlace:
    """Where readers receive wake-ups: the WebSocket to open, and the names of its two hosts.

    A client opens `realtime_url` and sends `realtime_host` as its Host header. It signs its requests for `host`.
    """

    realtime_url: str
    host: str
    realtime_host: str


class WakeUps(Protocol):
    """Tells waiting readers that partitions have grown. A message may be lost, late or doubled."""

    @property
    def place(self) -> WakeUpPlace | None:
        """Where readers receive wake-ups, None if the stage has none. Sends no call."""

    def publish(self, message: WakeUpMessage) -> None:
        """Sends the message to all readers of its channel at this time. One call. Does nothing without a place."""
