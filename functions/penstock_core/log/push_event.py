"""A write of a head that had a push waiter, as the log table's stream tells of it: the next offset before and after."""

from dataclasses import dataclass

from penstock_core.ids import Offset, PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEvent:
    """One write of a head that had a push waiter. `next_offset` is None if the write has deleted the head."""

    key: PartitionKey
    old_next_offset: Offset
    next_offset: Offset | None

    @property
    def must_wake(self) -> bool:
        """True if subscriptions have something to do: records have come, or the partition is gone.

        Another write leaves the push waiter there, so a later one tells of it.
        """
        return self.next_offset is None or self.next_offset > self.old_next_offset
