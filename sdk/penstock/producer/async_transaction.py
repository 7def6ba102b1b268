"""Transactions as users of the asynchronous producer see them; transaction_core.py decides."""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from penstock.model import RecordMetadata, TopicPartition
from penstock.producer.async_sender import AsyncSender
from penstock.producer.delivery import follow, resolve, resolve_quietly
from penstock.producer.producer_core import ProducerCore
from penstock.producer.tracing import ProducerTracing
from penstock.producer.transaction import LeaseHolder, LockHolder, group_offsets
from penstock.share_model import ShareRecord
from penstock.system import wall_clock_ms, wall_clock_ns
from penstock_core.records.codec import Headers


class AsyncTransaction:
    """`Transaction` for `async with`. A cancellation aborts it. If it interrupts the commit, the outcome stays open."""

    def __init__(self, core: ProducerCore, sender: AsyncSender, tracing: ProducerTracing) -> None:
        self._core = core
        self._tracing = tracing
        self._sender = sender
        self._transaction = core.new_transaction()
        self._accepted: list[tuple[LockHolder, list[ShareRecord]]] = []
        self._read: list[tuple[LeaseHolder, Mapping[TopicPartition, int]]] = []

    async def send(  # noqa: PLR0913 - as Producer.send
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        cancellable: bool = False,
    ) -> asyncio.Future[RecordMetadata]:
        """As `Transaction.send`. The future is done when the block has ended."""
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ms()
        timer = self._core.timers.timer(deliver_at_ms, delay_ms, cancellable=cancellable)
        with self._tracing.creating(topic, headers) as (told, origin):
            batch = await self._sender.drive(
                self._core.append_to(self._transaction, topic, value, key, told, partition, timestamp_ms, timer)
            )
            if origin is not None:
                batch.note_origin(origin)
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        follow(batch, sent, batch.record_count - 1, timestamp_ms)
        return sent

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str | LeaseHolder) -> None:
        """As `Transaction.send_offsets`. It is not awaited: the offsets travel with the commit."""
        self._transaction.add_offsets(group_offsets(offsets, group))
        if not isinstance(group, str):
            self._read.append((group, dict(offsets)))

    def accept(self, records: ShareRecord | Iterable[ShareRecord], consumer: LockHolder) -> None:
        """As `Transaction.accept`. It is not awaited: the acceptances travel with the commit."""
        chosen = [records] if isinstance(records, ShareRecord) else list(records)
        self._transaction.add_acceptances(consumer.acceptances(chosen))
        self._accepted.append((consumer, chosen))

    async def __aenter__(self) -> Self:
        """Begin the transaction."""
        await self._sender.drive(self._transaction.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or after an exception abort."""
        if error is not None:
            resolve_quietly(self._transaction.abort(error))
            return
        started_ns = wall_clock_ns()
        try:
            finished = await self._sender.drive(self._transaction.commit())
        except BaseException as failure:
            failed = self._transaction.abort(failure)
            resolve_quietly(failed)
            self._tracing.committed(failed, self._transaction, started_ns, failure)
            raise
        self._tracing.committed(finished, self._transaction, started_ns, None)
        for consumer, records in self._accepted:
            consumer.settled(records)
        for reader, offsets in self._read:
            reader.settled(offsets)
        resolve(finished)
