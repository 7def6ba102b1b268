"""A write that took the push waiter out of a head, as the log table's stream tells of it."""

from dataclasses import dataclass

from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.index import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class PushEvent:
    """The partition has got records, and subscriptions wait for them. `next_offset` is the one after the write."""

    key: PartitionKey
    next_offset: Offset


def push_event(key: PartitionKey, before: Head, after: Head) -> PushEvent | None:
    """The event of an update of a head, None unless it took a push waiter out."""
    is_taken = before.has_push_waiter and not after.has_push_waiter
    return PushEvent(key=key, next_offset=after.next_offset) if is_taken else None
