"""A producer tells OpenTelemetry of two things: the creation of records, and the requests that carried them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.model import TopicPartition
from penstock.model.share import ShareAcceptance
from penstock.producer.batching.accumulator import Entry
from penstock.producer.batching.producer_batch import ProducerBatch
from penstock.producer.transaction_core import TransactionCore
from penstock.system import wall_clock_ns
from penstock.telemetry.opening import find_telemetry
from penstock.telemetry.operations import Operation, OperationType
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_SPAN_LINKS_MAX
from penstock_core.records.codec import Headers

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext


class ProducerTracing:
    """Reports to the application's provider; without one it does nothing. `has_spans`: a span for each record."""

    def __init__(self, transport: object, *, has_spans: bool) -> None:
        self._telemetry = find_telemetry(transport)
        self._has_spans = has_spans
        self.is_on = self._telemetry is not None

    @contextmanager
    def creating(self, topic: str, headers: Headers) -> Iterator[tuple[Headers, "SpanContext | None"]]:
        """A record is made, and appended by the body: its headers with its context, and that context."""
        if self._telemetry is None:
            yield headers, None
            return
        with self._telemetry.creating(topic, headers, has_span=self._has_spans) as created:
            yield created

    def carried(self, entries: Sequence[Entry], results: Sequence[int | PenstockError], started_ns: int) -> None:
        """One try of a request has ended, with a result for each entry."""
        if self._telemetry is not None:
            ended_ns = wall_clock_ns()
            self._telemetry.report(
                _sent(entry.batches, result, started_ns, ended_ns)
                for entry, result in zip(entries, results, strict=True)
            )

    def committed(
        self,
        batches: Iterable[ProducerBatch],
        transaction: TransactionCore,
        started_ns: int,
        error: BaseException | None,
    ) -> None:
        """A transaction was committed with these batches, or its commit has failed.

        Its offsets and acceptances are a settlement for each group.
        """
        if self._telemetry is not None:
            ended_ns = wall_clock_ns()
            places: dict[tuple[str, int], list[ProducerBatch]] = {}
            for batch in batches:
                places.setdefault((batch.topic, batch.partition), []).append(batch)
            self._telemetry.report(_sent(each, error, started_ns, ended_ns) for each in places.values())
            self._telemetry.report(
                replace(each, started_ns=started_ns, ended_ns=ended_ns, error=error) for each in _settled(transaction)
            )


def _settled(transaction: TransactionCore) -> Iterator[Operation]:
    """The settlements of a transaction, without their times. An offset does not tell how many records are before it."""
    offsets: dict[str, set[TopicPartition]] = {}
    for offset in transaction.offsets:
        offsets.setdefault(offset.group, set()).add(offset.partition)
    for group, places in offsets.items():
        yield _settlement("commit", group, places, None)
    shared: dict[str, list[ShareAcceptance]] = {}
    for acceptance in transaction.acceptances:
        shared.setdefault(acceptance.group, []).append(acceptance)
    for group, accepted in shared.items():
        count = sum(end - start for each in accepted for start, end in each.offsets)
        yield _settlement("accept", group, {TopicPartition(each.topic, each.partition) for each in accepted}, count)


def _settlement(name: str, group: str, places: Iterable[TopicPartition], count: int | None) -> Operation:
    return Operation(
        name=name,
        type=OperationType.SETTLE,
        places=frozenset(places),
        count=count,
        started_ns=0,
        ended_ns=0,
        group=group,
    )


def _sent(batches: Sequence[ProducerBatch], result: object, started_ns: int, ended_ns: int) -> Operation:
    return Operation(
        name="send",
        type=OperationType.SEND,
        places=frozenset([TopicPartition(batches[0].topic, batches[0].partition)]),
        count=sum(batch.record_count for batch in batches),
        started_ns=started_ns,
        ended_ns=ended_ns,
        origins=[origin for batch in batches for origin in batch.origins][:SDK_SPAN_LINKS_MAX],
        error=result if isinstance(result, BaseException) else None,
    )
