"""A relay on 127.0.0.1 that counts the bytes of all connections through it, headers and handshakes included."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_PIECE = 256 * 1024


@dataclass(slots=True)
class Traffic:
    """Bytes so far, as the client sees them. `port` is where to call."""

    port: int
    sent: int = 0
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, size: int, *, is_sent: bool) -> None:
        with self._lock:
            self.sent += size * is_sent
            self.received += size * (not is_sent)


@contextmanager
def relay(to_port: int) -> Iterator[Traffic]:
    """Passes on to `to_port` what comes at its own port, until the end of the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    traffic = Traffic(port=int(listener.getsockname()[1]))
    threading.Thread(target=_accept, args=(listener, to_port, traffic), daemon=True).start()
    try:
        yield traffic
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _accept(listener: socket.socket, to_port: int, traffic: Traffic) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # closed: the relay ends
            return
        server = socket.create_connection(("127.0.0.1", to_port))
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pass, args=(client, server, traffic), kwargs={"is_sent": True}, daemon=True).start()
        threading.Thread(target=_pass, args=(server, client, traffic), kwargs={"is_sent": False}, daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket, traffic: Traffic, *, is_sent: bool) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            traffic.note(len(piece), is_sent=is_sent)
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
