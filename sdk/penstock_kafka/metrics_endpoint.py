"""An HTTP endpoint that answers Prometheus at `/metrics`."""

import socket
from collections import Counter
from collections.abc import Iterable
from typing import Literal

from aiohttp import web

from penstock.endpoint.local_endpoint import LocalEndpoint
from penstock.metrics.exposition import CONTENT_TYPE, Family, Sample, exposition
from penstock_core.limits import METRICS_REQUESTS_MAX
from penstock_kafka.figures import Figures
from penstock_kafka.wire.budget import ByteBudget
from penstock_kafka.wire.server import Server

_STOP_S = 1.0


class MetricsEndpoint:
    """Serves the figures of one gateway."""

    def __init__(self, figures: Figures, server: Server, budget: ByteBudget) -> None:
        self._figures = figures
        self._server = server
        self._budget = budget
        self._endpoint: LocalEndpoint | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer from now on."""
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._endpoint = LocalEndpoint(app, stop_s=_STOP_S, connections_max=METRICS_REQUESTS_MAX)
        await self._endpoint.start(listening)

    async def close(self) -> None:
        """End the endpoint."""
        if self._endpoint is not None:
            await self._endpoint.close()

    def text(self) -> str:
        """The figures in Prometheus' format."""
        return exposition(self._families())

    async def _answer(self, _: web.Request) -> web.Response:
        return web.Response(body=self.text().encode(), headers={"Content-Type": CONTENT_TYPE})

    def _families(self) -> Iterable[Family]:
        figures = self._figures
        yield _family("connections", "gauge", "Open connections.", self._server.connection_count)
        yield _family("request_held_bytes", "gauge", "Bytes of requests in memory.", self._budget.held)
        yield _family("connections_total", "counter", "Connections since the start.", figures.connections)
        yield _family("refused_connections_total", "counter", "Too many connections.", figures.refused_connections)
        yield _family("malformed_requests_total", "counter", "Requests that were none.", figures.malformed_requests)
        yield _family("stalled_connections_total", "counter", "Clients that stopped.", figures.stalled_connections)
        yield _family("produced_bytes_total", "counter", "Bytes of batches sent on.", figures.produced_bytes)
        yield _family("fetched_bytes_total", "counter", "Bytes of batches read.", figures.fetched_bytes)
        yield _family("produce_calls_total", "counter", "Produce calls of the service.", figures.produce_calls)
        yield _family("fetch_calls_total", "counter", "Fetch calls of the service.", figures.fetch_calls)
        yield _by_api("requests_total", "Requests, by API.", figures.requests)
        yield _by_api("request_milliseconds_total", "Time until the answers, by API.", figures.request_ms)


def _family(name: str, kind: Literal["gauge", "counter"], text: str, value: float) -> Family:
    return Family(name=f"penstock_kafka_{name}", kind=kind, help=text, samples=[Sample(value=value)])


def _by_api(name: str, text: str, counts: Counter[str]) -> Family:
    samples = [Sample(value=count, labels={"api": api}) for api, count in sorted(counts.items())]
    return Family(name=f"penstock_kafka_{name}", kind="counter", help=text, samples=samples)
