"""Refuses the requests that must not reach the emulator: those of web pages, and those that AWS would refuse unread.

The emulator takes every request for the root user's whose Authorization header it does not understand, and its own
routes need no header at all. So a page in your browser could wipe the stack, or make a function of its own code here.
`guarded` puts this check before the emulator. It imports nothing of Penstock, because MiniStack's Python runs it.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
TakesToken = Callable[[str, str], bool]  # of a method and a decoded path
App = Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]]

_OPEN_PATHS = ("/_ministack/health", "/_ministack/ready")
_OWN_PATHS = ("_ministack", "_localstack", "health")
_API_PATH = "/_aws/execute-api/"
_API_SERVICE = "execute-api"
# Any port, because a proxy forwards a signed Host as it is. No other site can have a directory bucket's zonal name.
_HOST = re.compile(
    rb"(127\.0\.0\.1|localhost|\[::1\]|[a-z0-9.-]+--x-s3\.s3express-[a-z0-9-]+\.[a-z0-9-]+\.amazonaws\.com)(:\d{1,5})?"
)
# The Event API has hosts of its own. Names below .localhost cannot be registered, so no page of another site has them.
_EVENTS_HOST = re.compile(rb"[a-z0-9]+\.appsync-api\.[a-z0-9-]+\.localhost(:\d{1,5})?")
_REALTIME_HOST = re.compile(rb"[a-z0-9]+\.appsync-realtime-api\.[a-z0-9-]+\.localhost(:\d{1,5})?")
_EVENTS_PATH = "/event"
# A function answers CloudFormation here, without a signature, as on AWS. Only the function is told the token.
_ANSWER_PATH = re.compile(r"/_ministack/cfn-response/[0-9a-f-]{36}")
_REALTIME_PATH = "/event/realtime"
_EVENTS_SERVICE = "appsync"
_SIGNATURE = re.compile(
    rb"AWS4-HMAC-SHA256 +Credential=[^/, ]+/\d{8}/[^/, ]+/([a-z0-9-]+)/aws4_request, *"
    rb"SignedHeaders=[a-z0-9;_-]+, *Signature=[0-9a-f]{64}"
)
_TOKEN = re.compile(rb"Bearer [A-Za-z0-9._~+/=-]{1,8192}")
# The service of an X-Amz-Target, which names the operation of a request to "/".
_TARGETS = {
    b"DynamoDB_20120810": "dynamodb",
    b"DynamoDBStreams_20120810": "dynamodb",
    b"AmazonSQS": "sqs",
    b"Logs_20140328": "logs",
}


def guarded(app: App, takes_token: TakesToken = lambda _method, _path: False) -> App:
    """The ASGI application `app` behind the check. Only a route of which `takes_token` is true may have a token."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and refusal_of_websocket(scope["path"], scope["headers"]) is not None:
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        why = (
            refusal(scope["method"], scope["path"], scope["headers"], takes_token) if scope["type"] == "http" else None
        )
        if why is None:
            await app(scope, receive, send)
            return
        body = json.dumps({"message": f"the local stack refuses this: {why}"}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return serve


def refusal(
    method: str,
    path: str,
    headers: Iterable[tuple[bytes, bytes]],
    takes_token: TakesToken = lambda _method, _path: False,
) -> str | None:
    """The reason why the request must not reach the emulator, or None. `path` is decoded."""
    given = _given(headers)
    hosts = given.get(b"host", [])
    is_event = path == _EVENTS_PATH and len(hosts) == 1 and _EVENTS_HOST.fullmatch(hosts[0])
    if not is_event and (len(hosts) != 1 or not _HOST.fullmatch(hosts[0])):
        return "the Host header must be 127.0.0.1, localhost or [::1]: the page of another site has another"
    if b"origin" in given:
        return "it has an Origin header, as requests of web pages have"
    if path in _OPEN_PATHS and method in ("GET", "HEAD"):
        return None
    if method == "PUT" and _ANSWER_PATH.fullmatch(path):
        return None
    if path.strip("/").partition("/")[0].lower() in _OWN_PATHS:
        return "the emulator's own routes are closed; reset the stack by `penstock local down` and removing its folder"
    if not is_event and _is_token(given) and takes_token(method, path):
        return None
    return _refusal_of_signature(given, _EVENTS_SERVICE if is_event else _called_service(path, given))


def refusal_of_websocket(path: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The reason why the WebSocket must not reach the emulator, or None.

    A reader of wake-ups sends its signature as a subprotocol, because browsers let pages set no header of a WebSocket.
    The emulator does not verify it.
    """
    given = _given(headers)
    hosts = given.get(b"host", [])
    if path != _REALTIME_PATH or len(hosts) != 1 or not _REALTIME_HOST.fullmatch(hosts[0]):
        return "only the Event API has a WebSocket"
    if b"origin" in given:
        return "it has an Origin header, as requests of web pages have"
    protocols = [each.strip() for value in given.get(b"sec-websocket-protocol", []) for each in value.split(b",")]
    signed = [each.removeprefix(b"header-") for each in protocols if each.startswith(b"header-")]
    if len(signed) != 1:
        return "it has no signature among its subprotocols"
    try:
        fields = json.loads(base64.urlsafe_b64decode(signed[0] + b"=" * (-len(signed[0]) % 4)))
        authorization = next(str(value) for name, value in dict(fields).items() if name.lower() == "authorization")
    except (ValueError, TypeError, AttributeError, StopIteration):
        return "the signature among its subprotocols is not base64 of JSON with an authorization"
    return _refusal_of_signature({b"authorization": [authorization.encode()]}, _EVENTS_SERVICE)


def _is_token(given: dict[bytes, list[bytes]]) -> bool:
    values = given.get(b"authorization", [])
    return len(values) == 1 and _TOKEN.fullmatch(values[0]) is not None


def _given(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    given: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        given.setdefault(name.lower(), []).append(value.strip())
    return given


def _refusal_of_signature(given: dict[bytes, list[bytes]], called: str | None) -> str | None:
    values = given.get(b"authorization", [])
    if len(values) != 1:
        return f"it has {len(values)} Authorization headers: sign it once, by AWS Signature Version 4"
    signature = _SIGNATURE.fullmatch(values[0])
    if signature is None:
        return "its Authorization header is no AWS Signature Version 4 (AWS4-HMAC-SHA256 Credential=…)"
    service = signature[1].decode()
    if called is not None and called != service:
        return f"it is signed for the service {service!r}, and calls {called!r}"
    if called is None and service == _API_SERVICE:
        return f"it is signed for the service {_API_SERVICE!r}, and does not call the API"
    return None


def _called_service(path: str, given: dict[bytes, list[bytes]]) -> str | None:
    """The service that path and headers name, None if only the signature tells it."""
    if path.startswith(_API_PATH):
        return _API_SERVICE
    target = given.get(b"x-amz-target", [b""])[0].partition(b".")[0]
    return _TARGETS.get(target)
