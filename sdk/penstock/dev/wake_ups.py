"""Wake-ups of `penstock dev`: the service's messages by WebSocket, as an Event API of AppSync sends them.

A client connects under signed headers, subscribes to channels with signed headers for each, and gets what is published
there from then on. A client that does not read loses its connection: a wake-up may be lost, and readers look again.
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import WSMsgType, web

from penstock.dev.gateway import Caller
from penstock.http.sigv4 import Scope, SignatureRefused, check_signature, read_claim
from penstock.system import wall_clock_ms
from penstock.wake_ups.events import CONNECT_BODY, SUBPROTOCOL
from penstock_core.limits import DEV_CHANNELS_MAX, DEV_MESSAGE_BYTES_MAX, DEV_MESSAGES_WAITING_MAX
from penstock_core.log.wake_up import WakeUpMessage
from penstock_core.text import parse_json
from penstock_service.ports.push import WakeUpPlace

PATH = "/event/realtime"
_SIGNED_PATH = "/event"
_TIMEOUT_MS = 300_000
_KEEP_ALIVE_S = 60.0
_UNAUTHORIZED = 4401


class DevWakeUps:
    """WakeUps: the port documents its methods. There is no place until a server listens (`listen`)."""

    def __init__(self, callers: Callable[[], Iterable[Caller]], region: str) -> None:
        self._callers = callers
        self._scope = Scope(region=region, service="appsync")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: set[_Link] = set()
        self.place: WakeUpPlace | None = None

    def listen(self, host: str) -> None:
        """Readers find it at this host and port, from now on, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self.place = WakeUpPlace(realtime_url=f"ws://{host}{PATH}", host=host, realtime_host=host)

    def close(self) -> None:
        """Cut all connections, and offer no place."""
        self.place = None
        for link in [*self._links]:
            link.abort()

    def publish(self, message: WakeUpMessage) -> None:
        """Send the message to all who subscribe to its channel. Any thread may call it."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._send, message)

    def _send(self, message: WakeUpMessage) -> None:
        for link in [*self._links]:
            link.send(message)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """One connection, until either side ends it."""
        if "Origin" in request.headers:
            raise web.HTTPForbidden(text="Forbidden: this server answers programs, and no web page (Origin)")
        socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), max_msg_size=DEV_MESSAGE_BYTES_MAX, compress=False)
        await socket.prepare(request)
        link = _Link(socket, request.transport, self._check)
        try:
            link.admit(request.headers.get("Sec-WebSocket-Protocol", ""))
        except (SignatureRefused, ValueError) as error:
            await socket.send_json({"type": "connection_error", "errors": [{"message": str(error)}]})
            await socket.close(code=_UNAUTHORIZED)
            return socket
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
        return socket

    def _check(self, headers: Mapping[str, Any], body: str) -> None:
        """Raises SignatureRefused unless a caller of the server signed this POST of now."""
        if self.place is None or headers.get("host") != self.place.host:
            raise SignatureRefused(f"signed for {headers.get('host')!r:.100}")
        pairs = [(name, str(value)) for name, value in headers.items()]
        claim = read_claim(self._scope, pairs, wall_clock_ms() / 1_000)
        keys = {each.keys.access_key: each.keys for each in self._callers()}
        if claim.access_key not in keys:
            raise SignatureRefused("an access key of another server")
        check_signature(claim, keys[claim.access_key], self._scope, "POST", _SIGNED_PATH, pairs, body.encode())


class _Link:
    """One connection: its channels by the ids of their subscriptions, and what waits to be sent."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        check: Callable[[Mapping[str, Any], str], None],
    ) -> None:
        self._socket = socket
        self._transport = transport
        self._check = check
        self._channels: dict[str, str] = {}
        self._waiting: asyncio.Queue[str] = asyncio.Queue(DEV_MESSAGES_WAITING_MAX)

    def admit(self, protocols: str) -> None:
        """Checks the headers that the handshake carries. Raises SignatureRefused and ValueError."""
        encoded = [each.strip() for each in protocols.split(",") if each.strip().startswith("header-")]
        if len(encoded) != 1:
            raise SignatureRefused("no signed headers in Sec-WebSocket-Protocol")
        text = encoded[0].removeprefix("header-")
        headers = parse_json(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        if not isinstance(headers, dict):
            raise SignatureRefused("the signed headers are no object")
        self._check(headers, CONNECT_BODY)

    async def run(self) -> None:
        """Answers messages, and sends what is published, until the connection ends."""
        sender = asyncio.create_task(self._send_all())
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.TEXT:
                    break
                self._answer(message.data)
        finally:
            sender.cancel()
            await asyncio.wait((sender,))
            await self._socket.close()

    def send(self, message: WakeUpMessage) -> None:
        """Sends it to the subscriptions of its channel."""
        for number, channel in self._channels.items():
            if channel in (message.channel, message.channel.rpartition("/")[0] + "/*"):
                self._put({"type": "data", "id": number, "event": message.event})

    def _put(self, message: Mapping[str, Any]) -> None:
        try:
            self._waiting.put_nowait(json.dumps(message))
        except asyncio.QueueFull:  # the client does not read: it connects again, and looks
            self.abort()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    async def _send_all(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client has gone: `run` ends
            while True:
                try:
                    text = await asyncio.wait_for(self._waiting.get(), _KEEP_ALIVE_S)
                except TimeoutError:
                    text = json.dumps({"type": "ka"})
                await self._socket.send_str(text)

    def _answer(self, text: str) -> None:
        try:
            message = parse_json(text)
            kind, number = message["type"], str(message.get("id", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if kind == "connection_init":
            self._put({"type": "connection_ack", "connectionTimeoutMs": _TIMEOUT_MS})
        elif kind == "unsubscribe":
            self._channels.pop(number, None)
            self._put({"type": "unsubscribe_success", "id": number})
        elif kind == "subscribe":
            self._subscribe(number, message)

    def _subscribe(self, number: str, message: Mapping[str, Any]) -> None:
        channel, headers = message.get("channel"), message.get("authorization")
        try:
            if not isinstance(channel, str) or not isinstance(headers, dict):
                raise SignatureRefused("no channel, or no signed headers")
            if len(self._channels) >= DEV_CHANNELS_MAX:
                raise SignatureRefused(f"a connection has at most {DEV_CHANNELS_MAX} channels")
            self._check(headers, json.dumps({"channel": channel}, separators=(",", ":")))
        except SignatureRefused as error:
            errors = [{"errorType": "UnauthorizedException", "message": str(error)}]
            self._put({"type": "subscribe_error", "id": number, "errors": errors})
            return
        self._channels[number] = channel
        self._put({"type": "subscribe_success", "id": number})
