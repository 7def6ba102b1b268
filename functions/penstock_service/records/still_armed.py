"""Look whether partitions are still armed for a reader that sleeps at their ends (docs/protocol/wake-ups)."""

from collections.abc import Mapping

from penstock_core.ids import Offset, PartitionKey
from penstock_core.log.index import is_armed_at
from penstock_service.instance.instance import Instance


def still_armed(instance: Instance, positions: Mapping[PartitionKey, Offset]) -> frozenset[PartitionKey]:
    """The partitions where the next append sends a wake-up, and where the reader at that position has missed none.

    The others have records for the reader, have no waiter, or are gone: it fetches them. One consistent read of all
    heads, a call for each 100. It writes nothing: a head at the reader's position keeps its waiter until an append.
    No read, and no partition, where the stage has no wake-ups.
    """
    if not positions or instance.stores.wake_ups.place is None:
        return frozenset()
    heads = instance.stores.log.heads(list(positions))
    return frozenset(key for key, head in heads.items() if is_armed_at(head, positions[key]))
