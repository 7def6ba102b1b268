"""Claim a group for the principal whose call makes it: a first member, a commit without one, or a reset."""

from penstock_core.ids import GroupName, parse_group_name
from penstock_core.quotas.claim import Claim, ClaimKind
from penstock_service.instance.instance import Instance
from penstock_service.quotas.claim_resource import claim_resource


def claim_group(instance: Instance, principal: str, name: str) -> None:
    """Claims the group if it is not there. One read, unless the instance knows the group; then as `claim_resource`.

    Raises INVALID_NAME, and QUOTA_EXCEEDED if the group is not there and the principal may have no more.
    """
    group: GroupName = parse_group_name(name)
    if not principal or instance.group_cache.knows(group) or instance.stores.memberships.is_registered(group):
        return
    claim = Claim(kind=ClaimKind.GROUP, name=group, claimed_at_ms=instance.clock.now_ms())
    claim_resource(instance, principal, claim)
