"""The record at each offset of each partition, by the acknowledgements and the polls.

A poll counts whatever the outcome of its operation, for no client may ever see a wrong record (G2). A send counts if it
was acknowledged. The offsets of a maybe count only once a poll has proved them (`Ledger.settle`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.history.format import Acquired, Handling, Poll, Send, TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.model.operations import Operation


@dataclass(slots=True)
class PartitionOrder:
    """The first value known at each offset, the first offset known of each value, and all facts that disagree."""

    value_at: dict[int, Value] = field(default_factory=dict)
    offset_of: dict[Value, int] = field(default_factory=dict)
    other_values: dict[int, list[Value]] = field(default_factory=dict)
    other_offsets: dict[Value, list[int]] = field(default_factory=dict)
    last_read_offset: int = -1

    def add(self, offset: int, value: Value) -> None:
        """Add the fact that `value` is at `offset`."""
        if self.value_at.setdefault(offset, value) != value:
            _add_once(self.other_values.setdefault(offset, []), value)
        if self.offset_of.setdefault(value, offset) != offset:
            _add_once(self.other_offsets.setdefault(value, []), offset)

    def only_offset_of(self, value: Value) -> int | None:
        """Return the offset of `value`, or None if it is unknown or not the only one."""
        return None if value in self.other_offsets else self.offset_of.get(value)

    def offsets_of(self, value: Value) -> list[int]:
        """Return all offsets of `value`, in ascending order."""
        return sorted([self.offset_of[value], *self.other_offsets.get(value, [])])


class VersionOrder:
    """The order of every partition."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionOrder] = {}

    def __getitem__(self, where: TopicPartition) -> PartitionOrder:
        order = self.partitions.get(where)
        if order is None:
            order = self.partitions[where] = PartitionOrder()
        return order

    def observe(self, operation: Operation) -> None:
        for op in operation.ops:
            if type(op) is Poll:
                order = self[op.where]
                for offset, value in op.records:
                    order.add(offset, value)
                    if offset > order.last_read_offset:
                        order.last_read_offset = offset
            elif type(op) is Send and op.offset is not None and operation.is_ok:
                self[op.where].add(op.offset, op.value)
            elif type(op) is Acquired or type(op) is Handling:
                for offset, value in op.records:
                    self[op.where].add(offset, value)

    def inconsistent_offsets(self) -> Iterator[Anomaly]:
        """Find the offsets at which clients saw different records (G2)."""
        for where, order in self.partitions.items():
            for offset, others in order.other_values.items():
                values = (order.value_at[offset], *others)
                text = f"offset {offset} holds {' and '.join(map(repr, values))}"
                yield Anomaly(kind=Kind.INCONSISTENT_OFFSETS, where=where, text=text, offsets=(offset,), values=values)

    def duplicates(self) -> Iterator[tuple[Anomaly, int]]:
        """Find the values at more than one offset, with the number of copies."""
        for where, order in self.partitions.items():
            for value in order.other_offsets:
                offsets = tuple(order.offsets_of(value))
                text = f"{value!r} is at offsets {', '.join(map(str, offsets))}"
                anomaly = Anomaly(kind=Kind.DUPLICATE, where=where, text=text, offsets=offsets, values=(value,))
                yield anomaly, len(offsets)


def _add_once(known: list[Value] | list[int], new: Value | int) -> None:
    if new not in known:
        known.append(new)  # type: ignore[arg-type]  # both callers pass an element of the list's own type
