"""The gateway: one process, one listening socket, one client of the service."""

import socket
import ssl

from penstock.http.async_transport import AsyncTransport
from penstock_kafka.apis import open_registry
from penstock_kafka.context import Context
from penstock_kafka.service.service import Service
from penstock_kafka.settings import Settings
from penstock_kafka.wire.budget import ByteBudget
from penstock_kafka.wire.connection import Desk
from penstock_kafka.wire.server import Server

REQUEST_BYTES_MAX = 64 * 1024 * 1024  # of all requests that are read or handled


class Gateway:
    """Serves Kafka's protocol on a socket that listens already."""

    def __init__(self, transport: AsyncTransport, settings: Settings, *, tls: ssl.SSLContext | None = None) -> None:
        self._context = Context(service=Service(transport), settings=settings)
        desk = Desk(registry=open_registry(self._context), budget=ByteBudget(REQUEST_BYTES_MAX))
        self._server = Server(desk, connections_max=settings.connections_max, tls=tls)

    async def start(self, listening: socket.socket) -> None:
        """Serve from now on."""
        await self._server.start(listening)

    async def close(self) -> None:
        """Answer what was asked, then end."""
        await self._server.close()
        await self._context.close()
        await self._context.service.close()
