"""What a consumer reads: topics that it is subscribed to, alone or as a member of its group, or partitions given to it.

| reads                       | partitions are kept by        | starts                  | commits                   |
|-----------------------------|-------------------------------|-------------------------|---------------------------|
| topics, in a group          | rebalance.py: what it owns    | the leases' offsets     | under the leases          |
| topics, without a group     | assignment.py: all of them    | auto_offset_reset       | none                      |
| assigned partitions         | nobody: the application       | the group's, if any     | for the group, if any     |

What is read changes at once where there is no group. A member lets go of a partition whose topic it is subscribed to no
more as it does of one that the group wants back: with its next poll, after the commit.
"""

from collections.abc import Callable, Iterable

from penstock.arguments import check
from penstock.assignment import Assignment
from penstock.commits import Commits
from penstock.fetch_buffer import FetchBuffer
from penstock.listener import ConsumerSteps, Listener
from penstock.membership import State
from penstock.model import TopicPartition
from penstock.rebalance import Rebalance
from penstock.steps import Wait
from penstock_core.group import Subscription


class Subscriber:
    """`rebalance` is None without a group. `drop` stops reading partitions."""

    def __init__(
        self,
        buffer: FetchBuffer,
        assignment: Assignment,
        commits: Commits,
        rebalance: Rebalance | None,
        *,
        drop: Callable[[Iterable[TopicPartition]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.subscription = Subscription()
        self.is_member = False  # whether the group says which partitions are read
        self.changes = 0  # counted, so that a poll that waits looks again
        self._buffer = buffer
        self._assignment = assignment
        self._commits = commits
        self._rebalance = rebalance
        self._drop = drop
        self._now_ms = now_ms

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed."""
        check(
            self.subscription == Subscription(),
            "assign() on a consumer that is subscribed to topics: use one or the other, or unsubscribe() before",
        )
        self.changes += 1
        self._buffer.assign(partitions)

    def subscribe(self, subscription: Subscription, listener: Listener | None) -> None:
        """Read these topics, and no others. Raises InvalidError while partitions are assigned by hand."""
        is_assigned = self.subscription == Subscription() and self._buffer.assignment()
        check(
            not is_assigned, "subscribe() after assign(): use one or the other, or unsubscribe() before, or assign([])"
        )
        self.changes += 1
        self.subscription = subscription
        if self._rebalance is None:
            self._drop([each for each in self._buffer.assignment() if not subscription.selects(each.topic)])
            self._assignment.keep_to(subscription.topics)
            return
        if listener is not None:
            self._rebalance.listener = listener
        self.is_member = True
        self._assignment.is_group_start = False
        self._commits.membership = self._rebalance.membership
        self._rebalance.membership.subscribe(subscription, self._now_ms())

    def unsubscribe(self) -> ConsumerSteps[None]:
        """Read nothing. A member tells the application, and leaves; the group has heard of it then, if it answers."""
        try:
            if self._rebalance is not None and self.is_member:
                yield from self._rebalance.leave()
        finally:
            self.changes += 1
            self.subscription = Subscription()
            self.is_member = False
            self._drop(self._buffer.assignment())
            self._assignment.keep_to(())
            self._assignment.is_group_start = True
            self._commits.membership = None
        if self._rebalance is not None:
            membership = self._rebalance.membership
            while membership.state is State.LEAVING and self._now_ms() < membership.leave_until_ms:
                yield Wait(until_ms=membership.leave_until_ms)
