"""The check of push subscriptions (G13): one pass for the facts, then every rule for each partition."""

from collections.abc import Iterator

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import TopicPartition
from tests.history.model.anomaly import Anomaly
from tests.history.model.operations import Operation
from tests.history.push.copies import check_copies
from tests.history.push.endings import check_letters, check_unhandled
from tests.history.push.facts import PushFacts, SubscriptionFacts
from tests.history.push.figures import PushFigures, figures_of
from tests.history.push.handling_order import check_handlings
from tests.history.push.stops import check_stops
from tests.history.push.subscribed_partition import SubscribedPartition


class Pushes:
    """The push subscriptions of a history."""

    def __init__(self) -> None:
        self._facts = PushFacts()

    def observe(self, operation: Operation) -> None:
        self._facts.observe(operation)

    def figures(self) -> dict[str, PushFigures]:
        """How much each subscription has delivered."""
        return {name: figures_of(facts) for name, facts in self._facts.subscriptions.items()}

    def anomalies(self, order: VersionOrder, truncations: Truncations) -> Iterator[Anomaly]:
        """Call `ledger.settle` first: the rules look up where each record is."""
        for name, facts in self._facts.subscriptions.items():
            for where in _partitions_of(facts, order):
                partition = SubscribedPartition(name=name, where=where, facts=facts, pushes=self._facts, order=order)
                yield from check_handlings(partition)
                yield from check_stops(partition)
                yield from check_copies(partition)
                yield from check_letters(partition)
                if where[0] in facts.drained_ns:
                    yield from check_unhandled(partition, facts.drained_ns[where[0]], truncations)


def _partitions_of(facts: SubscriptionFacts, order: VersionOrder) -> list[TopicPartition]:
    """The partitions of which the history tells."""
    told = {*facts.invocations, *(where for where, _ in facts.letters)}
    return sorted(told | {where for where in order.partitions if where[0] in facts.push.topics})
