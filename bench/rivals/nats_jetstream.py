"""NATS JetStream: a stream in files, acknowledged publishes, a pull consumer with acknowledgements."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import nats

from bench.rivals.rival import Seat

_READ_RECORDS = 1_000
_TIMEOUT_S = 60
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsJetStream:
    """One stream with one subject and one durable pull consumer."""

    port: int
    topic: str = ""
    name: str = "NATS JetStream"
    threads: tuple[int, ...] = (1,)

    def make(self) -> None:
        asyncio.run(self._with_stream("add_stream", name=self.topic, subjects=[self.topic], storage="file"))

    def drop(self) -> None:
        asyncio.run(self._with_stream("delete_stream", name=self.topic))

    async def _with_stream(self, call: str, **options: Any) -> None:
        connection = await nats.connect(f"nats://127.0.0.1:{self.port}")
        await getattr(connection.jetstream(), call)(**options)
        await connection.close()

    def renamed(self, topic: str) -> "NatsJetStream":
        return replace(self, topic=topic)

    def through(self, port: int) -> "NatsJetStream":
        return replace(self, port=port)

    def connect(self, seat: Seat) -> "NatsClient":  # noqa: ARG002 - as the others
        return NatsClient(self)


class NatsClient:
    """An event loop in a thread: the client of NATS is asynchronous."""

    chunk = 500
    calls = None

    def __init__(self, rival: NatsJetStream) -> None:
        self._subject = rival.topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection: Any = self._do(nats.connect(f"nats://127.0.0.1:{rival.port}"))
        self._stream: Any = self._connection.jetstream(timeout=_TIMEOUT_S)
        self._subscription: Any = None

    def send(self, values: Sequence[bytes]) -> None:
        self._do(self._publish(values))

    def flush(self) -> None:
        """Nothing: `send` returns when all of it is acknowledged."""

    def receive(self) -> int:
        return self._do(self._fetch())

    def close(self) -> None:
        self._do(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        self._loop.close()

    async def _publish(self, values: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._stream.publish(self._subject, value) for value in values))

    async def _fetch(self) -> int:
        if self._subscription is None:
            self._subscription = await self._stream.pull_subscribe(self._subject, durable="bench", stream=self._subject)
        messages: Sequence[Any] = ()
        with suppress(TimeoutError):
            messages = await self._subscription.fetch(_READ_RECORDS, timeout=0.5)
        for message in messages:
            await message.ack()
        return len(messages)

    def _do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)
