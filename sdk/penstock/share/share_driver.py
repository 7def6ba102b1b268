# Generated from async_share_driver.py by `python -m tools.unasync`: change that file.
"""The threads of a share consumer: one may acquire while the other acknowledges, and one hears wake-ups."""

import logging

from penstock.http.client import Client
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Steps, Wait, drive
from penstock.schemas.serialization import Reading
from penstock.share.acquire_call import ShareAnswer, ShareCall, read_values, send
from penstock.share.settings import LockLostCallback
from penstock.share.share_core import ShareCore
from penstock.system import random_fraction
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.waker import Waker
from penstock.workers.fork_guard import ForkGuard
from penstock.workers.workers import Lock, Signal, Sleep, Workers, released

_log = logging.getLogger("penstock.share")

_CALLS = 2  # an acquire and an acknowledgement


class ShareDriver:
    """Drives a share consumer's core. `lock` guards the core."""

    def __init__(
        self,
        core: ShareCore,
        client: Client,
        *,
        fork: ForkGuard,
        on_lock_lost: LockLostCallback | None,
        reading: Reading,
    ) -> None:
        self.lock = Lock()
        self._core = core
        self._client = client
        self._fork = fork
        self._on_lock_lost = on_lock_lost
        self._reading = reading
        # `_arrived` is for calls that `stop` ends, `_answered` for the other ones.
        self._arrived = Signal(self.lock, is_final=True)
        self._answered = Signal(self.lock)
        self._sleep = Sleep(self.lock)
        self._is_stopping = False
        self._workers = Workers("penstock-share", _CALLS, self._next_call, self._carry)
        self._wake_ups: Waker | None = None
        if core.waiting.watch is not None:
            self._wake_ups = Waker(core.waiting.watch, client, self._woken, lock=self.lock, changed=self._look_again)

    def start(self) -> None:
        """Start the threads, once."""
        self._fork.check()
        if not self._is_stopping:
            self._workers.start()

    def drive(self, steps: Steps[Result], *, until_stopped: bool = True) -> Result:
        """Take the lock and carry out a procedure of the core. `stop` ends its waits only with `until_stopped`."""
        self._fork.check()
        signal = self._arrived if until_stopped else self._answered

        def do(effect: HttpRequest | Wait) -> Document:
            assert isinstance(effect, Wait)
            self.wake()
            signal.wait(effect.until_ms)
            return {}

        try:
            with self.lock:
                try:
                    return drive(steps, do)
                finally:
                    self.wake()
        finally:
            self._core.report()

    def wake(self) -> None:
        """Under the lock: wake the threads, if they would sleep past the next request."""
        if self._core.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()
        if self._wake_ups is not None:
            self._wake_ups.wake()

    def interrupt(self) -> None:
        """End all waits for records. Needs no lock: signal handlers and other threads call it."""
        self._arrived.interrupt()

    def stop(self) -> None:
        """End the threads. Waits for the requests in flight."""
        with self.lock:
            self._is_stopping = True
            self._sleep.end()
            self._notify()
            if self._core.waiting.watch is not None:
                self._core.waiting.watch.close()
            self.wake()
        self._workers.end()
        if self._wake_ups is not None:
            self._wake_ups.end()

    def _notify(self) -> None:
        self._arrived.notify_all()
        self._answered.notify_all()

    def _woken(self, wake_up: WakeUp) -> None:
        self._core.waiting.woken(wake_up)
        self._look_again()

    def _look_again(self) -> None:
        self._core.wake_at_ms = 0
        self.wake()

    def _next_call(self) -> ShareCall | None:
        with self.lock:
            while not self._is_stopping:
                call = self._core.next_call()
                self._tell()
                if call is not None:
                    return call
                self._sleep.until(self._core.wake_at_ms)
        return None

    def _carry(self, call: ShareCall) -> None:
        answer = drive(send(call), self._client.try_once)
        if self._reading and isinstance(answer, ShareAnswer):
            answer = read_values(answer, self._reading)
        with self.lock:
            self._core.complete(call, answer, random_fraction())
            self._tell()
            self._notify()
            self.wake()
        self._core.report()

    def _tell(self) -> None:
        """Under the lock: tell the application of records that are lost. The lock is released meanwhile."""
        lost = self._core.keeper.take_lost()
        if not lost or self._on_lock_lost is None:
            return
        with released(self.lock):
            try:
                self._on_lock_lost(lost)
            except Exception:  # a callback's edge
                _log.exception("on_lock_lost has failed")
