"""The consumer. consumer_core.py and fetch_buffer.py decide, async_fetcher.py does the I/O."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Self, Unpack

from penstock.api import calls
from penstock.consumer.async_fetcher import AsyncFetcher
from penstock.consumer.consumer_core import ConsumerCore
from penstock.consumer.listener import ConsumerRebalanceListener
from penstock.consumer.record_run import LookUp
from penstock.consumer.settings import ConsumerOptions, ConsumerSettings
from penstock.group.async_stages import AsyncStages, open_async_reading
from penstock.http.abilities import wall_clock_ns_of
from penstock.http.async_client import AsyncClient
from penstock.http.async_transport import AsyncTransport
from penstock.http.named_transport import TransportName
from penstock.model import ConsumerRecord, GroupOffset, OffsetAndTimestamp, TopicPartition
from penstock.model.fields import NamedClient, settings_of, shows_fields_of
from penstock.retry import NEVER_MS
from penstock.system import monotonic_ms, new_member_id, process_name
from penstock.telemetry.opening import open_notes
from penstock.workers.fork_guard import ForkGuard
from penstock_core.errors import PenstockError

_STAGES_POLL_MS = 1_000


class AsyncConsumer(NamedClient):
    """Reads records, which tasks of the event loop prefetch.

        async with AsyncConsumer("orders", group_id="billing") as consumer:
            async for record in consumer:
                await handle(record)

    The consumer retries failures that may pass, in the background, with full jitter. `poll` and iteration raise every
    other error when they have returned all records before it; the next call tries again. Use a consumer
    from one event loop, and read from one task. After a cancellation a call has returned nothing: its records come
    again.
    """

    @shows_fields_of(ConsumerSettings)
    def __init__(
        self,
        *topics: str,
        url: str | None = None,
        urls: Sequence[str] | None = None,
        region: str | None = None,
        transport: AsyncTransport | TransportName | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Opens no connection yet.

        `topics` are names, or in a group patterns: `*` stands for any characters. They may also be given to
        `subscribe()`, or partitions to `assign()`. `url` and `region` default to what penstock.configuration finds: the
        environment, else the local stack. `urls` are stages of which one mirrors the other: the consumer reads the one
        that takes appends, and goes on at the next once its topics were moved, or it is lost. `transport` replaces
        `auto`, as penstock.testing does. Raises NotConfiguredError, and InvalidError for an option. Needs the extra
        `penstock[async]`, unless a transport is given.
        """
        settings = settings_of(ConsumerSettings, "Consumer", options)
        self._settings = settings
        self._fork = ForkGuard("AsyncConsumer")
        opened = open_async_reading(url, urls, region, transport)
        self._stages = opened if isinstance(opened, AsyncStages) else None
        self._open(opened.carrier if isinstance(opened, AsyncStages) else opened)
        if topics:
            self._core.subscribe(topics)

    def _open(self, carrier: AsyncTransport) -> None:
        """Begin at the stage that is to be read."""
        settings = self._settings
        self._core = ConsumerCore(
            settings,
            member_id=new_member_id(),
            process_name=process_name(),
            now_ms=monotonic_ms,
            notes=open_notes(carrier, settings.group_id),
            learn=self._learn,
            wall_ns=wall_clock_ns_of(carrier),
        )
        self._client = AsyncClient(carrier, retry=settings.retry, job="read")
        self._fetcher = AsyncFetcher(self._core, self._client, max_in_flight=settings.max_in_flight, fork=self._fork)

    # Reading.

    async def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, at most `max_records`, by default `max_poll_records`. Empty if none came in `timeout_ms`.

        Partitions take turns. Raises the errors that the class describes. With at_most_once it also raises the errors
        of a commit; then it returns no records.
        """
        if self._stages is not None and self._stages.must_look():
            await self._follow(self._stages)
        self._fetcher.start()
        await asyncio.sleep(0)  # a program that always finds records would keep the loop from everything else  # sync:
        try:
            return await self._fetcher.drive(self._core.poll(max_records, timeout_ms))
        except PenstockError as error:
            if self._stages is None or not self._stages.heard(error, self._core.topics()):
                raise
            await self._follow(self._stages)
            return []

    def __aiter__(self) -> Self:
        """The consumer: iteration returns its records."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. Waits for it, at most `consumer_timeout_ms`."""
        if self._fork.is_forked:
            self._fork.check()
        record = self._core.next_now()
        if record is None and self._stages is not None:
            return await self._next_of_stages()
        if record is None:
            self._fetcher.start()
            await asyncio.sleep(0)  # as in poll  # sync:
            record = await self._fetcher.drive(self._core.next_record())
            if record is None:
                raise StopAsyncIteration
        return record

    async def _next_of_stages(self) -> ConsumerRecord:
        timeout_ms = self._settings.consumer_timeout_ms
        end_ms = NEVER_MS if timeout_ms is None else monotonic_ms() + timeout_ms
        while not self._core.is_stopped:
            if found := await self.poll(1, max(0, min(_STAGES_POLL_MS, end_ms - monotonic_ms()))):
                return found[0]
            if monotonic_ms() >= end_ms:
                break
        raise StopAsyncIteration

    async def _follow(self, stages: AsyncStages) -> None:
        """Go on at the stage that is to be read now, if that is another one, where the records that were returned end.

        A member commits as `close` does, and leaves. Its group goes on at its committed offsets.
        """
        is_lost, old, topics = stages.is_lost, self._core, self._core.topics()
        if not await stages.moves(topics):
            return
        old.note_returned()
        reading = old.reading()
        client, group = self._client, self._settings.group_id
        with suppress(PenstockError):  # the stage may be gone; then records come again
            await self._fetcher.drive(old.close(is_committing=not is_lost, is_leaving=not is_lost))
        await self._fetcher.stop()
        if group is not None and not is_lost:
            await stages.copy_offsets(client, group, topics)
        self._open(stages.carrier)
        self._core.read_on(reading, stages.ends)

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """A span of OpenTelemetry around your work on a record: `with consumer.processing(record): …`.

        It is a `process` span in the record's trace, or in the span that is current, and links to the record. Without a
        provider it does nothing.
        """
        notes = self._core.notes
        return nullcontext() if notes is None else notes.processing(record, is_received=True)

    # Topics and partitions.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed to topics."""
        self._fork.check()
        with self._fetcher.lock:
            self._core.assign(partitions)
            self._fetcher.wake_all()

    def subscribe(self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Read these topics, and no others; in a group, the consumer's share of them.

        `topics` is one or more names, or in a group patterns: `*` stands for any characters. The new subscription
        replaces the old one. A topic that is in both loses nothing. The consumer returns no more records of a topic
        that goes. A member commits these with its next poll, as `delivery` and `enable_auto_commit` say, calls
        `on_revoked`, and releases the partitions. `listener` replaces on_assigned, on_revoked and on_lost.

        Raises InvalidError for a bad name, after `assign()`, and for a pattern or a listener without a group.
        """
        self._fork.check()
        with self._fetcher.lock:
            self._core.subscribe(topics, listener)
            self._fetcher.wake_all()

    def subscription(self) -> list[str]:
        """The topics and patterns of the subscription, sorted."""
        return self._core.subscription()

    async def unsubscribe(self) -> None:
        """Read nothing: commit with auto commit, call `on_revoked`, and leave the group.

        Waits until the group has answered, 5 seconds at most. Partitions that you gave to `assign()` are read no more
        either.
        """
        await self._fetcher.drive(self._core.unsubscribe())

    async def assignment(self) -> list[TopicPartition]:
        """The partitions that the consumer reads, sorted."""
        return await self._fetcher.drive(self._core.assignment())

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at an offset. If the offset does not exist, the next fetch goes by `auto_offset_reset`."""
        await self._fetcher.drive(self._core.seek(partition, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on at the log start of these partitions, by default of all. One call per topic."""
        await self._fetcher.drive(self._core.seek_to("earliest", partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on at the high watermark of these partitions, by default of all. One call per topic."""
        await self._fetcher.drive(self._core.seek_to("latest", partitions))

    async def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`."""
        await self._fetcher.drive(self._core.pause(partitions, is_paused=True))

    async def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        await self._fetcher.drive(self._core.pause(partitions, is_paused=False))

    async def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return await self._fetcher.drive(self._core.paused())

    # Offsets.

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to return. It may ask the service where to start."""
        return await self._fetcher.drive(self._core.position(partition))

    def skipped_batches(self) -> dict[TopicPartition, int]:
        """The counts of undecodable batches that `on_undecodable` has skipped or handed to your function."""
        return dict(self._core.poison.passed_over)

    def skipped_expired(self) -> dict[TopicPartition, int]:
        """The counts of records that `skip_expired` has skipped because their time was over."""
        return {} if self._core.expiry is None else dict(self._core.expiry.skipped)

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions of all records that were returned, or the given offsets (of the next records to read).

        Raises InvalidError without a group and with exactly_once, LeaseLostError, and the service's errors.
        """
        await self._fetcher.drive(self._core.commit(offsets))

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """The offsets with the leases that this consumer commits them under, for a transaction's `send_offsets`.

        Raises LeaseLostError for partitions that it does not own, and InvalidError without a group.
        """
        self._fork.check()
        with self._fetcher.lock:
            return self._core.group_offsets(offsets)

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note that a transaction has committed these offsets. `Transaction` calls it."""
        with self._fetcher.lock:
            self._core.settled(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The offset that the group has committed for a partition, or None. One call to the service."""
        return await self._client.call(self._core.committed(partition))

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition. One call per topic."""
        return await self._client.call(calls.listed_offsets(partitions, "earliest"))

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition, that is, the offset of its next record. One call per topic."""
        return await self._client.call(calls.listed_offsets(partitions, "latest"))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return await self._client.call(calls.offsets_at(timestamps))

    # The end.

    def stop(self) -> None:
        """End iteration, and let every `poll` return an empty list at once. `close` then commits what you were handed.

        Call it from a signal handler or from another thread, too. A call to the service that is under way ends first.

            signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        """
        self._core.is_stopped = True
        self._fetcher.interrupt()

    @property
    def is_decrypting(self) -> bool:
        """True with the option `encryption`."""
        return self._settings.encryption is not None

    @property
    def is_deserializing(self) -> bool:
        """True with the option `value_deserializer` or `key_deserializer`."""
        return bool(self._settings.reading.deserializers)

    @property
    def is_stopped(self) -> bool:
        """`stop` was called: no more records come."""
        return self._core.is_stopped

    async def close(self, autocommit: bool = True, leave_group: bool | None = None) -> None:
        """Commit with auto commit, unless `autocommit` is false; leave the group; end the tasks.

        It gives up the fetches in flight, which only read. You may call it twice. A static member stays
        in the group until its session ends, unless you set `leave_group`.
        """  # sync:
        # sync: """Commit with auto commit, unless `autocommit` is false; leave the group; end the threads.
        # sync:
        # sync: Waits for requests in flight: up to `fetch_wait_ms` and a little. You may call it twice. A static member
        # sync: stays in the group until its session ends, unless you set `leave_group`.
        # sync: """
        if self._core.is_closed or self._fork.is_forked:
            return  # in a child by fork(), membership and connections are the parent's
        is_leaving = self._settings.group_instance_id is None if leave_group is None else leave_group
        try:
            await self._fetcher.drive(self._core.close(is_committing=autocommit, is_leaving=is_leaving))
        finally:
            try:
                await self._fetcher.stop()
            finally:
                await (self._client if self._stages is None else self._stages).close()

    async def _learn(self, look_up: LookUp) -> None:
        await asyncio.to_thread(look_up)  # sync: look_up()

    async def __aenter__(self) -> Self:
        """The consumer."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception the application has not dealt with the last records: they must come again.
        """Close it. After an exception it commits nothing: the records that were returned last come again."""
        await self.close(autocommit=kind is None)
