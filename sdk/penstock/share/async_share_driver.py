"""The tasks of a share consumer: one may acquire while the other acknowledges, and one hears wake-ups."""

import asyncio
import inspect
import logging

from penstock.http.async_client import AsyncClient
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Steps, Wait, drive_async
from penstock.schemas.serialization import Reading
from penstock.share.acquire_call import ShareAnswer, ShareCall, read_values, send
from penstock.share.settings import LockLostCallback
from penstock.share.share_core import ShareCore
from penstock.system import random_fraction
from penstock.wake_ups.async_waker import AsyncWaker
from penstock.wake_ups.events import WakeUp
from penstock.workers.async_workers import AsyncLock, AsyncSignal, AsyncSleep, AsyncWorkers, async_released
from penstock.workers.fork_guard import ForkGuard

_log = logging.getLogger("penstock.share")

_CALLS = 2  # an acquire and an acknowledgement


class AsyncShareDriver:
    """Drives a share consumer's core. `lock` guards the core."""

    def __init__(
        self,
        core: ShareCore,
        client: AsyncClient,
        *,
        fork: ForkGuard,
        on_lock_lost: LockLostCallback | None,
        reading: Reading,
    ) -> None:
        self.lock = AsyncLock()
        self._core = core
        self._client = client
        self._fork = fork
        self._on_lock_lost = on_lock_lost
        self._reading = reading
        # `_arrived` is for calls that `stop` ends, `_answered` for the other ones.
        self._arrived = AsyncSignal(is_final=True)  # sync: self._arrived = Signal(self.lock, is_final=True)
        self._answered = AsyncSignal()  # sync: self._answered = Signal(self.lock)
        self._sleep = AsyncSleep()  # sync: self._sleep = Sleep(self.lock)
        self._is_stopping = False
        self._workers = AsyncWorkers("penstock-share", _CALLS, self._next_call, self._carry)
        self._wake_ups: AsyncWaker | None = None
        if core.waiting.watch is not None:
            self._wake_ups = AsyncWaker(
                core.waiting.watch, client, self._woken, lock=self.lock, changed=self._look_again
            )

    def start(self) -> None:
        """Start the tasks, once."""
        self._fork.check()
        if not self._is_stopping:
            self._workers.start()

    async def drive(self, steps: Steps[Result], *, until_stopped: bool = True) -> Result:
        """Take the lock and carry out a procedure of the core. `stop` ends its waits only with `until_stopped`."""
        self._fork.check()
        signal = self._arrived if until_stopped else self._answered

        async def do(effect: HttpRequest | Wait) -> Document:
            assert isinstance(effect, Wait)
            self.wake()
            await signal.wait(effect.until_ms)
            return {}

        try:
            with self.lock:
                try:
                    return await drive_async(steps, do)
                finally:
                    self.wake()
        finally:
            self._core.report()

    def wake(self) -> None:
        """Under the lock: wake the tasks, if they would sleep past the next request."""
        if self._core.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()
        if self._wake_ups is not None:
            self._wake_ups.wake()

    def interrupt(self) -> None:
        """End all waits for records. Needs no lock: signal handlers and other threads call it."""
        self._arrived.interrupt()

    async def stop(self) -> None:
        """End the tasks where they are."""  # sync: """End the threads. Waits for the requests in flight."""
        with self.lock:
            self._is_stopping = True
            self._sleep.end()
            self._notify()
            if self._core.waiting.watch is not None:
                self._core.waiting.watch.close()
            self.wake()
        await self._workers.end()
        if self._wake_ups is not None:
            await self._wake_ups.end()

    def _notify(self) -> None:
        self._arrived.notify_all()
        self._answered.notify_all()

    def _woken(self, wake_up: WakeUp) -> None:
        self._core.waiting.woken(wake_up)
        self._look_again()

    def _look_again(self) -> None:
        self._core.wake_at_ms = 0
        self.wake()

    async def _next_call(self) -> ShareCall | None:
        with self.lock:
            while not self._is_stopping:
                call = self._core.next_call()
                await self._tell()
                if call is not None:
                    return call
                await self._sleep.until(self._core.wake_at_ms)
        return None

    async def _carry(self, call: ShareCall) -> None:
        answer = await drive_async(send(call), self._client.try_once)
        if self._reading and isinstance(answer, ShareAnswer):
            answer = await asyncio.to_thread(read_values, answer, self._reading)
        with self.lock:
            self._core.complete(call, answer, random_fraction())
            await self._tell()
            self._notify()
            self.wake()
        self._core.report()

    async def _tell(self) -> None:
        """Under the lock: tell the application of records that are lost. The lock is released meanwhile."""
        lost = self._core.keeper.take_lost()
        if not lost or self._on_lock_lost is None:
            return
        with async_released(self.lock):
            try:
                answer = self._on_lock_lost(lost)  # sync: self._on_lock_lost(lost)
                if inspect.isawaitable(answer):  # sync:
                    await answer
            except Exception:  # a callback's edge
                _log.exception("on_lock_lost has failed")
