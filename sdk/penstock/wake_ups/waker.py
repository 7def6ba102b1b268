# Generated from async_waker.py by `python -m tools.unasync`: change that file.
"""The thread that keeps a Watch covered: connection.py decides, link.py does the I/O."""

import logging
import threading
from collections.abc import Callable

from penstock.http.client import Client
from penstock.http.http_message import HttpRequest
from penstock.http.steps import drive
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.connection import Effect, Open, Outcome, Read, Shut, Sign, WakeUps, Write
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.link import Link
from penstock.wake_ups.watch import Watch
from penstock.workers.workers import Lock, released

_log = logging.getLogger("penstock.wake_ups")


class Waker:
    """Calls `woken` and `changed` under `lock`, which guards the watch. Call `wake` under the lock after a change.

    The thread starts when something is wanted for the first time: a consumer that never waits has none.
    """

    def __init__(
        self,
        watch: Watch,
        client: Client,
        woken: Callable[[WakeUp], None],
        *,
        lock: Lock,
        changed: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._client = client
        self._lock = lock
        self._changed = changed
        self._wake_ups = WakeUps(watch, woken, now_ms=monotonic_ms, chance=random_fraction)
        self._seen = 0  # the version of the watch that the thread has been told of
        self._runner: threading.Thread | None = None
        self._link: Link | None = None  # made with the runner

    def wake(self) -> None:
        """Tell the thread if what is wanted has changed."""
        if self._watch.version == self._seen:
            return
        self._seen = self._watch.version
        if self._link is not None:
            self._link.ring()
        elif not self._watch.is_closed:
            self._link = Link()
            name = "penstock-wake-up"
            self._runner = threading.Thread(target=self._run, args=(self._link,), name=name, daemon=True)
            self._runner.start()

    def end(self) -> None:
        """Wait until the thread ends: the watch must be closed, and `wake` called."""
        if self._runner is None or self._link is None:
            return
        if self._runner is not threading.current_thread():
            self._runner.join()
        self._link.close_bell()

    def _run(self, link: Link) -> None:
        def do(effect: Effect) -> Outcome:
            self._changed()
            with released(self._lock):
                return self._done(effect, link)

        with self._lock:
            try:
                drive(self._wake_ups.run(), do)
            except Exception:  # the driver's edge: a defect must not leave the consumer waiting for ever
                _log.exception("wake-ups have failed in an unexpected way: the consumer waits by long polls")
                self._watch.lost()
                self._watch.hold_until_ms = 0
            self._changed()

    def _done(self, effect: Effect, link: Link) -> Outcome:
        if isinstance(effect, HttpRequest):
            return self._client.try_once(effect)
        if isinstance(effect, Sign):
            return self._client.event_headers(effect.host, effect.body.encode())
        if isinstance(effect, Open):
            link.open(effect.host, effect.port, is_tls=effect.is_tls)
        elif isinstance(effect, Write):
            link.write(effect.data)
        elif isinstance(effect, Shut):
            link.shut()
        else:
            return link.listen(effect.until_ms, has_data=isinstance(effect, Read))
        return None
