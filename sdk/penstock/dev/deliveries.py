"""The deliveries of subscriptions, in a thread of their own: a slow endpoint holds up no other work of the server."""

import logging
import threading
from collections.abc import Callable

from penstock_core.errors import PenstockError
from penstock_service.adapters.memory.delivery_queue import MemoryDeliveryQueue
from penstock_service.instance.instance import Instance
from penstock_service.push.deliver_due import deliver_due

_TICK_S = 0.5
_STOP_S = 5.0  # for an endpoint that is answering when the server stops

logger = logging.getLogger("penstock.dev")


class Deliveries:
    """Delivers what is due until it is closed. `settle` is called after each round that delivered something."""

    def __init__(self, instance: Instance, queue: MemoryDeliveryQueue, settle: Callable[[], None]) -> None:
        self._instance = instance
        self._queue = queue
        self._settle = settle
        self._stopping = threading.Event()
        queue.switch_on()  # a folder may hold subscriptions from before
        self._thread = threading.Thread(target=self._loop, name="penstock-deliveries", daemon=True)
        self._thread.start()

    def run_once(self) -> None:
        """Deliver what is due. What fails comes again later."""
        try:
            if deliver_due(self._instance, self._queue):
                self._settle()
        except PenstockError as error:
            logger.warning("a delivery failed, and comes again: %s", error)
        except Exception:
            logger.exception("a delivery failed by a defect, and comes again")

    def close(self) -> None:
        """Begin no further round, and wait a moment for the one that runs."""
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _loop(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.run_once()
