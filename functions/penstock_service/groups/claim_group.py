"""Claim and list a group before a call makes it, so that none comes into being uncounted and unlisted.

A first member, a commit without one, a transaction's offsets, a reset, a change of settings and a document make a group
where there is none (docs/adr/0053). Each of these calls takes three steps:

```
list_group ▶ the write that makes the group ▶ keep_listed
```
A write that finds the group's item or lease makes no group. So commits say that they make none, and take these steps
only after a refusal. No instance remembers which groups are listed: another one may delete them at any time.

Take the leases of a member's part of the target, once their owners have released them.

Leases whose owner is gone: members write no release, so a lease may name an owner for as long as it exists.

A client without membership that commits takes such a lease away, so that the owner cannot come back and commit.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupState
from penstock_core.groups.lease import TAKE_DECISIONS, HolderState, Lease, TakeDecision, holder_of, next_lease_epoch
from penstock_core.ids import (
    EPOCH_BYTES,
    GROUP_CLAIM_ID_BYTES,
    GroupName,
    MemberName,
    PartitionKey,
    TopicName,
    random_start,
)
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.quotas.quota import GroupClaim
from penstock_service.index.heads import announce_reader
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.claim_resource import claim_resource

_NO_MEMBER = MemberName("")


def list_group(instance: Instance, window: UpdateWindow, principal: str, group: GroupName) -> None:
    """Claims and lists the group if it is not listed.

    Make the group while the window is open: a claim without a group may be dropped after a time. One read. If the group
    is not listed, what `claim_resource` costs, and one update. Raises QUOTA_EXCEEDED if the principal may have no more.
    """
    if instance.stores.memberships.is_registered(group):
        return
    claim = _new_claim(instance, principal)
    if claim is not None:
        claim_resource(instance, window, principal, claim.of(group))
    window.check()
    if instance.stores.memberships.register(group, claim) != claim and claim is not None:
        drop_group_claim(instance, group, claim)  # another call has listed it at the same time


def keep_listed(instance: Instance, principal: str, group: GroupName) -> None:
    """Lists and claims the group again if a deletion has taken it off the list since `list_group`.

    Call it after a write that may have made the group. A deletion looks for such writes after it has unlisted the group
    (`unlist_group`). So either it finds the write, or the read here finds the group unlisted. A second deletion may
    have found the write and listed the group, while only the first one knows its claim, and drops it: the group needs
    another claim. The write is made, so the claim counts whatever the quota says, and the next creation is refused. One
    read, and after a deletion what `list_again` costs.
    """
    memberships = instance.stores.memberships
    is_covered = memberships.is_claimed if principal else memberships.is_registered
    with errors_maybe_applied():
        if not is_covered(group):
            list_again(instance, group, _new_claim(instance, principal))


def list_again(instance: Instance, group: GroupName, claim: GroupClaim | None) -> None:
    """Lists a group that is there under this claim, or under one by which another call has listed it meanwhile.

    The claim is put after that, since a claim of a group that is not listed may be dropped. An update and a put.
    """
    if instance.stores.memberships.register(group, claim) == claim:
        if claim is not None:
            instance.stores.quotas.put_claim(claim.principal, claim.of(group))
    elif claim is not None:
        drop_group_claim(instance, group, claim)


def drop_group_claim(instance: Instance, group: GroupName, claim: GroupClaim) -> None:
    """Drops a claim that no list names any more. One delete. Raises nothing: it only counts on."""
    with suppress(PenstockError):
        instance.stores.quotas.drop_claim(claim.principal, claim.of(group))


def _new_claim(instance: Instance, principal: str) -> GroupClaim | None:
    """None for the service itself, which claims nothing."""
    if not principal:
        return None
    claim_id = instance.entropy.random_bytes(GROUP_CLAIM_ID_BYTES).hex()
    return GroupClaim(principal=principal, claim_id=claim_id, claimed_at_ms=instance.clock.now_ms())


def acquire_leases(
    instance: Instance,
    state: GroupState,
    name: MemberName,
    wanted: Mapping[PartitionKey, TopicName],
    principal: str,
) -> tuple[Sequence[Lease], bool]:
    """The leases taken, and whether `state` has turned out to be outdated.

    `wanted` has 100 partitions at most, all of the member's part at the group's epoch. The member's item must already
    say that the member knows that epoch. One read of the leases and one of their owners, in this order (`holder_of`),
    and one conditional update for each lease that is free. The next heartbeat repeats an update that fails, and if the
    failed update took the lease, takes it again. The first owner of a lease may make a group that was deleted
    meanwhile: it costs what `keep_listed` costs.
    """
    if not wanted:
        return (), False
    leases = instance.stores.groups.find_leases(state.name, [*wanted])
    owners = {lease.owner for lease in leases.values() if lease.owner not in (None, name)}
    members = instance.stores.memberships.find_members(state.name, sorted(filter(None, owners))) if owners else {}
    decisions = {key: TAKE_DECISIONS[holder_of(leases.get(key), name, state.epoch, members)] for key in wanted}

    def take(seen: Lease) -> Lease:
        epoch = next_lease_epoch(seen, random_start(instance.entropy.random_bytes(EPOCH_BYTES)))
        return instance.stores.groups.take_lease(state.name, seen, name, epoch)

    free = [
        leases.get(key) or Lease(topic=wanted[key], partition=key)
        for key, each in decisions.items()
        if each is TakeDecision.TAKE
    ]
    results = instance.executor.map(take, free)
    if any(lease.epoch == 0 for lease in free):
        keep_listed(instance, principal, state.name)
    taken = results.ok
    begun = [lease for lease in taken if lease.offset is None]  # now, as the group is listed: retention reads the list
    instance.executor.map(lambda lease: announce_reader(instance, lease.topic, lease.partition), begun).all_ok()
    instance.telemetry.count("leases_acquired", len(taken))
    is_outdated = TakeDecision.LOOK_AGAIN in decisions.values() or any(
        error.code is ErrorCode.CONCURRENT_UPDATE for error in results.errors
    )
    return taken, is_outdated


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
