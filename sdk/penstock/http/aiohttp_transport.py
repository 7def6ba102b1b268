"""Signed HTTPS in an event loop, by aiohttp: the extra `penstock[async]`."""

import asyncio
import io
from collections.abc import Mapping

import aiohttp
from yarl import URL

from penstock.configuration import Configuration
from penstock.http.connections import CONNECT_TIMEOUT_S, NoAnswerError
from penstock.http.http_message import Response
from penstock.http.signature import SignedRequest, event_headers, has_newer_token, is_refused_token, sign
from penstock.http.transport import ANSWER_TIMEOUT_S, no_answer

# These are raised before the first byte of the request leaves.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class AiohttpConnections:
    """As Connections, for one event loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None  # made at the first call: it belongs to a running loop

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Response:
        """As `Connections.send`, awaited."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=ANSWER_TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout, skip_auto_headers=("Accept-Encoding",))
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),  # as it was signed
                headers=headers,
                data=io.BytesIO(body) if body else None,  # sent in portions, so that it does not hold up the loop
                allow_redirects=False,
            ) as answer:
                return Response(answer.status, answer.headers, await answer.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoAnswerError(repr(error), maybe_sent=not isinstance(error, _NOT_SENT)) from error

    async def close(self) -> None:
        """Close the session. A later request opens another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class AiohttpTransport:
    """As HttpTransport: AWS Signature Version 4, kept-alive connections, no retries and no redirects.

    Signing runs in the loop's threads: it hashes the body, and may have to ask for fresh credentials.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._connections = AiohttpConnections()

    @property
    def url(self) -> str:
        """The service's URL."""
        return self._configuration.url

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one signed request."""
        signed = await asyncio.to_thread(sign, self._configuration, method, path, query, headers, body)
        answer = await self._send(signed, method, path, body)
        if is_refused_token(self._configuration, answer.status) and await asyncio.to_thread(
            has_newer_token, self._configuration, signed, answer.status
        ):
            signed = await asyncio.to_thread(sign, self._configuration, method, path, query, headers, body)
            answer = await self._send(signed, method, path, body)
        return answer

    async def _send(self, signed: SignedRequest, method: str, path: str, body: bytes) -> Response:
        try:
            return await self._connections.send(method, signed.url, signed.headers, body)
        except NoAnswerError as error:
            what = f"{method} {path}: {error}"
            raise no_answer(self._configuration, what, maybe_sent=error.maybe_sent) from error.__cause__

    def event_headers(self, host: str, body: bytes) -> Mapping[str, str]:
        """As EventSigner says: call it in a thread."""
        return event_headers(self._configuration, host, body)

    async def close(self) -> None:
        """Close the connections. A later call opens others."""
        await self._connections.close()
