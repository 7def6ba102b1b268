"""The records that a subscription must deliver: handled, dead-lettered or removed before its place passes (G13)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock_core.ids import PartitionKey
from penstock_core.limits import PUSH_SLICE_MS
from penstock_core.push.batch import PushRecord
from tests.simulation.oracle.violation import expect
from tests.simulation.service.simulation import Simulation

Place = tuple[PartitionKey, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where a subscription may begin in each partition, and where it must at the latest. At 0 in all others."""

    first: dict[PartitionKey, int] = field(default_factory=dict)
    last: dict[PartitionKey, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class PushRecords:
    """The records of `topic` as subscription `name` sees them.

    `tags` are those that its filter wants, None for all records. `passed_ms` has the time at which its place passed a
    record: the answer of its target was stored.
    """

    simulation: Simulation
    name: str
    topic: str
    tags: Sequence[str] | None
    begins: Beginning
    handled: dict[PartitionKey, Counter[int]] = field(default_factory=dict)
    buried: dict[Place, str] = field(default_factory=dict)  # the reason that each dead letter tells
    passed_ms: dict[Place, float] = field(default_factory=dict)
    _values: dict[PartitionKey, list[str]] = field(default_factory=dict)

    def is_wanted(self, value: str) -> bool:
        """Whether the filter lets the record through."""
        return self.tags is None or value[-1] in self.tags

    def value(self, key: PartitionKey, offset: int) -> str:
        """The value that was appended there."""
        values = self._values.setdefault(key, [])
        if offset >= len(values):
            values[:] = [value for each in self.simulation.oracle.log.appends.get(key, ()) for value in each.values]
        return values[offset]

    def is_removed(self, key: PartitionKey, offset: int) -> bool:
        """Whether retention or a truncation has removed the record."""
        return offset < self.simulation.oracle.log_starts.get(key, 0)

    def check(self, records: Sequence[PushRecord]) -> None:
        """Check that the target may get these records."""
        for each in records:
            key, offset = each.place
            value = (each.record.value or b"").decode()
            is_there = self.simulation.oracle.log.names.get(key.topic_id) == self.topic
            expect(is_there and self.value(key, offset) == value, f"{self.name} got {value} as {offset} of {key}")
            expect(self.is_wanted(value), f"{self.name} got {value}, which its filter does not want")
            first = self.begins.first.get(key, 0)
            expect(offset >= first, f"{self.name} got {value} at {offset} of {key}, and begins at {first}")

    def check_times(self, records: Sequence[PushRecord]) -> None:
        """Check that none was over before the slice began that delivers them."""
        for each in records:
            decided_ms = self.simulation.scheduler.now_ms - PUSH_SLICE_MS
            self.simulation.oracle.expiries.check_delivered(self.name, (each.record.value or b"").decode(), decided_ms)

    def handle(self, key: PartitionKey, offset: int, *, is_ordered: bool) -> None:
        """The target handles the record. In ordered mode, none comes for the first time behind a later one."""
        handled = self.handled.setdefault(key, Counter())
        if is_ordered and offset not in handled:
            later = [other for other in handled if other > offset]
            expect(not later, f"{self.name} handled {key} at {later} before {offset}")
        handled[offset] += 1

    def bury(self, key: PartitionKey, offset: int, reason: str) -> None:
        """The record becomes a dead letter."""
        place = key, offset
        expect(place not in self.buried, f"{self.name} has dead-lettered {offset} of {key} twice")
        self.buried[place] = reason

    def passes(self, key: PartitionKey, offset: int) -> None:
        """Check that the subscription may be done with the record."""
        value = self.value(key, offset)
        expect(self._is_done(key, offset, value), f"{self.name} passes {value} at {offset} of {key}, and lost it")
        self.passed_ms.setdefault((key, offset), self.simulation.scheduler.now_ms)

    def check_all_done(self, *, is_exact: bool) -> None:
        """Check that nothing is left, and that nothing came twice if `is_exact`."""
        log = self.simulation.oracle.log
        for key, appends in log.appends.items():
            if log.names.get(key.topic_id) != self.topic:
                continue
            handled = self.handled.get(key, Counter())
            twice = [offset for offset, times in handled.items() if times > 1]
            expect(not is_exact or not twice, f"{self.name} handled {key} at {twice} twice, and nothing had failed")
            for offset in range(self.begins.last.get(key, 0), appends[-1].end_offset if appends else 0):
                value = self.value(key, offset)
                expect(self._is_done(key, offset, value), f"{self.name} has lost {value} at {offset} of {key}")

    def _is_done(self, key: PartitionKey, offset: int, value: str) -> bool:
        return (
            not self.is_wanted(value)
            or offset in self.handled.get(key, ())
            or (key, offset) in self.buried
            or self.is_removed(key, offset)
            or self.simulation.oracle.expiries.may_be_over(value)
        )
