"""The connection of a Waker with a thread: a socket, and a bell that ends a wait for its bytes."""

import selectors
import socket
import ssl
from contextlib import suppress

from penstock.http.no_answer import CONNECT_TIMEOUT_S
from penstock.system import monotonic_ms
from penstock.wake_ups.web_socket import LinkLostError
from penstock.workers.workers import seconds_until

READ_BYTES = 65_536


class Link:
    """One connection at a time. One thread opens, writes, listens and shuts; any thread rings."""

    def __init__(self) -> None:
        self._ear, self._bell = socket.socketpair()  # a byte in the bell ends the thread's wait
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._socket: socket.socket | None = None

    def ring(self) -> None:
        """End the wait of `listen`, or the next one."""
        with suppress(BlockingIOError):  # it is full of bytes that the thread has not heard yet
            self._bell.send(b"!")

    def open(self, host: str, port: int, *, is_tls: bool) -> None:
        """Connect. Raises OSError."""
        plain = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = ssl.create_default_context() if is_tls else None
            self._socket = plain if context is None else context.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def write(self, data: bytes) -> None:
        """Send these bytes. Raises OSError."""
        assert self._socket is not None
        self._socket.sendall(data)

    def shut(self) -> None:
        """Close the connection, if there is one."""
        gone, self._socket = self._socket, None
        if gone is not None:
            gone.close()

    def listen(self, until_ms: int, *, has_data: bool) -> bytes:
        """The next bytes of the connection, if there is one; none when the bell rings or the time is up.

        Without `has_data` it waits for the bell alone. Raises OSError and LinkLostError.
        """
        source = self._socket if has_data else None
        if isinstance(source, ssl.SSLSocket) and source.pending():
            return source.recv(READ_BYTES)
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if source is not None:
                selector.register(source, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(seconds_until(until_ms, monotonic_ms()))}
        if self._ear in ready:
            self._ear.recv(READ_BYTES)
        if source is None or source not in ready:
            return b""
        try:
            data = source.recv(READ_BYTES)
        except TimeoutError:  # a part of a TLS record: the rest will come, or silence ends the connection
            return b""
        if not data:
            raise LinkLostError("the other side has closed the connection")
        return data

    def close_bell(self) -> None:
        """Close the bell: no thread listens any more."""
        self._bell.close()
        self._ear.close()
