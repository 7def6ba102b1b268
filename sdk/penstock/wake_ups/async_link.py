"""The connection of a Waker in an event loop: bytes of asyncio's streams, and a bell that ends a wait for them."""

import asyncio
import ssl
from contextlib import suppress

from penstock.http.no_answer import CONNECT_TIMEOUT_S
from penstock.system import monotonic_ms
from penstock.wake_ups.web_socket import LinkLostError
from penstock.workers.workers import seconds_until

READ_BYTES = 65_536
CLOSE_TIMEOUT_S = 1  # for the other side's part of the end of TLS


class AsyncLink:
    """One connection at a time. A task opens, writes, listens and shuts; `ring` belongs to the same loop."""

    def __init__(self) -> None:
        self._bell = asyncio.Event()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[bytes] | None = None  # it goes on while the task does something else

    def ring(self) -> None:
        """End the wait of `listen`, or the next one."""
        self._bell.set()

    async def open(self, host: str, port: int, *, is_tls: bool) -> None:
        """Connect. Raises OSError."""
        tls = ssl.create_default_context() if is_tls else None
        connecting = asyncio.open_connection(host, port, ssl=tls)
        self._reader, self._writer = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)

    async def write(self, data: bytes) -> None:
        """Send these bytes. Raises OSError."""
        assert self._writer is not None
        self._writer.write(data)
        await self._writer.drain()

    async def shut(self) -> None:
        """Close the connection, if there is one. It is closed, too, if the task is cancelled here."""
        reading, self._reading = self._reading, None
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        try:
            if reading is not None:
                reading.cancel()
                await asyncio.wait((reading,))
            if writer is not None:
                with suppress(OSError):
                    await asyncio.wait_for(writer.wait_closed(), CLOSE_TIMEOUT_S)
        finally:
            if writer is not None:
                writer.transport.abort()

    async def listen(self, until_ms: int, *, has_data: bool) -> bytes:
        """The next bytes of the connection, if there is one; none when the bell rings or the time is up.

        Without `has_data` it waits for the bell alone. Raises OSError and LinkLostError.
        """
        waiting: set[asyncio.Task[bytes] | asyncio.Task[bool]] = {asyncio.create_task(self._bell.wait())}
        bell = next(iter(waiting))
        if has_data and self._reader is not None:
            if self._reading is None:
                self._reading = asyncio.create_task(self._reader.read(READ_BYTES))
            waiting.add(self._reading)
        try:
            await asyncio.wait(
                waiting, timeout=seconds_until(until_ms, monotonic_ms()), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            bell.cancel()
        self._bell.clear()
        if not has_data or self._reading is None or not self._reading.done():
            return b""
        done, self._reading = self._reading, None
        data = done.result()
        if not data:
            raise LinkLostError("the other side has closed the connection")
        return data
