"""One signed request and its answer, awaited: the port of the asynchronous clients."""

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.configuration import Configuration, find_configuration
from penstock.errors import NotConfiguredError
from penstock.http.http_message import Response
from penstock.http.named_transport import HTTP, TransportName, chosen_name, module_of
from penstock.tokens import TokenProvider


class AsyncTransport(Protocol):
    """As Transport, for one event loop."""

    async def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        """As `Transport.call`, awaited. After a cancellation the request may have been sent."""
        ...

    async def close(self) -> None:
        """As `Transport.close`, awaited."""
        ...


def open_async_transport(
    url: str | None = None, region: str | None = None, transport: AsyncTransport | TransportName | None = None
) -> AsyncTransport:
    """As `open_transport`; HTTP is by aiohttp. Opens no connection yet.

    Raises NotConfiguredError, also if aiohttp is not installed.
    """
    if transport is not None and not isinstance(transport, str):
        return transport
    name = chosen_name(transport, url)
    if name != HTTP:
        opened: AsyncTransport = module_of(name, is_async=True).open_async_transport(region)
        return opened
    return _by_aiohttp(lambda: find_configuration(url, region))


def async_token_transport(token: TokenProvider, url: str | None = None) -> AsyncTransport:
    """As `token_transport`, for the asynchronous clients. `token` is called in a thread, so it may wait.

    Raises NotConfiguredError, also if aiohttp is not installed.
    """
    return _by_aiohttp(lambda: find_configuration(url, token=token))


def _by_aiohttp(find: Callable[[], Configuration]) -> AsyncTransport:
    try:
        from penstock.http.aiohttp_transport import AiohttpTransport
    except ModuleNotFoundError as error:
        raise NotConfiguredError(f"{error}: the asynchronous clients need `pip install 'penstock[async]'`") from error
    return AiohttpTransport(find())
