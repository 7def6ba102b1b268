"""Connections of a library's pool that were idle for long are not used again: they may be dead, and no FIN tells so."""

import threading
from collections.abc import Callable

from penstock_core.limits import STORAGE_IDLE_CONNECTION_MS_MAX
from penstock_service.adapters.system import SystemClock
from penstock_service.instance.moment import Moment
from penstock_service.ports.runtime import Clock


class IdleGuard:
    """Calls `forget`, which closes the idle connections, before a call after `STORAGE_IDLE_CONNECTION_MS_MAX` of none.

    Both clocks count, as for the project's own connections (direct/connections.py).
    """

    def __init__(self, forget: Callable[[], object], clock: Clock | None = None) -> None:
        self._forget = forget
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # a concurrent call must not take a connection that is about to be closed
        self._called = Moment.now(self._clock)

    def before_call(self, **_: object) -> None:
        """Take note of a call. It has the form of a handler of botocore's event `before-send`."""
        with self._lock:
            is_old = self._called.age_ms(self._clock) > STORAGE_IDLE_CONNECTION_MS_MAX
            self._called = Moment.now(self._clock)
            if is_old:
                self._forget()
