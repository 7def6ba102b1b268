"""The check of share groups (G11): one pass for the facts, then every rule for each group and partition."""

from collections.abc import Iterator

from tests.history.checks.truncation import Truncations
from tests.history.checks.version_order import VersionOrder
from tests.history.format import TopicPartition
from tests.history.model.anomaly import Anomaly
from tests.history.model.operations import Operation
from tests.history.queue.endings import check_dead_letters, check_unfinished, partitions_of
from tests.history.queue.facts import GroupFacts, ShareFacts
from tests.history.queue.key_order import check_key_order
from tests.history.queue.locks import GroupPartition, check_locks


class ShareGroups:
    """The share groups of a history."""

    def __init__(self, *, clock_skew_ns: int = 0) -> None:
        self._facts = ShareFacts()
        self._clock_skew_ns = clock_skew_ns

    def observe(self, operation: Operation) -> None:
        self._facts.observe(operation)

    def anomalies(self, order: VersionOrder, truncations: Truncations) -> Iterator[Anomaly]:
        """Call `ledger.settle` first: the rules look up where each record is."""
        for group, facts in self._facts.groups.items():

            def at(where: TopicPartition, group: str = group, facts: GroupFacts = facts) -> GroupPartition:
                return GroupPartition(
                    group=group, where=where, facts=facts, shares=self._facts, clock_skew_ns=self._clock_skew_ns
                )

            for where in sorted(facts.records):
                yield from check_locks(at(where))
                yield from check_key_order(at(where), order, truncations)
                yield from check_dead_letters(at(where), order)
            for topic, drained_ns in facts.drained_ns.items():
                for where in partitions_of(facts, order, topic):
                    yield from check_unfinished(at(where), drained_ns, order, truncations)
