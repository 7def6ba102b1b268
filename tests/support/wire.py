"""Answers the calls of clients without a network, and shows each request as it would leave the machine."""

import io
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from penstock_service.adapters.direct.connections import Connections, HttpAnswer

# The environment of a function in Lambda, on ordinary buckets.
LAMBDA_ENVIRONMENT = {
    "AWS_LAMBDA_FUNCTION_NAME": "penstock-test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "PENSTOCK_TOPICS_TABLE": "topics",
    "PENSTOCK_LOG_TABLE": "log",
    "PENSTOCK_GROUPS_TABLE": "groups",
    "PENSTOCK_REPAIR_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/123456789012/repairs",
    "PENSTOCK_ZONES": "a=zone-a,b=zone-b,c=zone-c",
    "PENSTOCK_ARCHIVE": "archive",
    "POWERTOOLS_SERVICE_NAME": "penstock",
    "POWERTOOLS_METRICS_NAMESPACE": "Penstock",
}

_SESSION = """<?xml version="1.0" encoding="UTF-8"?>
<CreateSessionResult><Credentials><SessionToken>{token}</SessionToken><SecretAccessKey>secret</SecretAccessKey>
<AccessKeyId>session-key</AccessKeyId><Expiration>{end}</Expiration></Credentials></CreateSessionResult>"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """One request: header names are in small letters."""

    operation: str
    method: str
    host: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Wire:
    """The requests so far. `refusals` are statuses for the next requests; `session_s` is how long sessions live."""

    requests: list[SentRequest] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    session_s: Iterator[int] = field(default_factory=lambda: iter(lambda: 300, None))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def operations(self) -> list[str]:
        """The names of the operations, in the order of their requests."""
        return [request.operation for request in self.requests]

    def of(self, operation: str) -> list[SentRequest]:
        """The requests of one operation, in their order."""
        return [request for request in self.requests if request.operation == operation]

    def sessions(self) -> Callable[[], Any]:
        """What makes botocore sessions whose clients' requests end here. Other handlers of the event come first."""

        def make() -> Any:
            session = botocore.session.Session()
            session.get_component("event_emitter").register_last("before-send", self._answer)
            return session

        return make

    def replace_connections(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lets the requests of direct clients end here, too."""

        def send(
            connections: Connections, method: str, target: str, headers: Mapping[str, str], body: bytes
        ) -> HttpAnswer:
            operation = "CreateSession" if target.endswith("?session") else f"{method.capitalize()}Object"
            sent = SentRequest(
                operation=operation, method=method, host=connections.host, headers=dict(headers), body=body
            )
            status, content = self._taken(sent)
            return HttpAnswer(status, {}, content)

        monkeypatch.setattr(Connections, "send", send)

    def _taken(self, sent: SentRequest) -> tuple[int, bytes]:
        with self._lock:
            self.requests.append(sent)
            status = self.refusals.pop(0) if self.refusals else 200
            return status, self._content(sent.operation) if status == 200 else b""

    def _answer(self, request: AWSPreparedRequest, event_name: str, **_arguments: Any) -> AWSResponse:
        body = request.body or b""
        sent = SentRequest(
            operation=event_name.rpartition(".")[2],
            method=request.method,
            host=urlsplit(request.url).netloc,
            headers={name.lower(): _text(value) for name, value in request.headers.items()},
            body=body if isinstance(body, bytes) else body.read() if hasattr(body, "read") else b"",
        )
        status, content = self._taken(sent)
        headers = {"Content-Length": str(len(content)), "ETag": '"1"'}
        return AWSResponse(request.url, status, headers, _Body(content))

    def _content(self, operation: str) -> bytes:
        if operation == "CreateSession":
            end = datetime.now(UTC) + timedelta(seconds=next(self.session_s))
            return _SESSION.format(token="token", end=end.strftime("%Y-%m-%dT%H:%M:%SZ")).encode()
        if operation == "CreateMultipartUpload":
            return b"<InitiateMultipartUploadResult><UploadId>upload</UploadId></InitiateMultipartUploadResult>"
        return b""


class _Body(io.BytesIO):
    """A body as urllib3 gives it to botocore."""

    def stream(self, **_options: Any) -> Iterator[bytes]:
        yield self.read()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
