"""All of our HTTP servers on a user's machine are one class: a foreign Host and a connection too many are refused."""

import ast
import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from penstock.endpoint import local_endpoint
from penstock.endpoint.listening import fitting_connections, listen
from penstock.endpoint.local_endpoint import LocalEndpoint
from penstock_core.limits import RESERVED_FILES

SDK = Path(local_endpoint.__file__).parents[2]
resource = pytest.importorskip("resource")


@asynccontextmanager
async def _serving(connections_max: int = 10) -> AsyncIterator[int]:
    async def say(_: web.Request) -> web.Response:
        return web.Response(text="said")

    app = web.Application()
    app.router.add_get("/", say)
    endpoint = LocalEndpoint(app, stop_s=0.0, connections_max=connections_max)
    listening = listen(0)
    await endpoint.start(listening)
    try:
        yield listening.getsockname()[1]
    finally:
        await endpoint.close()


async def _status(port: int, hosts: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET / HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n".encode())
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        ("Host: 127.0.0.1\r\n", 200),
        ("Host: localhost:9\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("Host: 127.0.0.1\r\nHost: evil.example\r\n", 400),
        ("Host: 127.0.0.1.evil.example\r\n", 403),
        ("Host:\r\n", 403),
    ],
)
def test_request_is_refused_when_its_host_is_not_this_machine(hosts: str, status: int) -> None:
    async def run() -> int:
        async with _serving() as port:
            return await _status(port, hosts)

    assert asyncio.run(run()) == status


def test_connection_is_refused_when_too_many_are_open() -> None:
    async def run() -> None:
        async with _serving(connections_max=1) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            with socket.create_connection(("127.0.0.1", port)) as second:
                second.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(second, 1) == b""
            writer.close()

    asyncio.run(run())


def test_no_other_module_serves_http_by_itself() -> None:
    own = {"AppRunner", "TCPSite", "SockSite", "ServerRunner", "run_app", "HTTPServer", "ThreadingHTTPServer"}
    found = {
        path.relative_to(SDK).as_posix()
        for path in SDK.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in own) or (isinstance(node, ast.Name) and node.id in own)
    }
    # `penstock metrics` runs without aiohttp, and asks the same function about a request's host.
    assert found == {"penstock/endpoint/local_endpoint.py", "penstock/metrics/endpoint.py"}


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "fitting", "raised"),
    [
        (1_024, 4_096, 2_000, 2_000, 2_000 + RESERVED_FILES),
        (1_024, 1_024, 2_000, 1_024 - RESERVED_FILES, None),
        (1_024, 1_500, 2_000, 1_500 - RESERVED_FILES, 1_500),
        (1_024, -1, 2_000, 2_000, 2_000 + RESERVED_FILES),
        (-1, -1, 2_000, 2_000, None),
        (4_096, 4_096, 2_000, 2_000, None),
        (10, 10, 2_000, 1, None),
    ],
)
def test_limit_of_open_files_is_raised_or_fewer_connections_fit(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, fitting: int, raised: int | None
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.append(found))
    monkeypatch.setattr(resource, "RLIM_INFINITY", -1)
    assert fitting_connections(wanted) == fitting
    assert limits[1:] == ([] if raised is None else [(raised, hard)])
