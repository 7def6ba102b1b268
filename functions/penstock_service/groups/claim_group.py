"""Claim and list a group before a call makes it, so that none comes into being uncounted and unlisted.

A first member, a commit without one, a transaction's offsets, a reset, a change of settings and a document make a group
where there is none (docs/adr/0053). Each of these calls takes three steps:

```
list_group ▶ the write that makes the group ▶ keep_listed
```
A write that finds the group's item or lease makes no group. So commits say that they make none, and take these steps
only after a refusal. No instance remembers which groups are listed: another one may delete them at any time.
"""

from contextlib import suppress

from penstock_core.errors import PenstockError
from penstock_core.ids import GROUP_CLAIM_ID_BYTES, GroupName
from penstock_core.maybe_applied import errors_maybe_applied
from penstock_core.quotas.claim import GroupClaim
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.claim_resource import claim_resource


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
