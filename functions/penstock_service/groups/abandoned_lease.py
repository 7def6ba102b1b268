"""Leases whose owner is gone: members write no release, so a lease may name an owner for as long as it exists.

A client without membership that commits takes such a lease away, so that the owner cannot come back and commit.
"""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.lease import HolderState, Lease, holder_of, next_lease_epoch
from penstock_core.ids import EPOCH_BYTES, GroupName, MemberName, PartitionKey, random_start
from penstock_service.instance.instance import Instance

_NO_MEMBER = MemberName("")


def abandoned_lease(instance: Instance, group: GroupName, partition: PartitionKey) -> Lease | None:
    """The lease if its owner is gone or no longer holds it, None if the owner may hold it.

    Ends the owner's session first if it has expired. Reads the lease, the group and the owner.
    """
    lease = instance.stores.groups.find_leases(group, [partition]).get(partition)
    if lease is None or lease.owner is None:
        return lease
    state = instance.stores.memberships.get_group(group)
    members = instance.stores.memberships.find_members(group, [lease.owner])
    owner = members.get(lease.owner)
    if owner is not None and owner.deadline_ms < instance.clock.now_ms():
        return lease if instance.stores.memberships.remove_member(group, owner) else None
    holder = holder_of(lease, _NO_MEMBER, state.epoch if state else 0, members)
    if holder is HolderState.GONE:
        return lease
    if holder is HolderState.SETTLED and state is not None:
        target = instance.group_cache.target_of(state)
        return lease if target is not None and target.owner_of(lease.partition) != lease.owner else None
    return None


def release_abandoned_lease(instance: Instance, group: GroupName, partition: PartitionKey) -> bool:
    """Take the lease away from an owner that is gone, and leave the committed offset as it is.

    False if the owner may hold it. Costs what `abandoned_lease` costs, and one conditional update.
    """
    lease = abandoned_lease(instance, group, partition)
    if lease is None:
        return False
    if lease.owner is None:
        return True
    epoch = next_lease_epoch(lease, random_start(instance.entropy.random_bytes(EPOCH_BYTES)))
    try:
        instance.stores.groups.release_lease(group, lease, epoch)
    except PenstockError as error:
        if error.code is not ErrorCode.CONCURRENT_UPDATE:
            raise
    return True
