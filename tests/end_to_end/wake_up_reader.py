"""Reads wake-ups by hand on the WebSocket of the deployed stack, without the SDK."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.end_to_end.local_stack import Stack

PROTOCOL = "aws-appsync-event-ws"


class WakeUpReader:
    """One WebSocket of one reader."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, stack: Stack, place: Mapping[str, str]) -> None:
        self._socket = socket
        self._stack = stack
        self._place = place

    async def subscribe(self, channel: str) -> None:
        """Subscribes, and waits until the Event API has taken it."""
        assert await self.answer_to(channel) == "subscribe_success"

    async def answer_to(self, channel: str) -> str:
        """Asks for a subscription. Returns the type of the answer."""
        authorization = signed_headers(self._stack, self._place["host"], json.dumps({"channel": channel}))
        await self._socket.send_json(
            {"type": "subscribe", "id": channel, "channel": channel, "authorization": authorization}
        )
        return str((await self._next())["type"])

    async def event(self) -> tuple[str, Any]:
        """The channel and the content of the next wake-up."""
        message = await self._next()
        assert message["type"] == "data", message
        event = message["event"]
        return message["id"], json.loads(event if isinstance(event, str) else event[0])

    async def _next(self) -> Any:
        while True:
            message = await self._socket.receive_json()
            if message["type"] != "ka":
                return message


@asynccontextmanager
async def wake_up_reader(stack: Stack, place: Mapping[str, str]) -> AsyncIterator[WakeUpReader]:
    """Opens the WebSocket at `place`, which `GET /v1/wake-ups` has answered."""
    headers = signed_headers(stack, place["host"], "{}")
    encoded = base64.urlsafe_b64encode(json.dumps(headers).encode()).decode().rstrip("=")
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            place["realtime"], protocols=[f"header-{encoded}", PROTOCOL], headers={"Host": place["realtime_host"]}
        ) as socket,
    ):
        await socket.send_json({"type": "connection_init"})
        assert (await socket.receive_json())["type"] == "connection_ack"
        yield WakeUpReader(socket, stack, place)


def signed_headers(stack: Stack, host: str, body: str) -> dict[str, str]:
    """The headers of a POST of `body` to the Event API, signed with the keys of the stack's user."""
    headers = {"host": urlsplit(f"//{host}").netloc, "content-type": "application/json"}
    request = AWSRequest(method="POST", url=f"https://{host}/event", data=body.encode(), headers=headers)
    credentials = Credentials(stack.access_key_id, stack.secret_access_key)
    SigV4Auth(credentials, "appsync", stack.region).add_auth(request)
    return dict(request.headers)
