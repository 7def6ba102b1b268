"""The listening socket: bounded connections, and an end in which open requests are answered."""

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
from collections.abc import Callable

from penstock.system import monotonic_ms
from penstock_core.limits import BACKLOG_MAX, KAFKA_DRAIN_MS_MAX
from penstock_kafka.dispatch.api import Peer
from penstock_kafka.wire.connection import Connection, Desk, PeerReader

_log = logging.getLogger("penstock.kafka")

_HANDSHAKE_S_MAX = 10.0  # of TLS
_SILENT_MS_MAX = 2_000  # then a connection without a request gives its place to another one
_TELL_MS = 10_000  # between two lines of the log about too many connections


class Server:
    """Serves the clients of one listening socket."""

    def __init__(self, desk: Desk, *, connections_max: int, tls: ssl.SSLContext | None = None) -> None:
        self._desk = desk
        self._connections_max = connections_max
        self._tls = tls
        self._connections: dict[Connection, asyncio.Task[None]] = {}
        self._handshakes: dict[asyncio.Task[None], tuple[asyncio.Transport, int]] = {}  # and when each began
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._told_ms = -_TELL_MS

    @property
    def connection_count(self) -> int:
        """The connections that are open."""
        return len(self._connections)

    async def start(self, listening: socket.socket) -> None:
        """Accept connections from now on."""
        protocol = self._protocol if self._tls is None else lambda: _Accepted(self._begin_tls)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(protocol, sock=listening, backlog=BACKLOG_MAX)

    async def close(self) -> None:
        """Accept no more, answer the requests that came whole, then close all connections."""
        if self._server is not None:
            self._server.close()
        for handshake in self._handshakes:
            handshake.cancel()
        for connection in self._connections:
            connection.stop()
        tasks = {*self._handshakes, *self._connections.values()}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=KAFKA_DRAIN_MS_MAX / 1_000)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        gone = asyncio.Event()
        reader = PeerReader(gone)
        return asyncio.StreamReaderProtocol(reader, lambda _, writer: self._accept(reader, writer, gone))

    def _begin_tls(self, transport: asyncio.Transport) -> None:
        """Shake hands. The connection counts from now on: its socket is an open file."""
        if not self._has_room(str(transport.get_extra_info("peername"))):
            transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._shake_hands(transport), name="penstock-kafka-tls")
        self._handshakes[task] = transport, monotonic_ms()
        task.add_done_callback(lambda _: self._handshakes.pop(task, None))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        assert self._tls is not None
        task, protocol = asyncio.current_task(), self._protocol()
        assert task is not None
        try:
            secure = await asyncio.get_running_loop().start_tls(
                transport, protocol, self._tls, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S_MAX
            )
        except OSError as error:
            _log.debug("no TLS with %s: %r", transport.get_extra_info("peername"), error)
            return
        self._handshakes.pop(task, None)
        if secure is not None:
            protocol.connection_made(secure)

    def _accept(self, reader: PeerReader, writer: asyncio.StreamWriter, gone: asyncio.Event) -> None:
        address = str(writer.get_extra_info("peername"))
        if not self._has_room(address):
            writer.transport.abort()
            return
        self._desk.figures.connections += 1
        plain = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = Peer(number=next(self._numbers), address=address, gone=gone)
        connection = Connection(self._desk, peer, reader, writer)
        task = asyncio.get_running_loop().create_task(connection.serve(), name=f"penstock-kafka-{peer.number}")
        self._connections[connection] = task
        task.add_done_callback(lambda _: self._connections.pop(connection, None))

    def _has_room(self, address: str) -> bool:
        is_full = len(self._connections) + len(self._handshakes) >= self._connections_max
        if is_full and not self._has_made_room():
            self._refuse(address)
            return False
        return True

    def _has_made_room(self) -> bool:
        """End the oldest connection that has sent no request in time, if there is one."""
        since_ms = monotonic_ms() - _SILENT_MS_MAX
        for task, (transport, began_ms) in self._handshakes.items():
            if began_ms <= since_ms:
                transport.abort()
                self._handshakes.pop(task)
                self._desk.figures.stalled_connections += 1
                return True
        silent = next((each for each in self._connections if each.is_silent(since_ms)), None)
        if silent is not None:
            silent.cut("it has sent no request, and others come")
        return silent is not None

    def _refuse(self, address: str) -> None:
        self._desk.figures.refused_connections += 1
        if (now_ms := monotonic_ms()) - self._told_ms >= _TELL_MS:
            self._told_ms = now_ms
            _log.warning("a connection from %s is refused: %d are open already", address, self._connections_max)


class _Accepted(asyncio.Protocol):
    """A connection that has just been accepted. It reads nothing before its handshake begins."""

    def __init__(self, begin: Callable[[asyncio.Transport], None]) -> None:
        self._begin = begin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand it on."""
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self._begin(transport)
