"""Wake-ups of `penstock dev`: consumers sleep until they are woken, and nobody else gets in."""

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp import web
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from penstock import Admin, Consumer, Producer
from penstock.dev.wake_ups import _Link
from penstock.http.sigv4 import Keys, Scope, signed_headers
from penstock.system import wall_clock_ms
from penstock.wake_ups.events import CONNECT_BODY, subprotocols
from penstock_core.limits import DEV_CHANNELS_MAX, DEV_MESSAGES_WAITING_MAX
from penstock_core.log.wake_up import WakeUpMessage
from tests.sdk.dev.conftest import Server
from tests.support.deadlines import until

SCOPE = Scope(region="us-east-1", service="appsync")


def _signed(running: Server, body: str, keys: Keys | None = None, host: str = "") -> dict[str, str]:
    host = host or f"127.0.0.1:{running.port}"
    url, now_s = f"https://{host}/event", wall_clock_ms() / 1_000
    headers = signed_headers(keys or running.service.keys, SCOPE, "POST", url, {"host": host}, body.encode(), now_s)
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def _connected(running: Server, headers: dict[str, str], **options: Any) -> Iterator[ClientConnection]:
    offered = [Subprotocol(each) for each in subprotocols(headers)]
    with connect(f"ws://127.0.0.1:{running.port}/event/realtime", subprotocols=offered, **options) as link:
        yield link


def _subscribe(running: Server, link: ClientConnection, number: str, channel: str) -> dict[str, Any]:
    body = json.dumps({"channel": channel}, separators=(",", ":"))
    message = {"type": "subscribe", "id": number, "channel": channel, "authorization": _signed(running, body)}
    link.send(json.dumps(message))
    answer: dict[str, Any] = json.loads(link.recv())
    return answer


def test_waiting_consumer_is_woken_and_asks_nothing_meanwhile(running: Server) -> None:
    Admin(transport=running.transport()).create_topic("orders")
    links = running.service.wake_ups._links
    with Consumer("orders", transport=running.transport()) as consumer:
        until(lambda: any(each._channels for each in links), step=lambda: consumer.poll(timeout_ms=20))
        with Producer(transport=running.transport()) as producer:
            producer.send("orders", b"a").result()
        until(lambda: [each.value for each in consumer.poll(timeout_ms=1_000)] == [b"a"])
    until(lambda: not links)


def test_message_goes_to_the_subscriptions_of_its_channel_alone(running: Server) -> None:
    with _connected(running, _signed(running, CONNECT_BODY)) as link:
        link.send('{"type":"connection_init"}')
        assert json.loads(link.recv())["type"] == "connection_ack"
        assert _subscribe(running, link, "1", "/wake/0a/*")["type"] == "subscribe_success"
        link.send("no message")
        for channel in ("/wake/0b/1", "/wake/0a/1"):
            running.service.wake_ups.publish(WakeUpMessage(channel=channel, event=channel))
        assert json.loads(link.recv()) == {"type": "data", "id": "1", "event": "/wake/0a/1"}
        link.send('{"type":"unsubscribe","id":"1"}')
        assert json.loads(link.recv())["type"] == "unsubscribe_success"


@pytest.mark.parametrize(
    "forged",
    [
        lambda running: _signed(running, CONNECT_BODY, Keys("AKIA", "secret")),
        lambda running: _signed(running, CONNECT_BODY, Keys(running.service.keys.access_key, "secret")),
        lambda running: _signed(running, CONNECT_BODY, host="other.example"),
        lambda running: _signed(running, "other"),
        lambda _: {},
    ],
    ids=["key", "secret", "host", "body", "nothing"],
)
def test_nobody_else_gets_in(running: Server, forged: Callable[[Server], dict[str, str]]) -> None:
    with _connected(running, forged(running)) as link:
        assert json.loads(link.recv())["type"] == "connection_error"
        with pytest.raises(ConnectionClosed):
            link.recv()


def test_web_page_is_refused(running: Server) -> None:
    headers = _signed(running, CONNECT_BODY)
    with pytest.raises(InvalidStatus, match="403"), _connected(running, headers, origin="http://evil.example"):
        pass


def test_channels_of_a_connection_have_a_bound(running: Server) -> None:
    with _connected(running, _signed(running, CONNECT_BODY)) as link:
        for number in range(DEV_CHANNELS_MAX):
            assert _subscribe(running, link, str(number), f"/wake/0a/{number}")["type"] == "subscribe_success"
        refused = _subscribe(running, link, "more", "/wake/0a/more")
        assert str(DEV_CHANNELS_MAX) in refused["errors"][0]["message"]


def test_client_that_does_not_read_loses_its_connection() -> None:
    class Transport:
        is_cut = False

        def abort(self) -> None:
            self.is_cut = True

    async def send() -> bool:
        transport = Transport()
        link = _Link(None, transport, lambda *_: None)  # type: ignore[arg-type]
        link._channels["1"] = "/wake/0a/1"
        for _ in range(DEV_MESSAGES_WAITING_MAX + 1):
            assert not transport.is_cut
            link.send(WakeUpMessage(channel="/wake/0a/1", event="{}"))
        return transport.is_cut

    assert asyncio.run(send())


def test_headers_that_nest_deeply_are_refused_as_no_json() -> None:
    link = _Link(web.WebSocketResponse(), None, lambda *_: None)
    with pytest.raises(ValueError, match="nested"):
        link.admit("aws-appsync-event-ws, header-" + base64.urlsafe_b64encode(b"[" * 6_000).decode())
    link._answer("[" * 6_000)
    assert link._waiting.empty()
