"""A proxy between functions and emulator that kills the calling function, or loses an answer, at a given call."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

DYNAMODB_TARGET = "X-Amz-Target"


@dataclass(slots=True)
class Faults:
    """What to do to the next calls of an operation, once each. `seen` lists the operations that came through."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kill_before: list[str] = field(default_factory=list)
    lose_answer_of: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def take(self, planned: list[str], operation: str) -> bool:
        with self.lock:
            if operation not in planned:
                return False
            planned.remove(operation)
            self.done.append(operation)
            return True


@contextmanager
def fault_proxy(upstream_url: str) -> Iterator[tuple[str, Faults]]:
    """A DynamoDB endpoint's URL on a free port of 127.0.0.1, and the faults to plan for it."""
    faults = Faults()
    upstream = urlsplit(upstream_url)
    handler = type("Handler", (_Handler,), {"faults": faults, "upstream": (upstream.hostname, upstream.port)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    faults: Faults
    upstream: tuple[str, int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get(DYNAMODB_TARGET, "").rpartition(".")[2]
        self.faults.seen.append(operation)
        if self.faults.take(self.faults.kill_before, operation):
            os.kill(_owner(self.client_address[1], self.connection), signal.SIGKILL)
            self.close_connection = True
            return
        status, headers, answer = self._forward(body)
        if self.faults.take(self.faults.lose_answer_of, operation):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = HTTPConnection(*self.upstream)
        # The headers as they are, Host included: the signature covers it.
        connection.putrequest("POST", self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), content

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        return


def _owner(port: int, connection: socket.socket) -> int:
    """The process whose socket has local port `port` to this connection."""
    ours = connection.getsockname()[1]
    inode = next(_inodes(lambda local, remote: local == port and remote == ours))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) == f"socket:[{inode}]":
                    return int(process.name)
        except OSError:
            continue
    raise LookupError(f"no process has the socket on port {port}")


def _inodes(is_wanted: Callable[[int, int], bool]) -> Iterator[str]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(fields[index].rpartition(":")[2], 16) for index in (1, 2))
        if is_wanted(local, remote):
            yield fields[9]
