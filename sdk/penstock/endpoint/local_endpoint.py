"""One HTTP server by aiohttp: all of ours that listen on a user's machine are this one.

It refuses requests that name another host, and connections beyond those that the process may open.
"""

import asyncio
import logging
import socket

from aiohttp import web
from aiohttp.typedefs import Handler

from penstock.endpoint.listening import REFUSAL, fitting_connections, is_foreign
from penstock_core.limits import BACKLOG_MAX, LOCAL_CONNECTIONS_MAX

logger = logging.getLogger("penstock")


class LocalEndpoint:
    """Serves one application on one socket that listens already."""

    def __init__(
        self, app: web.Application, *, stop_s: float, connections_max: int | None = None, auto_decompress: bool = True
    ) -> None:
        app.middlewares.insert(0, _own_names_only)
        self._connections_max = connections_max or fitting_connections(LOCAL_CONNECTIONS_MAX)
        self._runner = web.AppRunner(app, access_log=None, auto_decompress=auto_decompress, shutdown_timeout=stop_s)
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer requests from now on."""
        await self._runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol, sock=listening, backlog=BACKLOG_MAX
        )

    async def close(self) -> None:
        """Take no more requests, wait a moment for those under way, then close all connections."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()

    def _protocol(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        assert server is not None
        if len(server.connections) < self._connections_max:
            return server()
        return _Refused()


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        logger.debug("a connection is refused: too many are open")
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


@web.middleware
async def _own_names_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    transport = request.transport
    address = str(transport.get_extra_info("sockname")[0]) if transport is not None else "127.0.0.1"  # it has gone
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or is_foreign(address, hosts[0]):
        return web.json_response({"message": f"Forbidden: {REFUSAL}"}, status=403)
    return await handler(request)
