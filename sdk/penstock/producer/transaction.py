# Generated from async_transaction.py by `python -m tools.unasync`: change that file.
"""Transactions as users of the producer see them; transaction_core.py decides."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.arguments import checked_headers
from penstock.model import HeadersToSend, TopicPartition
from penstock.model.share import ShareRecord
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.delays import Timer
from penstock.producer.delivery import Delivery, resolve, resolve_quietly
from penstock.producer.producer_core import ProducerCore
from penstock.producer.sender import Sender
from penstock.producer.tracing import ProducerTracing
from penstock.producer.transaction_core import LeaseHolder, LockHolder, group_offsets
from penstock.system import NS_PER_MS, wall_clock_ns
from penstock_core.records.codec import Headers

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


class Transaction:
    """A `with` block whose records and offsets become visible together when it ends; if the block raises, never.

        with producer.transaction() as transaction:
            transaction.send("ledger", b"...", key=b"account 7")
            transaction.send_offsets({TopicPartition("payments", 0): 42}, consumer)

    The futures of its records have their offsets when the block has ended. If the commit is refused, the block raises
    FencedError or InvalidError (TRANSACTION_TOO_LARGE). FencedError means that another instance with the transactional
    id has begun, or that another member owns the partition of an offset. A transaction is not safe for several threads
    at once.
    """

    def __init__(self, core: ProducerCore, sender: Sender, tracing: ProducerTracing) -> None:
        self._core = core
        self._tracing = tracing
        self._sender = sender
        self._transaction = core.new_transaction()
        self._accepted: list[tuple[LockHolder, list[ShareRecord]]] = []
        self._read: list[tuple[LeaseHolder, Mapping[TopicPartition, int]]] = []

    def send(  # noqa: PLR0913 - callers name all but two
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: HeadersToSend = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        deliver_at_ms: int | None = None,
        delay_ms: int | None = None,
        cancellable: bool = False,
        expires_in_ms: int | None = None,
    ) -> Delivery:
        """As `Producer.send`, in the transaction. If records fill a request, it stages them and waits."""
        if timestamp_ms is None:
            timestamp_ms = self._core.wall_ns() // NS_PER_MS
        timer = self._core.timers.timer(deliver_at_ms, delay_ms, cancellable=cancellable)
        told = checked_headers(headers)
        if expires_in_ms is not None:
            told = self._core.timers.expiring(told, expires_in_ms, timer)
        # In turns, as Producer.send: no record overtakes one of its topic that waits for a data key or a schema.
        value, key, told = self._sender.formed(topic, value, key, told)
        with self._tracing.creating(topic, told) as (told, origin):
            return self._append(topic, value, key, told, partition, timestamp_ms, timer, origin)

    def _append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
        timer: Timer | None,
        origin: "SpanContext | None",
    ) -> Delivery:
        with self._sender.lock:
            batch = self._sender.drive(
                self._core.append_to(self._transaction, topic, value, key, headers, partition, timestamp_ms, timer)
            )
            if origin is not None:
                batch.note_origin(origin)
            index = batch.record_count - 1
            return Delivery(batch, index, timestamp_ms)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str | LeaseHolder) -> None:
        """Commit a group's offsets (of the next records to read) with the transaction.

        `group` is the consumer that has read the records: the commit counts only while it owns their partitions. It may
        be the name of a group without members instead.
        """
        entries = group_offsets(offsets, group)
        with self._sender.lock:
            self._transaction.add_offsets(entries)
        if not isinstance(group, str):
            self._read.append((group, dict(offsets)))

    def accept(self, records: ShareRecord | Iterable[ShareRecord], consumer: LockHolder) -> None:
        """Accept records of a share group with the transaction: they are finished if and only if it commits.

        `consumer` is the ShareConsumer that has them. It renews their locks until then. If the block raises,
        release them, or they come again when their locks end. A lost lock makes the commit raise LockLostError. Raises
        LockLostError and InvalidError for records that the consumer has no more.
        """
        chosen = [records] if isinstance(records, ShareRecord) else list(records)
        acceptances = consumer.acceptances(chosen)
        with self._sender.lock:
            self._transaction.add_acceptances(acceptances)
        self._accepted.append((consumer, chosen))

    def __enter__(self) -> Self:
        """Begin the transaction."""
        with self._sender.lock:
            self._sender.drive(self._transaction.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit, or after an exception abort."""
        if error is not None:
            self._abort(error)
            return
        started_ns = wall_clock_ns()
        try:
            with self._sender.lock:
                finished = self._sender.drive(self._transaction.commit())
        except BaseException as failure:  # a KeyboardInterrupt, too
            self._tracing.committed(self._abort(failure), self._transaction, started_ns, failure)
            raise
        self._tracing.committed(finished, self._transaction, started_ns, None)
        for consumer, records in self._accepted:
            consumer.settled(records)
        for reader, offsets in self._read:
            reader.settled(offsets)
        resolve(finished)

    def _abort(self, cause: BaseException) -> Sequence[ProducerBatch]:
        with self._sender.lock:
            finished = self._transaction.abort(cause)
        resolve_quietly(finished)
        return finished
