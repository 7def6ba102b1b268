"""Claim a topic, or partitions of it, for the principal that makes them."""

from penstock_core.log.topic import Topic
from penstock_core.quotas.claim import Claim, ClaimKind
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.claim_resource import claim_resource


def claim_topic(instance: Instance, window: UpdateWindow, principal: str, topic: Topic) -> None:
    """Claims the new topic with its partitions. Costs and raises as `claim_resource`."""
    claim_resource(instance, window, principal, _claim(instance, ClaimKind.TOPIC, topic, topic.partitions))


def claim_partitions(instance: Instance, window: UpdateWindow, principal: str, old: Topic, new: Topic) -> None:
    """Claims the partitions that an alteration makes. Partitions that only open again are claimed already.

    An alteration that died may have claimed them before, so a claim never has more than the topic will have.

    One query if there are any, and as `claim_resource`. Of alterations of one topic at the same time, the claim may
    count one only, until the next.
    """
    end = new.head_count if new.opening is None else new.with_next_generation().head_count
    added = end - old.head_count
    if added <= 0 or not principal:
        return
    known = {each.kind: each for each in instance.stores.quotas.claims(principal) if each.resource_id == new.topic_id}
    kind = ClaimKind.TOPIC if ClaimKind.TOPIC in known else ClaimKind.PARTITIONS
    before = known[kind].partitions if kind in known else 0
    claim_resource(instance, window, principal, _claim(instance, kind, new, min(before + added, end)))


def _claim(instance: Instance, kind: ClaimKind, topic: Topic, partitions: int) -> Claim:
    return Claim(
        kind=kind,
        name=topic.name,
        resource_id=topic.topic_id,
        partitions=partitions,
        claimed_at_ms=instance.clock.now_ms(),
    )
