"""WakeUps in memory, for tests and simulations."""

import threading
from collections.abc import Callable

from penstock_core.log.wake_up import WakeUpMessage
from penstock_service.ports.wake_ups import WakeUpPlace

Receive = Callable[[WakeUpMessage], object]

LOCAL_PLACE = WakeUpPlace(
    realtime_url="ws://127.0.0.1/event/realtime", host="wake-ups.localhost", realtime_host="wake-ups.localhost"
)


class MemoryWakeUps:
    """WakeUps: the port documents its methods. `messages` has all that were published, in order."""

    def __init__(self) -> None:
        self.place: WakeUpPlace | None = LOCAL_PLACE
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str, Receive]] = []
        self.messages: list[WakeUpMessage] = []

    def publish(self, message: WakeUpMessage) -> None:
        with self._lock:
            self.messages.append(message)
            receivers = [receive for channel, receive in self._subscribers if channel == message.channel]
        for receive in receivers:
            receive(message)

    def subscribe(self, channel: str, receive: Receive) -> Callable[[], None]:
        """Calls `receive` with each message to the channel from now on, until the result is called."""
        subscriber = (channel, receive)
        with self._lock:
            self._subscribers.append(subscriber)

        def end() -> None:
            with self._lock:
                self._subscribers.remove(subscriber)

        return end
