"""The look at the partitions on which a member sleeps, if they are its own and it may read them."""

from collections.abc import Mapping

from penstock_core.acls.rule_set import Access
from penstock_core.errors import PenstockError
from penstock_core.groups.group import GroupState
from penstock_core.ids import MemberName, Offset, PartitionKey
from penstock_core.log.index import is_armed_at
from penstock_service.instance.instance import Instance


def look_at_watched(
    instance: Instance, state: GroupState, name: MemberName, watched: Mapping[PartitionKey, Offset], access: Access
) -> frozenset[PartitionKey] | None:
    """The watched partitions on which the member may sleep on. None if it watches none, or if the look failed.

    The target tells the topics of the member's partitions. Of other partitions, and of topics that the caller may not
    read, the answer tells nothing: the member fetches them, and learns what it may know. One read of the heads, and one
    query of the target unless it is remembered. An error does not fail the heartbeat.
    """
    if not watched:
        return None
    try:
        target = instance.group_cache.target_of(state)
        own = {} if target is None else target.part_of(name)
        readable = {*access.readable({own[key] for key in watched if key in own})}
        seen = {key: offset for key, offset in watched.items() if key in own and own[key] in readable}
        return still_armed(instance, seen)
    except PenstockError:
        instance.telemetry.count("watched_looks_failed")
        return None


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
