"""The task that keeps a Watch covered: wake_thread.py for an event loop, which needs no lock."""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress

from penstock.http.async_client import AsyncClient
from penstock.http.connections import CONNECT_TIMEOUT_S
from penstock.http.http_message import HttpRequest
from penstock.http.steps import Wait, drive_async
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.connection import Effect, Open, Outcome, Read, Shut, Sign, WakeUps, Write
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.watch import Watch
from penstock.wake_ups.web_socket import LinkLostError
from penstock.workers.worker_threads import seconds_until

_log = logging.getLogger("penstock.wake_ups")

READ_BYTES = 65_536
CLOSE_TIMEOUT_S = 1  # for the other side's part of the end of TLS


class WakeTask:
    """Calls `woken` and `changed` in the loop. Call `wake` after a change.

    The task starts when something is wanted for the first time: a consumer that never waits has none.
    """

    def __init__(
        self, watch: Watch, client: AsyncClient, woken: Callable[[WakeUp], None], *, changed: Callable[[], None]
    ) -> None:
        self._watch = watch
        self._client = client
        self._changed = changed
        self._wake_ups = WakeUps(watch, woken, now_ms=monotonic_ms, chance=random_fraction)
        self._seen = 0  # the version of the watch that the task has been told of
        self._task: asyncio.Task[None] | None = None
        self._bell: asyncio.Event | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[bytes] | None = None  # it goes on while the task does something else

    def wake(self) -> None:
        """Tell the task if what is wanted has changed. Call it in the loop."""
        if self._watch.version == self._seen:
            return
        self._seen = self._watch.version
        if self._task is None and not self._watch.is_closed:
            self._bell = asyncio.Event()
            self._task = asyncio.create_task(self._run(), name="penstock-wake-up")
        elif self._bell is not None:
            self._bell.set()

    async def stop(self) -> None:
        """End the task where it is. It says goodbye to the service."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            await drive_async(self._wake_ups.run(), self._do)
        except Exception:  # the driver's edge: a defect must not leave the consumer waiting for ever
            _log.exception("wake-ups have failed in an unexpected way: the consumer waits by long polls")
            self._watch.lost()
            self._watch.hold_until_ms = 0
        self._changed()

    async def _do(self, effect: Effect) -> Outcome:
        self._changed()
        if isinstance(effect, HttpRequest):
            return await self._client.try_once(effect)
        if isinstance(effect, Sign):
            return await self._client.event_headers(effect.host, effect.body.encode())
        if isinstance(effect, Open):
            tls = ssl.create_default_context() if effect.is_tls else None
            connecting = asyncio.open_connection(effect.host, effect.port, ssl=tls)
            self._reader, self._writer = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        elif isinstance(effect, Write):
            assert self._writer is not None
            self._writer.write(effect.data)
            await self._writer.drain()
        elif isinstance(effect, Shut):
            await self._shut()
        else:
            return await self._listen(effect)
        return None

    async def _shut(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await asyncio.wait_for(writer.wait_closed(), CLOSE_TIMEOUT_S)
            writer.transport.abort()

    async def _listen(self, effect: Read | Wait) -> bytes:
        """The next bytes of the connection, if there is one; none when the bell rings or the time is up."""
        assert self._bell is not None
        waiting: set[asyncio.Task[bytes] | asyncio.Task[bool]] = {asyncio.create_task(self._bell.wait())}
        bell = next(iter(waiting))
        if isinstance(effect, Read) and self._reader is not None:
            if self._reading is None:
                self._reading = asyncio.create_task(self._reader.read(READ_BYTES))
            waiting.add(self._reading)
        try:
            await asyncio.wait(
                waiting,
                timeout=seconds_until(effect.until_ms, monotonic_ms()),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            bell.cancel()
        self._bell.clear()
        if not isinstance(effect, Read) or self._reading is None or not self._reading.done():
            return b""
        done, self._reading = self._reading, None
        data = done.result()
        if not data:
            raise LinkLostError("the other side has closed the connection")
        return data
