"""The threads of a share consumer: one may acquire while the other acknowledges, and one hears wake-ups."""

import logging
import threading

from penstock.http.client import Client
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Steps, Wait, drive
from penstock.share.acquire_call import ShareCall, send
from penstock.share.settings import LockLostCallback
from penstock.share.share_core import ShareCore
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.wake_thread import WakeThread
from penstock.workers.fork_guard import ForkGuard
from penstock.workers.worker_threads import Signal, Sleep, WorkerThreads, released, seconds_until

_log = logging.getLogger("penstock.share")

_CALLS = 2  # an acquire and an acknowledgement


class ShareThreads:
    """Drives a share consumer's core. `lock` guards the core."""

    def __init__(
        self, core: ShareCore, client: Client, *, fork: ForkGuard, on_lock_lost: LockLostCallback | None
    ) -> None:
        self.lock = threading.Lock()
        self._core = core
        self._client = client
        self._fork = fork
        self._on_lock_lost = on_lock_lost
        self._arrived = Signal(self.lock, is_final=True)  # for calls that `stop` ends
        self._answered = Signal(self.lock)  # for the other calls
        self._sleep = Sleep(self.lock)
        self._is_stopping = False
        self._threads = WorkerThreads("penstock-share", _CALLS, self._next_call, self._carry)
        self._wake_ups: WakeThread | None = None
        if core.waiting.watch is not None:
            self._wake_ups = WakeThread(
                core.waiting.watch, client, self._woken, lock=self.lock, changed=self._look_again
            )

    def start(self) -> None:
        """Start the threads, once."""
        self._fork.check()
        self._threads.start()

    def drive(self, steps: Steps[Result], *, until_stopped: bool = True) -> Result:
        """Take the lock and carry out a procedure of the core. `stop` ends its waits only with `until_stopped`."""
        self._fork.check()
        signal = self._arrived if until_stopped else self._answered

        def do(effect: HttpRequest | Wait) -> Document:
            assert isinstance(effect, Wait)
            self._wake()
            signal.wait(seconds_until(effect.until_ms, monotonic_ms()))
            return {}

        try:
            with self.lock:
                try:
                    return drive(steps, do)
                finally:
                    self._wake()
        finally:
            self._core.report()

    def changed(self) -> None:
        """Under the lock, after the application has acknowledged something."""
        self._wake()

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
            self._wake()
        self._threads.join()
        if self._wake_ups is not None:
            self._wake_ups.join()

    def _wake(self) -> None:
        if self._core.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()
        if self._wake_ups is not None:
            self._wake_ups.wake()

    def _notify(self) -> None:
        self._arrived.notify_all()
        self._answered.notify_all()

    def _woken(self, wake_up: WakeUp) -> None:
        self._core.waiting.woken(wake_up)
        self._look_again()

    def _look_again(self) -> None:
        self._core.wake_at_ms = 0
        self._wake()

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
        with self.lock:
            self._core.complete(call, answer, random_fraction())
            self._tell()
            self._notify()
            self._wake()
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
