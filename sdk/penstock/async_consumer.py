"""The consumer for asyncio. consumer_core.py and fetch_buffer.py decide, async_fetcher.py does."""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from penstock.async_client import AsyncClient
from penstock.async_fetcher import AsyncFetcher
from penstock.async_transport import AsyncTransport, open_async_transport
from penstock.configured_consumer import ConfiguredConsumer
from penstock.listener import ConsumerRebalanceListener
from penstock.model import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from penstock.start_offsets import listed_offsets, offsets_at
from penstock.transaction_core import GroupOffset


class AsyncConsumer(ConfiguredConsumer[AsyncTransport]):
    """Reads records, which tasks of the event loop prefetch. Settings: see `__init__`, they are Consumer's.

        async with AsyncConsumer("orders", group_id="billing") as consumer:
            async for record in consumer:
                await handle(record)

    Failures that may pass are tried again in the background, with full jitter; others are raised by `poll` and
    iteration when nothing prefetched is left before them, and the next call tries again. For one event loop, and
    for reading by one task. A call that is cancelled has handed out nothing: its records come again.
    """

    def _open(self, url: str | None, region: str | None, transport: AsyncTransport | None) -> None:
        self._client = AsyncClient(open_async_transport(url, region, transport), retry=self._call_retry)
        self._fetcher = AsyncFetcher(self._core, self._client, max_in_flight=self._max_in_flight)

    # Reading.

    async def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, `max_poll_records` at most; empty if none came in `timeout_ms`. Partitions in turns.

        Raises what the class says, and with at_most_once what a commit raises (nothing is handed over then).
        """
        self._fetcher.start()
        await asyncio.sleep(0)  # a program that always finds records would keep the loop from everything else
        return await self._fetcher.drive(self._core.poll(max_records, timeout_ms))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, waiting for it (see `consumer_timeout_ms`)."""
        record = self._core.next_now()
        if record is None:
            self._fetcher.start()
            await asyncio.sleep(0)  # as in poll
            record = await self._fetcher.drive(self._core.next_record())
            if record is None:
                raise StopAsyncIteration
        return record

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed to topics."""
        self._core.assign(partitions)
        self._fetcher.tell()

    def subscribe(self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Read these topics, and no others, whatever was subscribed to before; in a group, its share of them.

        `topics`: one or more names, or patterns (`*` stands for any characters; in a group). A topic that stays loses
        nothing. Of one that goes nothing more is handed out; a member commits with its next poll, as `delivery` and
        `enable_auto_commit` say, calls `on_revoked`, and lets others have it. `listener` takes the place of
        on_assigned, on_revoked and on_lost. Raises InvalidError for what cannot be a name, after `assign()`, and for a
        pattern or a listener without a group.
        """
        subscription, told = self._checked_subscription(topics, listener)
        self._core.subscribe(subscription, told)
        self._fetcher.tell()

    async def unsubscribe(self) -> None:
        """Read nothing: commit what was handed out (if auto commit is on), call `on_revoked`, leave the group.

        Waits until the group knows, 5 seconds at most. Partitions given to `assign()` are read no more either.
        """
        await self._fetcher.drive(self._core.unsubscribe())

    async def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return await self._fetcher.drive(self._core.assignment())

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at an offset; whether it exists shows at the next fetch (`auto_offset_reset`)."""
        await self._fetcher.drive(self._core.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on at the log start of these partitions, or of all. One call per topic."""
        await self._fetcher.drive(self._core.seek_to("earliest", partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on at the high watermark of these partitions, or of all. One call per topic."""
        await self._fetcher.drive(self._core.seek_to("latest", partitions))

    async def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until `resume`."""
        await self._fetcher.drive(self._core.pause(partitions, is_paused=True))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Go on with them."""
        await self._fetcher.drive(self._core.pause(partitions, is_paused=False))

    async def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return await self._fetcher.drive(self._core.paused())

    # Offsets.

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out. May ask the service where to start."""
        return await self._fetcher.drive(self._core.position(partition))

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions of everything handed out, or the given offsets (of the next record to read).

        Raises InvalidError without a group, and what the service says.
        """
        await self._fetcher.drive(self._core.commit(offsets))

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """What a transaction's `send_offsets` asks: the offsets, with the leases that this consumer commits them under.

        Raises LeaseLostError for partitions that it does not own, InvalidError without a group.
        """
        return self._core.group_offsets(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """What the group has committed for a partition, by a call to the service."""
        return await self._client.call(self._core.committed(partition))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return await self._client.call(listed_offsets(partitions, "earliest"))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition: what the next record will get."""
        return await self._client.call(listed_offsets(partitions, "latest"))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return await self._client.call(offsets_at(timestamps))

    # The end.

    async def close(self, autocommit: bool = True, leave_group: bool | None = None) -> None:
        """Commit what was handed out (if auto commit is on and `autocommit`), leave the group, and end the tasks.

        Requests in flight are given up: they only read. May be called twice.
        A static member stays in the group until its session ends, unless `leave_group`.
        """
        if self._core.is_closed:
            return
        is_leaving = not self._is_static if leave_group is None else leave_group
        try:
            await self._fetcher.drive(self._core.close(is_committing=autocommit, is_leaving=is_leaving))
        finally:
            try:
                await self._fetcher.stop()
            finally:
                await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception, what was handed out last was not dealt with: it must come again.
        await self.close(autocommit=kind is None)
