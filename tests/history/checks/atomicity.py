"""The check that readers see a transaction as a whole, and once: torn-transaction and repeated-effect.

A reader reads one partition after the other, so one operation may show any part of a transaction. After an operation
that showed one of its records has ended, every later read must see all of them. If a partition is then said to end at
or before one of these records, the transaction is torn. The check uses only polls that tell where the log ended.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tests.history.checks.version_order import VersionOrder
from tests.history.format import Function, Poll, Send, Source, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.ledger import Ledger
from tests.history.model.operations import Operation


@dataclass(frozen=True, slots=True, order=True)
class _End:
    """The end of a partition, as a read that began at `start_ns` saw it."""

    start_ns: int
    end_offset: int
    line: int
    process: str


class Atomicity:
    """The transactions of several records, the parts of them that polls showed, and the source of each effect."""

    def __init__(self) -> None:
        self._transactions: list[Operation] = []
        self._shown: dict[tuple[TopicPartition, Value], tuple[int, int]] = {}  # by the first poll: its end, its line
        self._ends: dict[TopicPartition, list[_End]] = {}
        self._effects: dict[Source, dict[tuple[TopicPartition, Value], int]] = {}  # with the line of the send

    def observe(self, operation: Operation) -> None:
        for op in operation.ops:
            if type(op) is Poll and op.end_offset is not None and operation.is_ok:
                end = _End(operation.start_ns, op.end_offset, operation.line, operation.process)
                self._ends.setdefault(op.where, []).append(end)
                for _, value in op.records:
                    self._shown.setdefault((op.where, value), (operation.end_ns, operation.line))
            elif type(op) is Send and op.source is not None:
                self._effects.setdefault(op.source, {}).setdefault((op.where, op.value), operation.line)
        if operation.function is Function.TXN and not operation.has_failed and len(operation.sends) > 1:
            self._transactions.append(operation)

    def anomalies(self, order: VersionOrder, ledger: Ledger) -> Iterator[Anomaly]:
        """Call `ledger.settle` first."""
        least = {where: _least_from(sorted(ends)) for where, ends in self._ends.items()}
        for transaction in self._transactions:
            yield from self._torn(transaction, order, least)
        for source, effects in self._effects.items():
            found = [each for each in effects if ledger.has_taken_effect(*each)]
            if len(found) > 1:
                yield _repeated(source, found, [effects[each] for each in found])

    def _torn(
        self, transaction: Operation, order: VersionOrder, least: dict[TopicPartition, list[tuple[int, _End]]]
    ) -> Iterator[Anomaly]:
        shown = [
            (*self._shown[send.where, send.value], send)
            for send in transaction.sends
            if (send.where, send.value) in self._shown
        ]
        if not shown:
            return
        shown_ns, shown_line, first = min(shown, key=lambda each: each[:2])
        for send in transaction.sends:
            offset = order[send.where].only_offset_of(send.value)
            ends = least.get(send.where, [])
            at = bisect_right(ends, shown_ns, key=lambda each: each[0])
            if offset is None or at == len(ends) or ends[at][1].end_offset > offset:
                continue
            end = ends[at][1]
            topic, partition = first.where
            yield Anomaly(
                kind=Kind.TORN_TRANSACTION,
                where=send.where,
                text=f"{end.process} was told of an end at {end.end_offset}, without {send.value!r} at {offset}, "
                f"after {first.value!r} of the same transaction had been shown in {topic}/{partition}",
                offsets=(offset,),
                values=(send.value,),
                lines=(shown_line, end.line, transaction.line),
            )


def _least_from(ends: list[_End]) -> list[tuple[int, _End]]:
    """For each read, in order of their begins, the lowest end that this read or a later one saw."""
    least: list[tuple[int, _End]] = []
    lowest: _End | None = None
    for end in reversed(ends):
        lowest = end if lowest is None or end.end_offset < lowest.end_offset else lowest
        least.append((end.start_ns, lowest))
    return least[::-1]


def _repeated(source: Source, found: list[tuple[TopicPartition, Value]], lines: list[int]) -> Anomaly:
    topic, partition, offset, name = source
    what = f"{topic}/{partition} at {offset}" + (f" ({name})" if name else "")
    values = tuple(value for _, value in found)
    return Anomaly(
        kind=Kind.REPEATED_EFFECT,
        where=found[-1][0],
        text=f"what was made from {what} is there {len(found)} times, as {' and '.join(map(repr, values))}",
        values=values,
        lines=tuple(lines),
    )
