"""One connection: reads requests, lets them be handled, and writes the answers in the order of the requests.

```
read a frame -> find its API -> handle -> queue of answers, in order -> write
     ^                                         |
     +-------- waits while the queue is full --+
```
- A request that is malformed, too large, or of a version that the gateway has not announced ends the connection.
- The next request is read while requests of pipelined APIs run. Each other request waits for those before it, and the
  connection reads on when it is answered.
- An error that no part of an answer can tell ends the connection: the client comes again.
- A client that sends a request or takes an answer too slowly is cut off: soon, if others wait for the bytes it holds.
- The bytes of a request count from the moment at which they are there, not from that at which it announces them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_core.limits import (
    KAFKA_FRAME_MS_MAX,
    KAFKA_IDLE_MS_MAX,
    KAFKA_LOGIN_MS_MAX,
    KAFKA_PIPELINED_MAX,
    KAFKA_SMALL_BYTES_MAX,
    KAFKA_WRITE_MS_MAX,
)
from penstock_kafka.dispatch.api import Api, ApiKey, Call, Peer, Registry
from penstock_kafka.dispatch.messages import (
    MalformedRequestError,
    Prefix,
    read_prefix,
    read_request,
    write_answer,
    write_unsupported_versions,
)
from penstock_kafka.errors import RequestRefused
from penstock_kafka.figures import Figures
from penstock_kafka.wire.budget import ByteBudget, Hold

_log = logging.getLogger("penstock.kafka")

_LENGTH_BYTES = 4
_PREFIX_BYTES = 8
_PIECE_BYTES = KAFKA_SMALL_BYTES_MAX  # of a request or an answer: in between the client has moved


class PeerReader(asyncio.StreamReader):
    """A StreamReader that tells when the client has gone, even while no one reads."""

    def __init__(self, gone: asyncio.Event) -> None:
        super().__init__(limit=_PIECE_BYTES)
        self._gone = gone

    def feed_eof(self) -> None:
        """The client has closed its side."""
        super().feed_eof()
        self._gone.set()

    def set_exception(self, exc: Exception) -> None:
        """The connection is broken."""
        super().set_exception(exc)
        self._gone.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The gateway's part of each connection: its APIs, and the bytes that all connections share."""

    registry: Registry
    budget: ByteBudget
    figures: Figures
    wants_login: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenRequest:
    hold: Hold
    answer: Awaitable[bytes | None]
    afterwards: Sequence[Callable[[], None]] = ()

    def release(self) -> None:
        """The answer was sent, or never will be: let go what it held."""
        self.hold.close()
        for each in self.afterwards:
            each()


class Connection:
    """Serves one client until it goes, breaks the protocol, or the gateway stops."""

    def __init__(self, desk: Desk, peer: Peer, reader: PeerReader, writer: asyncio.StreamWriter) -> None:
        self._desk = desk
        self._peer = peer
        self._reader = reader
        self._writer = writer
        self._began_ms = monotonic_ms()
        self._has_asked = False
        self._open: asyncio.Queue[_OpenRequest | None] = asyncio.Queue(KAFKA_PIPELINED_MAX)
        writer.transport.set_write_buffer_limits(high=_PIECE_BYTES)
        peer.cut = partial(self.cut, "it has stopped, and others wait for its bytes")

    def stop(self) -> None:
        """Take no further bytes. Requests that came whole are answered."""
        transport = self._writer.transport
        if isinstance(transport, asyncio.ReadTransport) and not transport.is_closing() and not self._peer.gone.is_set():
            transport.pause_reading()
            self._reader.feed_eof()

    def is_silent(self, since_ms: int) -> bool:
        """True if the connection has been open since that time without a whole request."""
        return not self._has_asked and self._began_ms <= since_ms and not self._writer.transport.is_closing()

    def cut(self, reason: str) -> None:
        """End the connection: its client keeps what others wait for, and does not move."""
        if not self._writer.transport.is_closing():
            self._desk.figures.stalled_connections += 1
            _log.info("%s ends: %s", self._name, reason)
            self._writer.transport.abort()

    async def serve(self) -> None:
        """Until the connection ends. Raises nothing but a cancellation."""
        answering = asyncio.ensure_future(self._answer_all())
        reading = asyncio.ensure_future(self._read_all())
        try:
            await asyncio.wait({answering, reading}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not reading.cancelled() and reading.exception() is None:
                await asyncio.wait({answering})
        finally:
            self._peer.gone.set()
            for task in (answering, reading):
                task.cancel()
            await asyncio.wait({answering, reading})
            self._say_why(reading)
            self._say_why(answering)
            self._leave_open()
            self._writer.close()

    async def _read_all(self) -> None:
        while (head := await self._read_head()) is not None:
            hold = self._desk.budget.open(self._peer)
            try:
                request, is_pipelined = await self._begin(await self._read_frame(*head, hold), hold)
            except BaseException:  # a cancellation too: the connection may break while the request waits for its turn
                hold.close()
                raise
            try:
                await self._open.put(request)
            except BaseException:
                self._leave(request)
                raise
            if not is_pipelined:
                await self._open.join()
            if self._peer.is_refused:
                raise MalformedRequestError("SASL/PLAIN was given a wrong name or password")
        await self._open.put(None)

    async def _read_head(self) -> tuple[int, bytes] | None:
        """The size of the next request and its first bytes; None if the client has closed."""
        try:
            async with asyncio.timeout(self._patience_ms() / 1_000):
                head = await self._reader.readexactly(_LENGTH_BYTES)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None
        size = int.from_bytes(head, "big", signed=True)
        if size < _PREFIX_BYTES:
            raise MalformedRequestError(f"a request says that it has {size} bytes")
        async with asyncio.timeout(KAFKA_FRAME_MS_MAX / 1_000):
            prefix = await self._reader.readexactly(_PREFIX_BYTES)
        key = int.from_bytes(prefix[:2], "big", signed=True)
        bytes_max = self._desk.registry.bytes_max(key, is_in=self._is_in)
        if size > bytes_max:
            said = "" if self._is_in else " before a login"
            raise MalformedRequestError(f"a request to API {key} has {size:,} bytes: {bytes_max:,} at most{said}")
        return size, prefix

    async def _read_frame(self, size: int, prefix: bytes, hold: Hold) -> bytes:
        """A request. The hold has each piece of it before the next one is read."""
        pieces = [prefix]
        missing, left_ms = size - len(prefix), KAFKA_FRAME_MS_MAX
        while missing:
            began_ms = self._peer.sends_since_ms = monotonic_ms()
            try:
                async with asyncio.timeout(left_ms / 1_000):
                    pieces.append(await self._reader.readexactly(min(missing, _PIECE_BYTES)))
            finally:
                self._peer.sends_since_ms = None
            left_ms -= monotonic_ms() - began_ms
            missing -= len(pieces[-1])
            await hold.take(len(pieces[-1]))
        return b"".join(pieces)

    async def _begin(self, frame: bytes, hold: Hold) -> tuple[_OpenRequest, bool]:
        """Start to handle a request, when it is its turn. True if the next one may be read before its answer."""
        self._has_asked = True
        prefix = read_prefix(frame)
        api = self._desk.registry.find(prefix.api_key, prefix.version)
        if api is None:
            if prefix.api_key != ApiKey.API_VERSIONS:
                raise MalformedRequestError(f"API {prefix.api_key} version {prefix.version} is not served")
            answer = write_unsupported_versions(prefix.correlation_id, self._desk.registry.versions())
            return _OpenRequest(hold=hold, answer=_said(answer)), True
        if not (self._is_in or api.is_before_login):
            raise MalformedRequestError(f"a request to {api.key.name} comes before SASL/PLAIN has named a user")
        client_id, request = read_request(prefix, frame)
        if not api.is_pipelined:
            await self._open.join()
        call = Call(key=api.key, version=prefix.version, client_id=client_id, peer=self._peer, request=request)
        if api.may_rest:
            hold.rests_since_ms = monotonic_ms()
        answering = asyncio.ensure_future(self._handled(api, call, prefix))
        return _OpenRequest(hold=hold, answer=answering, afterwards=call.afterwards), api.is_pipelined

    @property
    def _name(self) -> str:
        return f"connection {self._peer.number} from {self._peer.address}"

    @property
    def _is_in(self) -> bool:
        return not self._desk.wants_login or self._peer.principal is not None

    def _patience_ms(self) -> int:
        """The time in which the next request must come. A client logs in within its first `KAFKA_LOGIN_MS_MAX`."""
        if self._is_in:
            return KAFKA_IDLE_MS_MAX
        return max(0, self._began_ms + KAFKA_LOGIN_MS_MAX - monotonic_ms())

    async def _handled(self, api: Api, call: Call, prefix: Prefix) -> bytes | None:
        began_ms = monotonic_ms()
        answer = await api.handler(call)
        self._desk.figures.requests[api.key.name.lower()] += 1
        self._desk.figures.request_ms[api.key.name.lower()] += monotonic_ms() - began_ms
        return None if answer is None else write_answer(prefix, answer)

    async def _answer_all(self) -> None:
        while (request := await self._open.get()) is not None:
            try:
                data = await asyncio.shield(request.answer)  # it goes on when the connection breaks
                request.hold.close()
            except BaseException:
                self._leave(request)
                raise
            try:
                if data is not None:
                    await self._write(data)
            finally:
                request.release()
            self._open.task_done()

    async def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            async with asyncio.timeout(KAFKA_WRITE_MS_MAX / 1_000):
                for at in range(0, len(view), _PIECE_BYTES):
                    self._peer.takes_since_ms = monotonic_ms()
                    self._writer.write(view[at : at + _PIECE_BYTES])
                    await self._writer.drain()
        finally:
            self._peer.takes_since_ms = None

    def _leave_open(self) -> None:
        """Let go on what runs: a producer with acks=0 may have closed its connection. Its answers go nowhere."""
        while not self._open.empty():
            request = self._open.get_nowait()
            if request is not None:
                self._leave(request)

    def _leave(self, request: _OpenRequest) -> None:
        """The client no longer waits for this request. It keeps its bytes until it ends."""
        if isinstance(request.answer, asyncio.Future):
            request.answer.add_done_callback(partial(self._left, request))
        else:
            request.release()

    def _left(self, request: _OpenRequest, task: "asyncio.Future[bytes | None]") -> None:
        request.release()
        self._say_why(task)

    def _say_why(self, task: "asyncio.Future[Any]") -> None:
        """Log the reason of the connection's end."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MalformedRequestError):
            self._desk.figures.malformed_requests += 1
        if isinstance(error, MalformedRequestError | PenstockError | RequestRefused):
            _log.warning("%s ends: %s", self._name, error)
        elif isinstance(error, OSError | EOFError | TimeoutError):
            _log.debug("%s ends: %r", self._name, error)
        elif error is not None:
            _log.error("%s ends by a defect", self._name, exc_info=error)


async def _said(answer: bytes) -> bytes:
    return answer
