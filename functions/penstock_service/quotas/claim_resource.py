"""Claim a resource for the principal that creates it, before it is made (docs/adr/0053).

```
put the claim ▶ count all claims of the principal ▶ within the limits: make the resource
                                                  ▶ above: look which resources are gone, drop their claims, count again
                                                  ▶ above still: take the claim back, QUOTA_EXCEEDED
```
Of creations at once, the one that counts last sees the claims of all others. So no race admits one too many. It may
refuse two where one had room: the caller tries again.

The resource is made in the window that was open before the claim, so within seconds of it. Claims are dropped only
after `CLAIM_GRACE_MS`, so a creation that slept is refused, and none escapes its count.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from penstock_core.errors import PenstockError
from penstock_core.ids import GroupName, SubscriptionName, TopicName
from penstock_core.limits import APPEND_MS_MAX, CLAIM_GRACE_MS, CLAIMS_CHECKED_MAX
from penstock_core.quotas.quota import Claim, ClaimKind, counts_of, exceeded
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow

_TOPICS = frozenset((ClaimKind.TOPIC, ClaimKind.PARTITIONS))


def claim_resource(instance: Instance, window: UpdateWindow, principal: str, claim: Claim) -> None:
    """Stores the claim if the principal's quotas leave room for it. The service itself, "", claims nothing.

    Open the window before you call, and make the resource while it is open: a claim without a resource is dropped by
    and by, and the resource would never be counted. One put, and two queries if the principal has limits. At the limit
    also a delete, and reads for half of the window's time at most. Raises QUOTA_EXCEEDED, and then nothing was made.
    """
    if not principal:
        return
    quotas, limits = instance.stores.quotas, instance.quota_cache.counts_of(principal)
    if not limits:
        quotas.put_claim(principal, claim)
        return
    before = {each.place: each for each in quotas.claims(principal)}.get(claim.place)
    quotas.put_claim(principal, claim)
    counts = counts_of(claim, is_new=before is None)
    claims = quotas.claims(principal)
    error = exceeded(limits, counts, claims)
    for some in _ripe(instance, claims, claim):
        if error is None or window.age_ms > APPEND_MS_MAX / 2:
            break
        gone = _drop_gone(instance, principal, some)
        claims = [each for each in claims if each.place not in gone]
        error = exceeded(limits, counts, claims)
    if error is not None:
        if before is None:
            quotas.drop_claim(principal, claim)
        else:
            quotas.put_claim(principal, before)
        raise error


def forget_claim(instance: Instance, principal: str, kind: ClaimKind, name: str, resource_id: str = "") -> None:
    """Drops the claim of a resource that this principal has deleted. One delete. Raises nothing: it only counts on.

    The resource may be made anew meanwhile. Its claim has another id, and stays.
    """
    if principal:
        with suppress(PenstockError):
            instance.stores.quotas.forget_claim(principal, kind, name, resource_id)


def _ripe(instance: Instance, claims: Sequence[Claim], new: Claim) -> Iterator[Sequence[Claim]]:
    """The claims whose resources should be there by now, `CLAIMS_CHECKED_MAX` at a time, from a random one on.

    They are of the new one's kind: a function may read the resources that it makes, and not all others.
    """
    now_ms, kinds = instance.clock.now_ms(), _TOPICS if new.kind in _TOPICS else {new.kind}
    known = [each for each in claims if each.kind in kinds and each.place != new.place]
    ripe = [each for each in known if now_ms - each.claimed_at_ms > CLAIM_GRACE_MS]
    if ripe:
        first = int.from_bytes(instance.entropy.random_bytes(4), "big") % len(ripe)
        ripe = [*ripe[first:], *ripe[:first]]
    for at in range(0, len(ripe), CLAIMS_CHECKED_MAX):
        yield ripe[at : at + CLAIMS_CHECKED_MAX]


def _drop_gone(instance: Instance, principal: str, claims: Sequence[Claim]) -> frozenset[tuple[ClaimKind, str, str]]:
    """The places of the claims whose resources are gone. The claims are dropped. One read for each, and a delete."""

    def is_dropped(claim: Claim) -> bool:
        if _is_there(instance, claim):
            return False
        instance.stores.quotas.drop_claim(principal, claim)
        return True

    found = instance.executor.map(is_dropped, claims).all_ok()
    return frozenset(claim.place for claim, is_gone in zip(claims, found, strict=True) if is_gone)


def _is_there(instance: Instance, claim: Claim) -> bool:
    """One read."""
    stores = instance.stores
    match claim.kind:
        case ClaimKind.TOPIC | ClaimKind.PARTITIONS:
            topic = stores.topics.get(TopicName(claim.name))
            return topic is not None and topic.topic_id == claim.resource_id
        case ClaimKind.GROUP:
            return stores.memberships.is_registered(GroupName(claim.name), claim.resource_id)
        case ClaimKind.SHARE_GROUP:
            group = stores.share.get_group(GroupName(claim.name))
            return group is not None and group.share_group_id == claim.resource_id
        case ClaimKind.SUBSCRIPTION:
            subscription = stores.push.get_subscription(SubscriptionName(claim.name))
            return subscription is not None and subscription.subscription_id == claim.resource_id
