"""One partition of one subscription, as the checks judge it."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.history.checks.version_order import VersionOrder
from tests.history.format import TopicPartition, Value
from tests.history.model.anomaly import Anomaly, Kind
from tests.history.push.facts import Invocation, PushFacts, SubscriptionFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribedPartition:
    """A partition of a subscription's topic, and the facts of both."""

    name: str
    where: TopicPartition
    facts: SubscriptionFacts
    pushes: PushFacts
    order: VersionOrder

    def handlings(self) -> Iterator[tuple[int, int, Value, Invocation]]:
        """Each time that a record was handled: its index in the invocation, its offset and its value."""
        for invocation in self.facts.answered(self.where):
            for index, (offset, value) in enumerate(invocation.records):
                yield index, offset, value, invocation

    def anomaly(self, kind: Kind, text: str, *records: tuple[int, Value], lines: tuple[int, ...] = ()) -> Anomaly:
        """An anomaly of these records."""
        return Anomaly(
            kind=kind,
            where=self.where,
            text=text,
            offsets=tuple(offset for offset, _ in records),
            values=tuple(value for _, value in records),
            lines=lines,
        )
