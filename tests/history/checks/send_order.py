"""The check that the sends of one process are in the log in the order in which it made them.

Finds nonmonotonic-send (between operations of a process, in order of their invokes) and int-nonmonotonic-send (within
one). A maybe may take effect at any later time, so no later send must come behind it. But the maybe must come behind
every send that was acknowledged before.
"""

from array import array
from collections.abc import Iterator
from itertools import pairwise

from tests.history.checks.version_order import VersionOrder
from tests.history.format import Function, Send, TopicPartition
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.ledger import Ledger
from tests.history.model.operations import Operation

_ROW = 5  # invoke line, first offset, last offset, line, whether acknowledged: flat, for a million of them


class SendOrder:
    """The offsets of every process's appends to every partition."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, TopicPartition], array[int]] = {}
        self._within: list[Anomaly] = []
        self._unresolved: list[tuple[Operation, TopicPartition, list[Send]]] = []

    def observe(self, operation: Operation) -> None:
        if operation.function not in (Function.SEND, Function.TXN) or operation.has_failed:
            return
        for where, sends in operation.sends_by_partition().items():
            offsets = [send.offset for send in sends if send.offset is not None]
            if operation.is_ok and len(offsets) == len(sends):
                self._add_row(operation, where, offsets)
                self._within.extend(_within(operation, where, offsets))
            else:
                self._unresolved.append((operation, where, sends))

    def anomalies(self, order: VersionOrder, ledger: Ledger) -> Iterator[Anomaly]:
        """Call `ledger.settle` first: the check looks up what maybes sent."""
        yield from self._within
        for operation, where, sends in self._unresolved:
            known = [_offset(operation, send, order, ledger) for send in sends]
            offsets = [offset for offset in known if offset is not None]
            if offsets:
                self._add_row(operation, where, offsets)
            yield from _within(operation, where, offsets)
        for (process, where), rows in self._rows.items():
            yield from self._between(process, where, rows, order, ledger)

    def _add_row(self, operation: Operation, where: TopicPartition, offsets: list[int]) -> None:
        rows = self._rows.get((operation.process, where))
        if rows is None:
            rows = self._rows[operation.process, where] = array("q")
        rows.extend((operation.invoke_line, offsets[0], offsets[-1], operation.line, operation.is_ok))

    def _between(
        self, process: str, where: TopicPartition, rows: "array[int]", order: VersionOrder, ledger: Ledger
    ) -> Iterator[Anomaly]:
        log = order[where]
        last_offset, last_line = -1, 0
        for row in sorted(range(0, len(rows), _ROW), key=rows.__getitem__):
            _, first, last, line, is_ok = rows[row : row + _ROW]
            if first <= last_offset:
                values = log.value_at[last_offset], log.value_at[first]
                # A producer's repeat gets its first offset as the answer (G4), which may lie far back.
                if not any(ledger.was_resent(where, value) for value in values):
                    yield Anomaly(
                        kind=Kind.NONMONOTONIC_SEND,
                        where=where,
                        text=f"{process} sent {values[1]!r} to offset {first} after {values[0]!r} to {last_offset}",
                        offsets=(last_offset, first),
                        values=values,
                        lines=(last_line, line),
                    )
            if is_ok:
                last_offset, last_line = last, line


def _offset(operation: Operation, send: Send, order: VersionOrder, ledger: Ledger) -> int | None:
    if operation.is_ok and send.offset is not None:
        return send.offset
    if ledger.was_resent(send.where, send.value):
        return None  # the record that was read may come from the other operation
    return order[send.where].only_offset_of(send.value)


def _within(operation: Operation, where: TopicPartition, offsets: list[int]) -> Iterator[Anomaly]:
    for before, after in pairwise(offsets):
        if after <= before:
            yield Anomaly(
                kind=Kind.INT_NONMONOTONIC_SEND,
                where=where,
                text=f"{operation.process} sent to offset {after} after {before} in one operation",
                offsets=(before, after),
                lines=(operation.line,),
            )
