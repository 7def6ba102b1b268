"""Claim and list a group before a call makes it, so that none comes into being uncounted and unlisted.

A first member, a commit without one, a transaction's offsets, a reset, a change of settings and a document make a group
where there is none. All of them come through here, before the write that makes it (docs/adr/0053).
"""

from penstock_core.ids import GroupName
from penstock_core.quotas.claim import Claim, ClaimKind, GroupClaim
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.claim_resource import claim_resource


def list_group(instance: Instance, window: UpdateWindow, principal: str, group: GroupName) -> GroupClaim | None:
    """Lists the group, and claims it if it is not listed. Gives the claim that this call has put, None if none.

    Make the group while the window is open: a claim without a group may be dropped after a time. Costs nothing if the
    instance knows the group. Else one update, and with a principal one read; then as `claim_resource`. Raises
    QUOTA_EXCEEDED if the group is not there and the principal may have no more.
    """
    if instance.group_cache.knows(group):
        return None
    claimed = None
    if principal and not instance.stores.memberships.is_registered(group):
        claim = Claim(kind=ClaimKind.GROUP, name=group, claimed_at_ms=instance.clock.now_ms())
        claim_resource(instance, window, principal, claim)
        claimed = GroupClaim(principal=principal, claimed_at_ms=claim.claimed_at_ms)
    window.check()
    instance.group_cache.register(group, claimed)
    return claimed
