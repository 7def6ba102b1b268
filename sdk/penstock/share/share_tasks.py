"""The tasks of a share consumer: share_threads.py for an event loop, which needs no lock."""

import asyncio
import inspect
import logging
from contextlib import suppress

from penstock.http.async_client import AsyncClient
from penstock.http.http_message import Document, HttpRequest
from penstock.http.steps import Result, Steps, Wait, drive_async
from penstock.share.acquire_call import ShareCall, send
from penstock.share.settings import LockLostCallback
from penstock.share.share_core import ShareCore
from penstock.system import random_fraction
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.wake_task import WakeTask
from penstock.workers.fork_guard import ForkGuard
from penstock.workers.worker_tasks import Signal, Sleep, WorkerTasks

_log = logging.getLogger("penstock.share")

_CALLS = 2  # an acquire and an acknowledgement


class ShareTasks:
    """Drives a share consumer's core."""

    def __init__(
        self, core: ShareCore, client: AsyncClient, *, fork: ForkGuard, on_lock_lost: LockLostCallback | None
    ) -> None:
        self._core = core
        self._client = client
        self._fork = fork
        self._on_lock_lost = on_lock_lost
        self._changed = Signal()
        self._sleep = Sleep()
        self._is_stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None  # known from the first start on
        self._tasks = WorkerTasks("penstock-share", _CALLS, self._next_call, self._carry)
        self._wake_ups: WakeTask | None = None
        if core.waiting.watch is not None:
            self._wake_ups = WakeTask(core.waiting.watch, client, self._woken, changed=self._look_again)

    def start(self) -> None:
        """Start the tasks, once."""
        self._fork.check()
        if not self._is_stopping:
            self._loop = asyncio.get_running_loop()
            self._tasks.start()

    async def drive(self, steps: Steps[Result]) -> Result:
        """Carry out a procedure of the core."""
        self._fork.check()
        try:
            return await drive_async(steps, self._do)
        finally:
            self.wake()
            self._core.report()

    def wake(self) -> None:
        """Wake the tasks, if they would sleep past the next request."""
        if self._core.wake_at_ms < self._sleep.ends_at_ms:
            self._sleep.end()
        if self._loop is not None and self._wake_ups is not None:
            self._wake_ups.wake()

    def interrupt(self) -> None:
        """End all waits for records. Signal handlers and other threads may call it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: no call waits
                self._loop.call_soon_threadsafe(self._changed.notify_all)

    async def stop(self) -> None:
        """End the tasks where they are."""
        self._is_stopping = True
        self._changed.notify_all()
        if self._core.waiting.watch is not None:
            self._core.waiting.watch.close()
        self._tasks.cancel()
        await self._tasks.join()
        if self._wake_ups is not None:
            await self._wake_ups.stop()

    async def _do(self, effect: HttpRequest | Wait) -> Document:
        assert isinstance(effect, Wait)
        self.wake()
        await self._changed.wait(effect.until_ms)
        return {}

    def _woken(self, wake_up: WakeUp) -> None:
        self._core.waiting.woken(wake_up)
        self._look_again()

    def _look_again(self) -> None:
        self._core.wake_at_ms = 0
        self.wake()

    async def _next_call(self) -> ShareCall | None:
        while True:
            call = self._core.next_call()
            await self._tell()
            if call is not None:
                return call
            await self._sleep.until(self._core.wake_at_ms)

    async def _carry(self, call: ShareCall) -> None:
        answer = await drive_async(send(call), self._client.try_once)
        self._core.complete(call, answer, random_fraction())
        self._changed.notify_all()
        self.wake()
        self._core.report()
        await self._tell()

    async def _tell(self) -> None:
        lost = self._core.keeper.take_lost()
        if not lost or self._on_lock_lost is None:
            return
        try:
            answer = self._on_lock_lost(lost)
            if inspect.isawaitable(answer):
                await answer
        except Exception:  # a callback's edge
            _log.exception("on_lock_lost has failed")
