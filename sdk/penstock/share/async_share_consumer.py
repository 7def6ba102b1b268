"""The share consumer for asyncio. share_core.py decides, share_tasks.py does the I/O."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, Unpack

from penstock.arguments import check_text
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport, open_async_transport
from penstock.http.named_transport import TransportName
from penstock.options import shows_fields_of
from penstock.share.acknowledgements import ACCEPT, Verb, Wish, reject
from penstock.share.async_runner import AsyncRunner, stopped_by_loop_signals
from penstock.share.runner import Handler
from penstock.share.settings import ShareOptions, ShareSettings
from penstock.share.share_consumer import check_poll, check_run, checked_settings, release_wish, share_core
from penstock.share.share_tasks import ShareTasks
from penstock.share_model import ShareAcceptance, ShareRecord
from penstock.system import monotonic_ms
from penstock.telemetry.opening import open_notes
from penstock.workers.fork_guard import ForkGuard
from penstock_core.limits import SDK_CALL_MS_MAX


class AsyncShareConsumer:
    """`ShareConsumer` for asyncio.

        async with AsyncShareConsumer("orders", group_id="workers") as consumer:
            async for record in consumer:
                await handle(record)

    `run` calls a handler in tasks, which may be a coroutine function. Use a consumer from one event loop.
    """

    @shows_fields_of(ShareSettings)
    def __init__(
        self,
        *topics: str,
        url: str | None = None,
        region: str | None = None,
        transport: AsyncTransport | TransportName | None = None,
        **options: Unpack[ShareOptions],
    ) -> None:
        """As `ShareConsumer`. Needs the extra `penstock[async]`, unless a transport is given."""
        settings = checked_settings(options)
        self._settings = settings
        self._fork = ForkGuard("AsyncShareConsumer")
        carrier = open_async_transport(url, region, transport)
        self._core = share_core(settings, topics, open_notes(carrier, settings.group_id))
        self._client = AsyncClient(carrier, retry=settings.retry)
        self._tasks = ShareTasks(self._core, self._client, fork=self._fork, on_lock_lost=settings.on_lock_lost)

    # Records.

    async def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ShareRecord]:
        """As `ShareConsumer.poll`, awaited."""
        check_poll(max_records, timeout_ms)
        self._tasks.start()
        await asyncio.sleep(0)  # a program that always finds records would keep the loop from everything else
        return await self._tasks.drive(self._core.poll(max_records, timeout_ms))

    def __aiter__(self) -> Self:
        """The consumer: iteration returns its records."""
        return self

    async def __anext__(self) -> ShareRecord:
        """As `ShareConsumer.__next__`, awaited."""
        self._tasks.start()
        await asyncio.sleep(0)  # as in poll
        record = await self._tasks.drive(self._core.next_record())
        if record is None:
            raise StopAsyncIteration
        return record

    async def run(self, handler: Handler, *, concurrency: int = 8) -> None:
        """As `ShareConsumer.run`, in tasks, awaited. A cancellation ends it: it releases what the handlers had."""
        check_run(handler, concurrency)
        self._tasks.start()
        self._core.appetite.employ(concurrency)
        try:
            with stopped_by_loop_signals(self.stop):
                await AsyncRunner(self._core, self._tasks, self.stop).run(
                    handler, concurrency=concurrency, drain_ms=self._settings.drain_ms
                )
        finally:
            await self.close()

    def processing(self, record: ShareRecord) -> AbstractContextManager[object]:
        """As `Consumer.processing`. `run` does it by itself."""
        return self._core.processing(record, is_received=True)

    # Acknowledgements. They are not awaited: they go in the background.

    def accept(self, record: ShareRecord) -> None:
        """As `ShareConsumer.accept`. It is not awaited: it makes no call."""
        self._acknowledge(record, ACCEPT)

    def release(self, record: ShareRecord, delay_ms: int | None = None) -> None:
        """As `ShareConsumer.release`. It is not awaited: it makes no call."""
        self._acknowledge(record, release_wish(delay_ms))

    def reject(self, record: ShareRecord, reason: str = "") -> None:
        """As `ShareConsumer.reject`. It is not awaited: it makes no call."""
        check_text("reason", reason)
        self._acknowledge(record, reject(reason))

    def renew(self, record: ShareRecord) -> None:
        """As `ShareConsumer.renew`. It is not awaited: it makes no call."""
        self._acknowledge(record, Wish(Verb.RENEW, lock_ms=self._settings.lock_ms))

    async def flush(self, timeout_ms: int = SDK_CALL_MS_MAX) -> None:
        """As `ShareConsumer.flush`, awaited."""
        self._tasks.start()
        if not await self._tasks.drive(self._core.flush(monotonic_ms() + timeout_ms)):
            raise TimeoutError(f"not everything was acknowledged in {timeout_ms} ms")

    def is_held(self, record: ShareRecord) -> bool:
        """As `ShareConsumer.is_held`. It makes no call."""
        return self._core.keeper.locks.is_in_hand(record)

    def acceptances(self, records: Iterable[ShareRecord]) -> Sequence[ShareAcceptance]:
        """As `ShareConsumer.acceptances`. It makes no call."""
        return self._core.acceptances(records)

    def settled(self, records: Iterable[ShareRecord]) -> None:
        """As `ShareConsumer.settled`. It makes no call."""
        self._core.settled(records)

    @property
    def locks_lost(self) -> int:
        """As `ShareConsumer.locks_lost`."""
        return self._core.keeper.lost_count

    @property
    def skipped_batches(self) -> int:
        """As `ShareConsumer.skipped_batches`."""
        return self._core.keeper.skipped_batches

    # The end.

    def stop(self) -> None:
        """As `ShareConsumer.stop`. It is not awaited: call it from a signal handler, a task or another thread."""
        self._core.is_stopped = True
        self._tasks.interrupt()

    @property
    def is_stopped(self) -> bool:
        """`stop` was called: no more records come."""
        return self._core.is_stopped

    async def close(self) -> None:
        """As `ShareConsumer.close`, awaited."""
        await self._close(None)

    async def __aenter__(self) -> Self:
        """The consumer."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it. After an exception it releases what was returned last, or rejects it after `Reject`."""
        await self._close(error)

    async def _close(self, error: BaseException | None) -> None:
        if self._core.is_closed or self._fork.is_forked:
            return  # in a child by fork(), locks and connections are the parent's
        self._core.is_stopped = True
        self._tasks.interrupt()
        try:
            await self._tasks.drive(self._core.close(error))
        finally:
            try:
                await self._tasks.stop()
            finally:
                await self._client.close()

    def _acknowledge(self, record: ShareRecord, wish: Wish) -> None:
        self._fork.check()
        self._core.acknowledge(record, wish)
        self._tasks.wake()
