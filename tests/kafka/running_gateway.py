"""A gateway on a thread of its own, in front of a service in memory: tests run Kafka's clients against it."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from penstock.endpoint.listening import listen
from penstock.http.async_transport import AsyncTransport
from penstock.testing import MemoryPenstock, ThreadedTransport
from penstock_kafka.gateway import Gateway, Protection
from penstock_kafka.settings import Address, Settings

SETTINGS = Settings(advertised=Address(host="127.0.0.1", port=0), poll_ms_max=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGateway:
    """`address` is for clients; `service` is what the gateway calls."""

    address: str
    port: int
    service: MemoryPenstock
    gateway: Gateway
    loop: asyncio.AbstractEventLoop

    def close(self) -> None:
        """Drain it."""
        asyncio.run_coroutine_threadsafe(self.gateway.close(), self.loop).result()


@contextmanager
def running_gateway(
    service: MemoryPenstock,
    settings: Settings = SETTINGS,
    transport: AsyncTransport | None = None,
    protection: Protection | None = None,
    port: int = 0,
) -> Iterator[RunningGateway]:
    """Serve until the block ends. The settings' port is that of the socket, a free one by default."""
    listening = listen(port)
    port = listening.getsockname()[1]
    settings = replace(settings, advertised=Address(host="127.0.0.1", port=port))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="kafka-gateway", daemon=True)
    thread.start()

    async def start() -> Gateway:
        gateway = Gateway(transport or ThreadedTransport(service.transport), settings, protection)
        await gateway.start(listening)
        return gateway

    gateway = asyncio.run_coroutine_threadsafe(start(), loop).result()
    running = RunningGateway(address=f"127.0.0.1:{port}", port=port, service=service, gateway=gateway, loop=loop)
    try:
        yield running
    finally:
        running.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def request_bytes(key: int, version: int, correlation_id: int, body: bytes, *, is_flexible: bool = False) -> bytes:
    """The frame of a request of the client "test"."""
    header = struct.pack(">hhih", key, version, correlation_id, 4) + b"test" + (b"\x00" if is_flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def read_answer(link: socket.socket, key: int, version: int) -> tuple[int, Any]:
    """The next answer: its correlation id and its body. Raises EOFError if the connection has ended."""
    frame = _exactly(link, struct.unpack(">i", _exactly(link, 4))[0])
    kind: Any = load_response_schema(key, version)  # now, as the gateway's thread has imported it
    header, size = entity_reader(kind.__header_schema__)(frame, 0)
    body, _ = entity_reader(kind)(frame, size)
    return header.correlation_id, body


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
