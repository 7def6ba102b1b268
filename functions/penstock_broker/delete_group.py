"""Delete a group: its item first, so that whoever joins from then on makes a new one, then the rest."""

from penstock_broker.broker import Broker
from penstock_broker.describe_group import live_members, unknown_group
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.group import GroupState
from penstock_core.ids import GroupName, parse_group_name

_EVERY_EPOCH = 10**10 - 1
_SWEEPS_MAX = 3


def delete_group(broker: Broker, group_name: str) -> None:
    """The group's offsets are gone once this returns. A read, some queries, and a delete for each item; what is
    left if it fails goes when it is tried again.

    Raises GROUP_NOT_EMPTY while members live, UNKNOWN_GROUP; CONCURRENT_UPDATE if the group is used meanwhile.
    """
    group = parse_group_name(group_name)
    if alive := live_members(broker, group):
        raise PenstockError(
            ErrorCode.GROUP_NOT_EMPTY, f"group {group} has {len(alive)} members: stop them before it is deleted"
        )
    state = broker.memberships.get_group(group)
    leases = broker.groups.leases(group)
    if state is None and not leases:
        broker.memberships.unregister(group)
        raise unknown_group(group)
    remove_group(broker, group, state)
    for _ in range(_SWEEPS_MAX):
        leases = broker.groups.leases(group)
        if not leases:
            broker.memberships.unregister(group)
            return
        for result in broker.parallel.map(lambda lease: broker.groups.delete_lease(group, lease), leases):
            if isinstance(result, PenstockError):
                raise result
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, f"group {group} is being used: stop its consumers, then delete it again"
    )


def remove_group(broker: Broker, group: GroupName, state: GroupState | None) -> None:
    """Takes away the group's item, if it is still as seen, its targets, and members that are over."""
    if state is not None:
        broker.memberships.delete_group(state)
    for result in broker.parallel.map(
        lambda member: broker.memberships.remove_member(group, member), broker.memberships.members(group)
    ):
        if isinstance(result, PenstockError):
            raise result
    broker.memberships.remove_targets(group, _EVERY_EPOCH)
