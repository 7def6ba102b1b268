"""The task that keeps a Watch covered: connection.py decides, async_link.py does the I/O."""

import asyncio
import logging
from collections.abc import Callable

from penstock.http.async_client import AsyncClient
from penstock.http.http_message import HttpRequest
from penstock.http.steps import drive_async
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.async_link import AsyncLink
from penstock.wake_ups.connection import Effect, Open, Outcome, Read, Shut, Sign, WakeUps, Write
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.watch import Watch
from penstock.workers.async_workers import AsyncLock, async_released, has_loop

# sync: import threading

_log = logging.getLogger("penstock.wake_ups")


class AsyncWaker:
    """Calls `woken` and `changed` under `lock`, which guards the watch. Call `wake` under the lock after a change.

    The task starts when something is wanted for the first time: a consumer that never waits has none.
    """

    def __init__(
        self,
        watch: Watch,
        client: AsyncClient,
        woken: Callable[[WakeUp], None],
        *,
        lock: AsyncLock,
        changed: Callable[[], None],
    ) -> None:
        self._watch = watch
        self._client = client
        self._lock = lock
        self._changed = changed
        self._wake_ups = WakeUps(watch, woken, now_ms=monotonic_ms, chance=random_fraction)
        self._seen = 0  # the version of the watch that the task has been told of
        self._runner: asyncio.Task[None] | None = None  # sync: self._runner: threading.Thread | None = None
        self._link: AsyncLink | None = None  # made with the runner

    def wake(self) -> None:
        """Tell the task if what is wanted has changed."""
        if self._watch.version == self._seen:
            return
        if not has_loop():  # sync:
            return
        self._seen = self._watch.version
        if self._link is not None:
            self._link.ring()
        elif not self._watch.is_closed:
            self._link = AsyncLink()
            self._runner = asyncio.create_task(self._run(self._link), name="penstock-wake-up")  # sync:
            # sync: name = "penstock-wake-up"
            # sync: self._runner = threading.Thread(target=self._run, args=(self._link,), name=name, daemon=True)
            # sync: self._runner.start()

    async def end(self) -> None:
        """End the task where it is. It says goodbye to the service."""  # sync:
        # sync: """Wait until the thread ends: the watch must be closed, and `wake` called."""
        if self._runner is None or self._link is None:
            return
        self._runner.cancel()  # sync:
        await asyncio.wait((self._runner,))  # sync:
        # sync: if self._runner is not threading.current_thread():
        # sync:     self._runner.join()
        # sync: self._link.close_bell()

    async def _run(self, link: AsyncLink) -> None:
        async def do(effect: Effect) -> Outcome:
            self._changed()
            with async_released(self._lock):
                return await self._done(effect, link)

        with self._lock:
            try:
                await drive_async(self._wake_ups.run(), do)
            except Exception:  # the driver's edge: a defect must not leave the consumer waiting for ever
                _log.exception("wake-ups have failed in an unexpected way: the consumer waits by long polls")
                self._watch.lost()
                self._watch.hold_until_ms = 0
            self._changed()

    async def _done(self, effect: Effect, link: AsyncLink) -> Outcome:
        if isinstance(effect, HttpRequest):
            return await self._client.try_once(effect)
        if isinstance(effect, Sign):
            return await self._client.event_headers(effect.host, effect.body.encode())
        if isinstance(effect, Open):
            await link.open(effect.host, effect.port, is_tls=effect.is_tls)
        elif isinstance(effect, Write):
            await link.write(effect.data)
        elif isinstance(effect, Shut):
            await link.shut()
        else:
            return await link.listen(effect.until_ms, has_data=isinstance(effect, Read))
        return None
