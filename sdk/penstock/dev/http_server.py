"""The gateway over HTTP/1.1, by aiohttp's server: its loop reads requests, and threads answer them.

A long poll keeps a thread for up to 20 s, so there are many threads, which begin when they are needed. Requests beyond
`DEV_REQUESTS_MAX` are told to come again, as API Gateway does when all functions are busy.
"""

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web

from penstock.dev.gateway import Answer, Gateway, Refused
from penstock.dev.wake_ups import PATH, DevWakeUps
from penstock.endpoint.local_endpoint import LocalEndpoint
from penstock.system import monotonic_ms, wall_clock_ms
from penstock_core.limits import DEV_BODY_BYTES_MAX, DEV_REQUESTS_MAX

logger = logging.getLogger("penstock.dev")

_STOP_S = 2.0  # for requests that are being answered when the server stops
_HEADERS = {"Server": "penstock-dev", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class HttpServer:
    """Serves one gateway on one socket that listens already."""

    def __init__(self, gateway: Gateway, wake_ups: DevWakeUps) -> None:
        self._gateway = gateway
        self._wake_ups = wake_ups
        self._threads = ThreadPoolExecutor(DEV_REQUESTS_MAX, thread_name_prefix="penstock-request")
        self._requests = 0
        self._endpoint: LocalEndpoint | None = None

    async def start(self, listening: socket.socket) -> None:
        """Answer requests from now on."""
        app = web.Application(client_max_size=DEV_BODY_BYTES_MAX)
        app.router.add_get(PATH, self._wake_ups.serve)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        # A body is hashed and handled as it came. Unpacked, a small one could fill the memory.
        self._endpoint = LocalEndpoint(app, stop_s=_STOP_S, auto_decompress=False)
        await self._endpoint.start(listening)
        self._wake_ups.listen(f"127.0.0.1:{listening.getsockname()[1]}")

    async def close(self) -> None:
        """Take no more requests, wait a moment for those under way, then close all connections."""
        self._wake_ups.close()
        if self._endpoint is not None:
            await self._endpoint.close()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def _handle(self, request: web.Request) -> web.Response:
        started_ms = monotonic_ms()
        response = await self._respond(request)
        took_ms = monotonic_ms() - started_ms
        logger.info("%s %s %d %d ms", request.method, ascii(request.raw_path)[1:-1][:200], response.status, took_ms)
        return response

    async def _respond(self, request: web.Request) -> web.Response:
        if self._requests >= DEV_REQUESTS_MAX:
            refused = Refused(429, f"Too Many Requests: this server answers {DEV_REQUESTS_MAX} at once")
            return _response(refused.answer, {"Retry-After": "1"})
        self._requests += 1
        try:
            return _response(await self._answer(request))
        except Refused as refused:
            return _response(refused.answer)
        finally:
            self._requests -= 1

    async def _answer(self, request: web.Request) -> Answer:
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers]
        claim = self._gateway.admit(request.raw_path, headers, wall_clock_ms() / 1_000)
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise Refused(413, f"Request Too Long: a body has at most {DEV_BODY_BYTES_MAX} bytes") from error
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, self._gateway.respond, claim, request.method, request.raw_path, headers, body
        )


def _response(answer: Answer, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=answer.status, body=answer.body, headers={**_HEADERS, **answer.headers, **(headers or {})}
    )
