"""Create a topic: its partitions' heads first, then its name, so that you can write to every topic that you can find.

1. A put writes a note of the topic.
2. One put per partition makes the heads.
3. One transaction removes the note and puts the name.

A creation that dies leaves the note. Retention turns it into the note of a deleted topic, then removes the heads. The
transaction fails once the note has changed. So no topic is ever visible without its heads, whatever the clocks say.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import (
    TOPIC_ID_BYTES,
    TopicName,
    new_topic_id,
    parse_own_topic_name,
    parse_topic_name,
)
from penstock_core.limits import TOPICS_MAX
from penstock_core.log.topic import (
    Topic,
    TopicConfig,
    alter_config,
    check_compaction,
    check_partitions,
    check_zones,
    note_of,
)
from penstock_core.quotas.quota import Claim, ClaimKind
from penstock_service.index.heads import create_heads
from penstock_service.index.reader import note_index_age
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.claim_resource import claim_resource


def create_topic(
    instance: Instance, name: str, partitions: int, config: Mapping[str, Any], principal: str = ""
) -> Topic:
    """As `create_any_topic`, but for names that are the service's own: these are INVALID_NAME."""
    return create_any_topic(instance, parse_own_topic_name(name), partitions, config, principal)


def create_any_topic(
    instance: Instance, name: str, partitions: int, config: Mapping[str, Any], principal: str = ""
) -> Topic:
    """The new topic, which counts as the principal's; as nobody's for "".

    Two reads and a put, one put per partition, then one transaction that makes it visible. `claim_topic` says what the
    claim costs. The first topic of an index costs one put more (`note_index_age`). Counting the topics scans the
    topics table, at most each 10 s. Raises INVALID_NAME, INVALID_REQUEST, INVALID_CONFIG, TOPIC_EXISTS, QUOTA_EXCEEDED,
    and STORAGE_UNAVAILABLE for a creation that was held up. Raises TOO_MANY_TOPICS if there are `TOPICS_MAX`. Creations
    of other instances in these 10 s may exceed that by their number.
    """
    window = UpdateWindow.open(instance.clock)
    topic = Topic(
        name=parse_topic_name(name),
        topic_id=new_topic_id(instance.entropy.random_bytes(TOPIC_ID_BYTES)),
        partitions=check_partitions(partitions),
        created_at_ms=instance.clock.now_ms(),
        config=alter_config(TopicConfig(), config),
    )
    check_zones(topic.config, len(instance.stores.zones))
    check_compaction(topic.config)
    if instance.stores.topics.get(topic.name) is not None:
        raise PenstockError(ErrorCode.TOPIC_EXISTS, f"topic {name!r} exists already")
    check_room(instance, topic.name)
    claim_topic(instance, window, principal, topic)
    return make_topic(instance, window, topic)


def make_topic(instance: Instance, window: UpdateWindow, topic: Topic) -> Topic:
    """Makes a topic that was checked and claimed: the steps above. Costs and raises as `create_any_topic`."""
    note_index_age(instance.stores.cursors, [topic])
    window.check()
    instance.stores.topics.begin(note_of(topic, topic.created_at_ms, is_being_created=True))
    create_heads(instance, window, topic, topic.all_heads())
    window.check()
    instance.stores.topics.create(topic)
    instance.topic_cache.forget(topic.name)
    return topic


def check_room(instance: Instance, name: TopicName) -> None:
    """Raises TOO_MANY_TOPICS for a topic beyond `TOPICS_MAX`. Reads the topics table, unless it has lately."""
    count = instance.topic_cache.count_for_one_more(TOPICS_MAX)
    if count >= TOPICS_MAX:
        raise PenstockError(
            ErrorCode.TOO_MANY_TOPICS,
            f"topic {name!r} is not created: there are {count} topics of {TOPICS_MAX} that are allowed, delete some",
            limit=TOPICS_MAX,
        )


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
