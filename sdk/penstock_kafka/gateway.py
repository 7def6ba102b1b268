"""The gateway: one process, one listening socket, one client of the service."""

import socket
import ssl
from dataclasses import dataclass, replace

from penstock.http.async_transport import AsyncTransport
from penstock_core.limits import KAFKA_REQUESTS_BYTES_MAX
from penstock_kafka.apis import open_registry
from penstock_kafka.context import Context
from penstock_kafka.metrics_endpoint import MetricsEndpoint
from penstock_kafka.security.users import Users
from penstock_kafka.service.service import Service
from penstock_kafka.settings import Settings
from penstock_kafka.wire.budget import ByteBudget
from penstock_kafka.wire.connection import Desk
from penstock_kafka.wire.server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """TLS and users, for clients on other hosts."""

    tls: ssl.SSLContext | None = None
    users: Users | None = None

    @property
    def security_protocol(self) -> str:
        """The name that clients give it: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        carried = "PLAINTEXT" if self.tls is None else "SSL"
        return carried if self.users is None else f"SASL_{carried}"


class Gateway:
    """Serves Kafka's protocol on a socket that listens already."""

    def __init__(self, transport: AsyncTransport, settings: Settings, protection: Protection | None = None) -> None:
        protection = protection or Protection()
        settings = replace(settings, security_protocol=protection.security_protocol)
        self._context = Context(service=Service(transport), settings=settings)
        budget = ByteBudget(KAFKA_REQUESTS_BYTES_MAX)
        desk = Desk(
            registry=open_registry(self._context, protection.users),
            budget=budget,
            figures=self._context.figures,
            wants_login=protection.users is not None,
        )
        self._server = Server(desk, connections_max=settings.connections_max, tls=protection.tls)
        self.metrics = MetricsEndpoint(self._context.figures, self._server, budget)

    async def start(self, listening: socket.socket, metrics: socket.socket | None = None) -> None:
        """Serve from now on, and the metrics if there is a socket for them."""
        await self._server.start(listening)
        if metrics is not None:
            await self.metrics.start(metrics)

    async def close(self) -> None:
        """Answer the open requests, then end."""
        await self._server.close()
        await self._context.close()
        await self.metrics.close()
        await self._context.service.close()
