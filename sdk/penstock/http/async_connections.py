"""Kept-alive connections in an event loop, by aiohttp: the extra `penstock[async]`."""

import asyncio
import io
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from penstock.http.http_message import Response
from penstock.http.no_answer import CONNECT_TIMEOUT_S, NoAnswerError
from penstock.http.proxy import proxy_of
from penstock.system import wall_clock_ms
from penstock_core.limits import SDK_IDLE_CONNECTION_MS_MAX

_UNDER_WAY_MAX = 100  # calls of one session: later ones wait for their turn, and not against the time to connect

# These are raised before the first byte of the request leaves.
_NOT_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    UnicodeError,  # of a name that no host can have
)


@dataclass(slots=True)
class _Session:
    """A session with its connections, the turns of its calls, and how many calls have come and not gone."""

    client: aiohttp.ClientSession
    turns: asyncio.Semaphore
    calls: int = 0
    is_old: bool = False


class AsyncConnections:
    """As Connections, for one event loop.

    aiohttp drops idle connections by the loop's clock, which may stand still while the host or a function is frozen. So
    a jump of the wall clock against it makes all connections old: calls under way end on them, and later ones open new.
    The time to connect is one for all addresses of a host, and for the handshake.
    """

    def __init__(self, timeout_s: float, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._connect_timeout_s = min(connect_timeout_s, timeout_s)
        self._session: _Session | None = None  # made at the first call: it belongs to a running loop
        self._ahead_ms = 0.0  # the wall clock, of the loop's, at the last call

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """As `Connections.send`, awaited."""
        session = await self._current()
        session.calls += 1
        try:
            async with session.turns:
                return await self._sent(session.client, method, url, headers, body)
        except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
            raise _no_answer(error) from error
        finally:
            session.calls -= 1
            if session.is_old and not session.calls:
                await session.client.close()

    async def _sent(
        self, client: aiohttp.ClientSession, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        if client.closed:
            raise NoAnswerError("the client was closed before the request left", maybe_sent=False)
        async with client.request(
            method,
            URL(url, encoded=True),  # as it was signed
            headers=headers,
            data=io.BytesIO(body) if body else None,  # sent in portions, so that it does not hold up the loop
            allow_redirects=False,
            proxy=proxy_of(url),
        ) as answer:
            return Response(answer.status, answer.headers, await answer.read())

    async def close(self) -> None:
        """Close the session. A later request opens another."""
        session, self._session = self._session, None
        if session is not None:
            await session.client.close()

    async def _current(self) -> _Session:
        ahead_ms = wall_clock_ms() - asyncio.get_running_loop().time() * 1_000
        has_jumped = abs(ahead_ms - self._ahead_ms) > SDK_IDLE_CONNECTION_MS_MAX
        self._ahead_ms = ahead_ms
        if self._session is not None and has_jumped:
            old, self._session = self._session, None
            old.is_old = True
            if not old.calls:
                await old.client.close()
        if self._session is None:
            client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout_s, sock_read=self._timeout_s),
                skip_auto_headers=("Accept-Encoding",),
                connector=aiohttp.TCPConnector(limit=0),  # the turns are the bound
                middlewares=(_sent_once,),
            )
            self._session = _Session(client, asyncio.Semaphore(_UNDER_WAY_MAX))
        return self._session


async def _sent_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Hides a lost connection from aiohttp, which would send a DELETE or PUT again that may have been applied."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError, OSError) as error:
        raise _no_answer(error) from error


def _no_answer(error: Exception) -> NoAnswerError:
    return NoAnswerError(repr(error), maybe_sent=not isinstance(error, _NOT_SENT))
