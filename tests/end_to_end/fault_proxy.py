"""A proxy in front of the emulator that injects the faults of networks, services and crashes into chosen calls.

It is between functions and their DynamoDB and S3 (AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL_S3), or between
clients and the API. The request tells it which. It forwards the path, Host and all signed headers unchanged.
"""

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

API_PATH = "/_aws/execute-api/"
DYNAMODB_TARGET = "X-Amz-Target"
_IDLE_S_MAX = 2.0  # the emulator closes connections that are idle for longer
_S3_VERBS = {"GET": "GetObject", "PUT": "PutObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. `service` is dynamodb, s3 or api. `operation` is a name such as UpdateItem, PutObject or
    `POST /v1/produce`. `bucket` is set for S3 only.
    """

    service: str
    operation: str
    bucket: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer with this. With `is_applied`, pass the call on first and discard its own answer."""

    status: int
    content_type: str
    body: bytes
    is_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL the calling process, before the call's effect or after it."""

    is_applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Reset the connection instead of an answer, before the call's effect or after it."""

    is_applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Pass the call on after a while."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Neither pass the call on nor answer until `is_over`, then reset the connection."""

    is_over: threading.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrupt:
    """Change one byte of the answer's body."""


Fault = Answer | Kill | Reset | Delay | Hang | Corrupt
Decide = Callable[[Call], Fault | None]
Told = Callable[[Call, int, bytes], None]


def dynamodb_error(status: int, code: str, *, is_applied: bool = False, **facts: object) -> Answer:
    """DynamoDB's refusal with that code."""
    body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected", **facts}
    return Answer(
        status=status,
        content_type="application/x-amz-json-1.0",
        body=json.dumps(body).encode(),
        is_applied=is_applied,
    )


def s3_error(status: int, code: str) -> Answer:
    """S3's refusal with that code."""
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    return Answer(status=status, content_type="application/xml", body=body)


@dataclass(slots=True)
class Faults:
    """Faults for the next calls of DynamoDB operations, once each. `done` lists the operations that were hit."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    kill_before: list[str] = field(default_factory=list)
    lose_answer_of: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def decide(self, call: Call) -> Fault | None:
        if self._take(self.kill_before, call.operation):
            return Kill(is_applied=False)
        return Reset(is_applied=True) if self._take(self.lose_answer_of, call.operation) else None

    def _take(self, planned: list[str], operation: str) -> bool:
        with self.lock:
            if operation not in planned:
                return False
            planned.remove(operation)
            self.done.append(operation)
            return True


def _tell_nobody(_call: Call, _status: int, _body: bytes) -> None:
    return


@contextmanager
def fault_proxy(upstream_url: str, decide: Decide, told: Told = _tell_nobody) -> Iterator[str]:
    """Runs a proxy to `upstream_url` that asks `decide` for the fault of each call. Yields its URL on 127.0.0.1.

    `told` gets status and body of each answer that came from upstream.
    """
    upstream = urlsplit(upstream_url)
    handler = type(
        "Handler",
        (_Handler,),
        {
            "decide": staticmethod(decide),
            "told": staticmethod(told),
            "upstream": (upstream.hostname, upstream.port),
        },
    )
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    block_on_close = False  # hanging calls end with their event, kept-alive connections with their clients

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError | HTTPException):  # a caller hung up or was killed
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024
    decide: Decide
    told: Told
    upstream: tuple[str, int]

    def setup(self) -> None:
        super().setup()
        self._onward: HTTPConnection | None = None
        self._used_at = 0.0

    def finish(self) -> None:
        if self._onward is not None:
            self._onward.close()
        super().finish()

    def handle_expect_100(self) -> bool:
        is_expected = super().handle_expect_100()
        self.wfile.flush()  # without it, the caller waits a second before each put
        return is_expected

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        call = self._call()
        fault = self.decide(call)
        match fault:
            case Delay(seconds=seconds):
                threading.Event().wait(seconds)
            case Hang(is_over=is_over):
                is_over.wait()
                self._hang_up()
                return
            case Kill(is_applied=False):
                self._kill_caller()
                return
            case Reset(is_applied=False):
                self._hang_up()
                return
            case Answer(is_applied=False):
                self._send(fault.status, [("Content-Type", fault.content_type)], fault.body)
                return
        status, headers, answer = self._forward(body)
        self.told(call, status, answer)
        match fault:
            case Kill():
                self._kill_caller()
            case Reset():
                self._hang_up()
            case Answer():
                self._send(fault.status, [("Content-Type", fault.content_type)], fault.body)
            case Corrupt() if answer:
                middle = len(answer) // 2
                changed = bytes([answer[middle] ^ 0x5A])
                self._send(status, headers, b"".join((answer[:middle], changed, answer[middle + 1 :])))
            case _:
                self._send(status, headers, answer)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_PATCH = _serve  # noqa: N815 - the base class names them

    def _call(self) -> Call:
        path = urlsplit(self.path)
        if DYNAMODB_TARGET in self.headers:
            return Call(service="dynamodb", operation=self.headers[DYNAMODB_TARGET].rpartition(".")[2])
        if path.path.startswith(API_PATH):
            _, _, route = path.path.removeprefix(API_PATH).partition("/")
            return Call(service="api", operation=f"{self.command} /{route}")
        bucket, _, key = unquote(path.path).lstrip("/").partition("/")
        operation = _S3_VERBS.get(self.command, self.command)
        if not key:
            operation = "ListObjects" if self.command == "GET" else f"{self.command} bucket"
        elif self.command == "POST":
            operation = f"POST {','.join(name for name, _ in parse_qsl(path.query, keep_blank_values=True))}"
        return Call(service="s3", operation=operation, bucket=bucket)

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        onward = self._connection()
        # Headers go on unchanged, Host included, because the signature covers it. The proxy itself has answered Expect.
        onward.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                onward.putheader(name, value)
        onward.endheaders(body or None)
        answer = onward.getresponse()
        content = answer.read()
        self._used_at = time.monotonic()
        return answer.status, answer.getheaders(), content

    def _connection(self) -> HTTPConnection:
        """The connection stays open between calls, because opening one takes longer than most calls."""
        if self._onward is None or time.monotonic() - self._used_at > _IDLE_S_MAX:
            if self._onward is not None:
                self._onward.close()
            self._onward = HTTPConnection(*self.upstream)
        return self._onward

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value if self.command == "HEAD" else length
            elif name.lower() not in ("transfer-encoding", "connection", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def _kill_caller(self) -> None:
        os.kill(_owner(self.client_address[1], self.connection), signal.SIGKILL)
        self._hang_up()

    def _hang_up(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST, not FIN
        self.connection.close()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        return


def _owner(port: int, connection: socket.socket) -> int:
    """Returns the pid of the process whose socket has local port `port` to this connection."""
    ours = connection.getsockname()[1]
    inode = next(_inodes(lambda local, remote: local == port and remote == ours), None)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) == f"socket:[{inode}]":
                    return int(process.name)
        except OSError:
            continue
    raise ConnectionError(f"no process has the socket on port {port} any more")


def _inodes(is_wanted: Callable[[int, int], bool]) -> Iterator[str]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(fields[index].rpartition(":")[2], 16) for index in (1, 2))
        if is_wanted(local, remote):
            yield fields[9]
