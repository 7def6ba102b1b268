"""The deliveries of subscriptions, in threads of their own: a slow endpoint holds up no other work of the server.

Each delivery has a thread, and `_AT_ONCE` work at a time. So a slow endpoint holds up no other subscription either,
unless all threads wait for slow ones.
"""

import logging
import threading
from collections.abc import Callable

from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_service.adapters.memory.messages import MemoryDeliveryQueue, ReceivedMessage
from penstock_service.instance.instance import Instance
from penstock_service.push.look import deliver_received, start_due

_TICK_S = 0.5
_STOP_S = 5.0  # for endpoints that are answering when the server stops
_AT_ONCE = 16

logger = logging.getLogger("penstock.dev")


class Deliveries:
    """Delivers what is due until it is closed. `settle` is called after each delivery."""

    def __init__(self, instance: Instance, queue: MemoryDeliveryQueue, settle: Callable[[], None]) -> None:
        self._instance = instance
        self._queue = queue
        self._settle = settle
        self._stopping = threading.Event()
        self._working: list[threading.Thread] = []
        queue.switch_on()  # a folder may hold subscriptions from before
        self._thread = threading.Thread(target=self._loop, name="penstock-deliveries", daemon=True)
        self._thread.start()

    def run_once(self) -> None:
        """Begin the deliveries that are due, as many as there is room for. What fails comes again later."""
        self._attempt(lambda: start_due(self._instance))
        self._working = [each for each in self._working if each.is_alive()]
        while len(self._working) < _AT_ONCE and (received := self._queue.receive()):
            thread = threading.Thread(target=self._deliver, args=(received[0],), name="penstock-delivery", daemon=True)
            self._working.append(thread)
            thread.start()

    def close(self) -> None:
        """Begin no further delivery, and wait a moment for those that run."""
        self._stopping.set()
        stops_ms = monotonic_ms() + _STOP_S * 1_000
        for each in (self._thread, *self._working):
            each.join(max(0.0, stops_ms - monotonic_ms()) / 1_000)

    def _deliver(self, received: ReceivedMessage) -> None:
        def deliver() -> None:
            deliver_received(self._instance, self._queue, received)
            self._settle()

        self._attempt(deliver)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PenstockError as error:
            logger.warning("a delivery failed, and comes again: %s", error)
        except Exception:
            logger.exception("a delivery failed by a defect, and comes again")

    def _loop(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.run_once()
