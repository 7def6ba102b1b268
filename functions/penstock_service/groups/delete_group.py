"""Delete a group: its item first, then the rest. A member that joins after that creates a new group."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.groups.group import GroupState
from penstock_core.ids import GroupName, parse_group_name
from penstock_core.limits import GROUP_DELETE_ROUNDS_MAX
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.quotas.quota import GroupClaim
from penstock_service.groups.claim_group import drop_group_claim, list_again
from penstock_service.groups.describe_group import live_members, unknown_group
from penstock_service.instance.instance import Instance
from penstock_service.ports.groups import MembershipStore
from penstock_service.ports.runtime import Executor

_EVERY_EPOCH = 10**10 - 1


def delete_group(instance: Instance, group_name: str) -> None:
    """The group's offsets are gone once this returns. A read, some queries, and a delete for each item.

    If it fails, some items are left; delete the group again to remove them. Raises GROUP_NOT_EMPTY while the group has
    live members, UNKNOWN_GROUP, and CONCURRENT_UPDATE if consumers use the group meanwhile.
    """
    group = parse_group_name(group_name)
    if alive := live_members(instance.stores.memberships, instance.clock, group):
        raise PenstockError(
            ErrorCode.GROUP_NOT_EMPTY, f"group {group} has {len(alive)} members: stop them before it is deleted"
        )
    state = instance.stores.memberships.get_group(group)
    leases = instance.stores.groups.leases(group)
    if state is None and not leases:
        unlist_group(instance, group)
        raise unknown_group(group)
    remove_group(instance.stores.memberships, instance.executor, group, state)
    has_begun = state is not None
    for _ in range(GROUP_DELETE_ROUNDS_MAX):
        with errors_maybe_applied(has_begun=has_begun):
            leases = instance.stores.groups.leases(group)
            if not leases:
                unlist_group(instance, group)
                return
        deleted = instance.executor.map(lambda lease: instance.stores.groups.delete_lease(group, lease), leases)
        has_begun |= deleted.may_have_begun
        with errors_maybe_applied(has_begun=has_begun):
            deleted.all_ok()
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE,
        f"group {group} is being used: stop its consumers, then delete it again",
        maybe_applied=has_begun,
    )


def unlist_group(instance: Instance, group: GroupName) -> None:
    """Take a deleted group off the list of groups, and drop its claim, unless a client has made it again.

    A client that makes a group looks at the list after that (`keep_listed`). So either the reads here find what the
    client has made, or the client lists the group after the delete here. A delete whose answer is lost may have been
    applied, so it is followed by the reads, too. A delete, a read and a query, and a delete of the claim.
    """
    try:
        claim = instance.stores.memberships.unregister(group)
    except PenstockError as error:
        if error.maybe_applied:
            _list_if_there(instance, group, None)
        raise
    if not _list_if_there(instance, group, claim) and claim is not None:
        drop_group_claim(instance, group, claim)


def _list_if_there(instance: Instance, group: GroupName, claim: GroupClaim | None) -> bool:
    """List the group again if it has a lease or an item. A read and a query."""
    leases, _ = instance.stores.groups.lease_page(group, None, "", 1)
    is_there = bool(leases) or instance.stores.memberships.get_group(group) is not None
    if is_there:
        list_again(instance, group, claim)
    return is_there


def remove_group(memberships: MembershipStore, executor: Executor, group: GroupName, state: GroupState | None) -> None:
    """Delete the group's item if it is still this `state`, then its members, whose sessions are over, and its targets.

    A conditional delete, a query, a delete for each member, and the deletes of the targets. Raises CONCURRENT_UPDATE.
    """
    if state is not None:
        memberships.delete_group(state)
    with errors_maybe_applied(has_begun=state is not None):
        members = memberships.members(group)
    with errors_maybe_applied(has_begun=state is not None or bool(members)):
        executor.map(lambda member: memberships.remove_member(group, member), members).all_ok()
        memberships.remove_targets(group, _EVERY_EPOCH)
