"""One signed request and its answer, awaited: the port of the asynchronous clients."""

from collections.abc import Mapping
from typing import Protocol

from penstock.configuration import find_configuration
from penstock.errors import NotConfiguredError
from penstock.http_message import Response


class AsyncTransport(Protocol):
    """As Transport, for one event loop."""

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Send one request and wait for its answer, whatever its status. After a cancellation it may have been sent.

        Raises ConnectionFailedError if there is none; its `maybe_applied` tells whether the request may have been sent.
        """
        ...

    async def close(self) -> None:
        """Give back connections. Calls after this are allowed, and open new ones."""
        ...


def open_async_transport(
    url: str | None = None, region: str | None = None, transport: AsyncTransport | None = None
) -> AsyncTransport:
    """`transport` if it is given, else HTTP by aiohttp to where `find_configuration` says. Opens no connection yet.

    Raises NotConfiguredError, also where aiohttp is not installed.
    """
    if transport is not None:
        return transport
    try:
        from penstock.aiohttp_transport import AiohttpTransport
    except ModuleNotFoundError as error:
        raise NotConfiguredError(f"{error}: the asynchronous clients need `pip install 'penstock[async]'`") from error
    return AiohttpTransport(find_configuration(url, region))
