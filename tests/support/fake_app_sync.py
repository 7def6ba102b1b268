"""AppSync Events in a thread: its frames as AWS documents them, with signatures checked, and faults on demand.

It speaks HTTP and WebSockets on 127.0.0.1 under a host name of its own, so a client that mixes them up is refused.
"""

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from penstock.http.sigv4 import Keys, Scope, SignatureRefused, check_signature, read_claim
from penstock.wake_ups.events import SUBPROTOCOL

HOST = "abc.appsync-api.local"
REALTIME_HOST = "abc.appsync-realtime-api.local"
SCOPE = Scope(region="us-east-1", service="appsync")


class FakeAppSync:
    """One Event API. `keys` are those that it takes signatures of.

    `seen` counts what clients sent: connections, `subscribe <channel>`, `unsubscribe <channel>`. `refused` holds
    channels that nobody may subscribe to. `is_down` refuses handshakes.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.timeout_ms = 300_000
        self.seen: Counter[str] = Counter()
        self.closes: list[int | None] = []
        self.refused: set[str] = set()
        self.is_down = False
        self.is_mute = False  # it acknowledges nothing
        self._lock = threading.Lock()
        self._links: dict[ServerConnection, dict[str, str]] = {}
        self._server: Server = serve(
            self._serve,
            "127.0.0.1",
            0,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            process_request=self._admit,
            compression=None,
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="fake-appsync")

    @property
    def place(self) -> dict[str, str]:
        """The answer of `GET /v1/wake-ups`."""
        port = self._server.socket.getsockname()[1]
        return {
            "realtime": f"ws://127.0.0.1:{port}/event/realtime",
            "host": HOST,
            "realtime_host": REALTIME_HOST,
            "namespace": "wake",
        }

    def publish(self, channel: str, event: Any) -> int:
        """Send an event to all who subscribe to its channel, by name or by `*`. Returns how many."""
        text = event if isinstance(event, str) else json.dumps(event)
        wild = channel.rpartition("/")[0] + "/*"
        with self._lock:
            found = [
                (link, each)
                for link, channels in self._links.items()
                for each, subscribed in channels.items()
                if subscribed in (channel, wild)
            ]
        for link, each in found:
            with suppress(ConnectionClosed):
                link.send(json.dumps({"type": "data", "id": each, "event": text}))
        return len(found)

    def send(self, text: str | bytes) -> None:
        """Send any message to all clients."""
        for link in self.links():
            with suppress(ConnectionClosed):
                link.send(text)

    def subscribers(self, channel: str) -> int:
        with self._lock:
            return sum(channel in channels.values() for channels in self._links.values())

    def links(self) -> list[ServerConnection]:
        with self._lock:
            return list(self._links)

    def kill(self) -> None:
        """Cut every connection, without a goodbye."""
        for link in self.links():
            with suppress(OSError):
                link.socket.shutdown(2)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._server.shutdown()
        self._thread.join()

    def _admit(self, link: ServerConnection, request: Any) -> Any:
        self.seen["handshake"] += 1
        if self.is_down:
            return link.respond(503, "down")
        if request.headers["Host"] != REALTIME_HOST:
            return link.respond(404, f"no host {request.headers['Host']}")
        return None

    def _serve(self, link: ServerConnection) -> None:
        self.seen["connect"] += 1
        assert link.request is not None
        offered = link.request.headers["Sec-WebSocket-Protocol"].split(", ")
        encoded = next(each for each in offered if each.startswith("header-")).removeprefix("header-")
        headers = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        try:
            self._check(headers, b"{}")
        except SignatureRefused as error:
            link.send(json.dumps({"type": "connection_error", "errors": [{"message": str(error)}]}))
            link.close(4401)
            return
        with self._lock:
            self._links[link] = {}
        try:
            for text in link:
                self._answer(link, json.loads(text))
        except ConnectionClosed:
            pass
        finally:
            with self._lock:
                self._links.pop(link)
            self.closes.append(None if link.close_code == 1006 else link.close_code)

    def _answer(self, link: ServerConnection, message: dict[str, Any]) -> None:
        if self.is_mute:
            return
        answers: dict[str, Callable[[], Any]] = {
            "connection_init": lambda: {"type": "connection_ack", "connectionTimeoutMs": self.timeout_ms},
            "subscribe": lambda: self._subscribe(link, message),
            "unsubscribe": lambda: self._unsubscribe(link, message),
        }
        link.send(json.dumps(answers[message["type"]]()))

    def _subscribe(self, link: ServerConnection, message: dict[str, Any]) -> dict[str, Any]:
        channel = message["channel"]
        self.seen[f"subscribe {channel}"] += 1
        try:
            self._check(message["authorization"], json.dumps({"channel": channel}, separators=(",", ":")).encode())
            if channel in self.refused:
                raise SignatureRefused("You are not authorized")
        except SignatureRefused as error:
            errors = [{"errorType": "UnauthorizedException", "message": str(error)}]
            return {"type": "subscribe_error", "id": message["id"], "errors": errors}
        with self._lock:
            self._links[link][message["id"]] = channel
        return {"type": "subscribe_success", "id": message["id"]}

    def _unsubscribe(self, link: ServerConnection, message: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            channel = self._links[link].pop(message["id"])
        self.seen[f"unsubscribe {channel}"] += 1
        return {"type": "unsubscribe_success", "id": message["id"]}

    def _check(self, headers: dict[str, str], body: bytes) -> None:
        """Raises SignatureRefused unless this is a signed POST https://<host>/event, of now."""
        pairs = list(headers.items())
        if headers.get("host") != HOST:
            raise SignatureRefused(f"signed for {headers.get('host')}")
        claim = read_claim(SCOPE, pairs, time.time())
        if claim.access_key != self.keys.access_key:
            raise SignatureRefused(f"the key {claim.access_key} is unknown or has expired")
        check_signature(claim, self.keys, SCOPE, "POST", "/event", pairs, body)
