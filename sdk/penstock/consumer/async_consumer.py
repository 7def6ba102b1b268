"""The consumer for asyncio. consumer_core.py and fetch_buffer.py decide, async_fetcher.py does the I/O."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self, Unpack

from penstock.api import calls
from penstock.consumer.async_fetcher import AsyncFetcher
from penstock.consumer.consumer_core import ConsumerCore
from penstock.consumer.listener import ConsumerRebalanceListener
from penstock.consumer.settings import ConsumerOptions, ConsumerSettings
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport, open_async_transport
from penstock.http.named_transport import TransportName
from penstock.model import ConsumerRecord, GroupOffset, OffsetAndTimestamp, TopicPartition
from penstock.options import shows_fields_of
from penstock.system import monotonic_ms, new_member_id, process_name
from penstock.telemetry.opening import open_notes
from penstock.workers.fork_guard import ForkGuard


class AsyncConsumer:
    """`Consumer` for asyncio: it reads records, which tasks of the event loop prefetch.

        async with AsyncConsumer("orders", group_id="billing") as consumer:
            async for record in consumer:
                await handle(record)

    Use a consumer from one event loop, and read from one task. A call that is cancelled has returned nothing: its
    records come again.
    """

    @shows_fields_of(ConsumerSettings)
    def __init__(
        self,
        *topics: str,
        url: str | None = None,
        region: str | None = None,
        transport: AsyncTransport | TransportName | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """As `Consumer`. Needs the extra `penstock[async]`, unless a transport is given."""
        settings = ConsumerSettings(**options)
        self._settings = settings
        self._fork = ForkGuard("AsyncConsumer")
        carrier = open_async_transport(url, region, transport)
        self._core = ConsumerCore(
            settings,
            member_id=new_member_id(),
            process_name=process_name(),
            now_ms=monotonic_ms,
            notes=open_notes(carrier, settings.group_id),
        )
        if topics:
            self._core.subscribe(topics)
        self._client = AsyncClient(carrier, retry=settings.retry)
        self._fetcher = AsyncFetcher(self._core, self._client, max_in_flight=settings.max_in_flight, fork=self._fork)

    # Reading.

    async def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """As `Consumer.poll`, awaited."""
        self._fetcher.start()
        await asyncio.sleep(0)  # a program that always finds records would keep the loop from everything else
        return await self._fetcher.drive(self._core.poll(max_records, timeout_ms))

    def __aiter__(self) -> Self:
        """The consumer: iteration returns its records."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        """As `Consumer.__next__`, awaited."""
        self._fork.check()
        record = self._core.next_now()
        if record is None:
            self._fetcher.start()
            await asyncio.sleep(0)  # as in poll
            record = await self._fetcher.drive(self._core.next_record())
            if record is None:
                raise StopAsyncIteration
        return record

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """As `Consumer.processing`, for a plain `with`."""
        notes = self._core.notes
        return nullcontext() if notes is None else notes.processing(record, is_received=True)

    # Topics and partitions.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`. It is not awaited: it makes no call."""
        self._core.assign(partitions)
        self._fetcher.wake_all()

    def subscribe(self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """As `Consumer.subscribe`. It is not awaited: it makes no call."""
        self._core.subscribe(topics, listener)
        self._fetcher.wake_all()

    def subscription(self) -> list[str]:
        """As `Consumer.subscription`."""
        return self._core.subscription()

    async def unsubscribe(self) -> None:
        """As `Consumer.unsubscribe`, awaited."""
        await self._fetcher.drive(self._core.unsubscribe())

    async def assignment(self) -> list[TopicPartition]:
        """As `Consumer.assignment`, awaited."""
        return await self._fetcher.drive(self._core.assignment())

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """As `Consumer.seek`, awaited."""
        await self._fetcher.drive(self._core.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_beginning`, awaited."""
        await self._fetcher.drive(self._core.seek_to("earliest", partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As `Consumer.seek_to_end`, awaited."""
        await self._fetcher.drive(self._core.seek_to("latest", partitions))

    async def pause(self, *partitions: TopicPartition) -> None:
        """As `Consumer.pause`, awaited."""
        await self._fetcher.drive(self._core.pause(partitions, is_paused=True))

    async def resume(self, *partitions: TopicPartition) -> None:
        """As `Consumer.resume`, awaited."""
        await self._fetcher.drive(self._core.pause(partitions, is_paused=False))

    async def paused(self) -> list[TopicPartition]:
        """As `Consumer.paused`, awaited."""
        return await self._fetcher.drive(self._core.paused())

    # Offsets.

    async def position(self, partition: TopicPartition) -> int:
        """As `Consumer.position`, awaited."""
        return await self._fetcher.drive(self._core.position(partition))

    def skipped_batches(self) -> dict[TopicPartition, int]:
        """As `Consumer.skipped_batches`. It is not awaited: it makes no call."""
        return dict(self._core.poison.passed_over)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """As `Consumer.commit`, awaited."""
        await self._fetcher.drive(self._core.commit(offsets))

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """As `Consumer.group_offsets`. It is not awaited: it makes no call."""
        return self._core.group_offsets(offsets)

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As `Consumer.settled`. It is not awaited: it makes no call."""
        self._core.settled(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """As `Consumer.committed`, awaited."""
        return await self._client.call(self._core.committed(partition))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`, awaited."""
        return await self._client.call(calls.listed_offsets(partitions, "earliest"))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`, awaited."""
        return await self._client.call(calls.listed_offsets(partitions, "latest"))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """As `Consumer.offsets_for_times`, awaited."""
        return await self._client.call(calls.offsets_at(timestamps))

    # The end.

    def stop(self) -> None:
        """As `Consumer.stop`. It is not awaited: call it from a signal handler, a task or another thread."""
        self._core.is_stopped = True
        self._fetcher.interrupt()

    @property
    def is_stopped(self) -> bool:
        """`stop` was called: no more records come."""
        return self._core.is_stopped

    async def close(self, autocommit: bool = True, leave_group: bool | None = None) -> None:
        """As `Consumer.close`, awaited. It gives up the fetches in flight, which only read."""
        if self._core.is_closed or self._fork.is_forked:
            return  # in a child by fork(), membership and connections are the parent's
        is_leaving = self._settings.group_instance_id is None if leave_group is None else leave_group
        try:
            await self._fetcher.drive(self._core.close(is_committing=autocommit, is_leaving=is_leaving))
        finally:
            try:
                await self._fetcher.stop()
            finally:
                await self._client.close()

    async def __aenter__(self) -> Self:
        """The consumer."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception the application has not dealt with the last records: they must come again.
        """Close it. After an exception it commits nothing: the records that were returned last come again."""
        await self.close(autocommit=kind is None)
