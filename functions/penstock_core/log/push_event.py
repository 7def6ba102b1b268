"""A write that took the push waiter out of a head, as the log table's stream tells of it."""

from dataclasses import dataclass

from penstock_core.ids import Offset, PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEvent:
    """The partition has got records, and subscriptions wait for them. `next_offset` is the one after the write."""

    key: PartitionKey
    next_offset: Offset
