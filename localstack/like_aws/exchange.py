"""A request and its answer as values, between ASGI on both sides."""

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, quote

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]
Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer. `headers` have no Content-Length: `send_answer` gives it."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A whole request. `scope` is ASGI's; the methods read it."""

    scope: Scope
    body: bytes

    @property
    def method(self) -> str:
        """The method, in upper case."""
        return str(self.scope["method"])

    @property
    def path(self) -> str:
        """The path, decoded."""
        return str(self.scope["path"])

    @property
    def raw_path(self) -> str:
        """The path as it was sent, which signatures cover."""
        raw: bytes | None = self.scope.get("raw_path")
        return raw.decode("ascii") if raw else quote(self.path)

    @property
    def query(self) -> dict[str, list[str]]:
        """The values of each parameter, decoded, those without value too."""
        return parse_qs(self.scope.get("query_string", b"").decode(), keep_blank_values=True)

    def header(self, name: str) -> str:
        """The value of the header, "" without one. `name` is in lower case."""
        return header_of(self.scope, name)

    def moved(self, path: str, raw_path: str) -> "Request":
        """The request with another path, at 127.0.0.1."""
        headers = [(name, value) for name, value in self.scope["headers"] if name.lower() != b"host"]
        scope = {
            **self.scope,
            "path": path,
            "raw_path": raw_path.encode(),
            "headers": [*headers, (b"host", b"127.0.0.1")],
        }
        return replace(self, scope=scope)

    def as_root(self, service: str) -> "Request":
        """The request as one of the emulator's root user, whose signature the emulator never checks."""
        dropped = (b"authorization", b"x-amz-s3session-token", b"x-amz-security-token")
        headers = [(name, value) for name, value in self.scope["headers"] if name.lower() not in dropped]
        return replace(self, scope={**self.scope, "headers": [*headers, (b"authorization", root_signature(service))]})


def root_signature(service: str) -> bytes:
    """An Authorization header of the emulator's root user, who may do everything."""
    credential = f"Credential=test/20260101/us-east-1/{service}/aws4_request"
    return f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host;x-amz-date, Signature={'0' * 64}".encode()


def header_of(scope: Scope, name: str) -> str:
    """The value of a scope's header, "" without one. `name` is in lower case."""
    wanted = name.encode()
    return next((value.decode("latin-1").strip() for key, value in scope["headers"] if key.lower() == wanted), "")


async def read_request(scope: Scope, receive: Receive) -> Request | None:
    """The request with its body. None if the client hung up before its end."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return Request(scope=scope, body=b"".join(parts))


async def ask(app: App, request: Request) -> Answer:
    """Hands the request to the application and returns its whole answer."""
    sent: list[MutableMapping[str, Any]] = []
    is_read = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal is_read
        if is_read:
            return {"type": "http.disconnect"}
        is_read = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(request.scope, receive, send)
    start = next(each for each in sent if each["type"] == "http.response.start")
    body = b"".join(each.get("body", b"") for each in sent if each["type"] == "http.response.body")
    return Answer(status=start["status"], headers=tuple(start["headers"]), body=body)


async def send_answer(send: Send, answer: Answer, *, is_head: bool = False) -> None:
    """Sends the answer. The Content-Length of an answer to HEAD stays as it is."""
    headers = list(answer.headers)
    if not is_head:
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
