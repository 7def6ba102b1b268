"""ShareConsumer and AsyncShareConsumer behind one interface, so that one suite tests both."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, Self, TypeVar

from penstock import AsyncShareConsumer, ShareConsumer, ShareRecord
from penstock.http.transport import Transport
from penstock.testing import ThreadedTransport
from tests.support.deadlines import DEADLINE_S

T = TypeVar("T")
Handler = Callable[[ShareRecord], object]


class ShareKind(Protocol):
    """Makes share consumers of the group `workers`; `transport` is the service's if none is given."""

    def consumer(self, *topics: str, transport: Transport | None = None, **settings: Any) -> Any: ...

    def run(self, consumer: Any, handler: Handler, **options: Any) -> "concurrent.futures.Future[None]":
        """`consumer.run` in the background. The handler may block."""


class ShareThreaded:
    """Consumers with threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def consumer(self, *topics: str, transport: Transport | None = None, **settings: Any) -> ShareConsumer:
        return ShareConsumer(*topics, **{"group_id": "workers", "transport": transport or self._transport, **settings})

    def run(self, consumer: Any, handler: Handler, **options: Any) -> "concurrent.futures.Future[None]":
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                done.set_result(consumer.run(handler, **options))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=run, name="test-run", daemon=True).start()
        return done


class ShareLoop:
    """Consumers for asyncio, in an event loop that runs in a thread."""

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def consumer(self, *topics: str, transport: Transport | None = None, **settings: Any) -> "LoopedShareConsumer":
        threaded = ThreadedTransport(transport or self._transport)
        options = {"group_id": "workers", "transport": threaded, **settings}
        return LoopedShareConsumer(self._loop, AsyncShareConsumer(*topics, **options))

    def run(self, consumer: Any, handler: Handler, **options: Any) -> "concurrent.futures.Future[None]":
        async def handle(record: ShareRecord) -> None:
            await asyncio.to_thread(handler, record)

        return asyncio.run_coroutine_threadsafe(consumer.inner.run(handle, **options), self._loop)


class LoopedShareConsumer:
    """An AsyncShareConsumer that is called from outside its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: AsyncShareConsumer) -> None:
        self._loop = loop
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self.inner, name)
        if not callable(member):
            return member
        return lambda *args, **kwargs: self._result(_called(member, *args, **kwargs))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ShareRecord:
        async def next_record() -> ShareRecord | None:
            return await anext(self.inner, None)  # StopAsyncIteration does not cross threads

        record = self._result(next_record())
        if record is None:
            raise StopIteration
        return record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._result(self.inner.__aexit__(*error))  # type: ignore[arg-type]  # as given

    def _result(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)


async def _called(member: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    answer = member(*args, **kwargs)
    return await answer if asyncio.iscoroutine(answer) else answer
