"""Create a share group, or change its topics and settings.

The place at which the group begins in a partition is its state item. A group that starts at the latest records gets
these items for all partitions before it becomes visible, and so does a topic that such a group adds. All other
partitions get theirs with their first acquire, at the beginning of the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock_core.acls.rule import Kind, Operation
from penstock_core.acls.rule_set import UNRESTRICTED, Access
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.groups.group import concurrent_update
from penstock_core.ids import GroupName, PartitionKey, TopicId, TopicName, parse_group_name
from penstock_core.limits import SHARE_BEGINS_MAX
from penstock_core.log.topic import Topic
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.quotas.quota import Claim, ClaimKind
from penstock_core.share.share_group import (
    SHARE_GROUP_ID_BYTES,
    STARTS,
    ShareGroup,
    alter_share_group_config,
    check_share_topics,
    new_share_group_config,
    new_share_group_id,
)
from penstock_core.share.share_state import ShareKey
from penstock_service.index.heads import announce_topics
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.quotas.claim_resource import claim_resource
from penstock_service.share.dead_letters.place_records import check_letter_topic
from penstock_service.share.share_partitions import partitions_of, states_of, succeeding
from penstock_service.topics.listing_groups import check_listed

_LATEST = STARTS[1]
_DEAD_LETTER = "dead_letter_topic"


def put_share_group(
    instance: Instance,
    name: str,
    topics: Sequence[str] | None,
    config: Mapping[str, Any],
    access: Access = UNRESTRICTED,
) -> tuple[ShareGroup, bool]:
    """The group as it is now, and whether it is new. Settings that are not in `config` stay as they are.

    `topics` None leaves the topics as they are. A topic that was made anew under its name is bound again.

    One read of the group, one of each topic, and one conditional write. With start=latest, one read of the heads for
    100 partitions, and one put for each partition of a new group. A topic that such a group adds takes one
    transaction for 99 partitions. To give up the dead-letter topic, one read of the states for 100
    partitions. Raises INVALID_NAME, INVALID_CONFIG, INVALID_REQUEST, INVALID_FILTER, UNKNOWN_TOPIC,
    NOT_AUTHORIZED, QUOTA_EXCEEDED for a new one, and CONCURRENT_UPDATE if somebody else changes the group meanwhile.
    """
    group_name = parse_group_name(name)
    access.require_either(Operation.CREATE, Operation.ALTER, Kind.SHARE_GROUP, name)
    window = UpdateWindow.open(instance.clock)
    found = instance.stores.share.get_group(group_name)
    check_share_rights(access, group_name, found, topics, config)
    group = _new(instance, group_name, topics, config) if found is None else _altered(instance, found, topics, config)
    check_share_topics(group.topics, group.config)
    check_listed(instance, group)
    if group.config.filter is not None:
        parse_filter(group.config.filter)
    if group.config.dead_letter_topic is not None:
        before = None if found is None else found.config.dead_letter_topic
        check_letter_topic(instance, group.config.dead_letter_topic, before)
    if found is not None and found.config.dead_letter_topic is not None and group.config.dead_letter_topic is None:
        _check_no_dead_letters(instance, found)
    if found is None:
        claim_resource(instance, window, access.principal.name, _claim(group))
    if group.config.start == _LATEST:
        bound = {} if found is None else found.topics
        added = [name for name, each in group.topics.items() if bound.get(name) != each]
        _begin_at_the_end(instance, group, added, is_new=found is None)
    if group != found:
        window.check()
        instance.stores.share.change_group(found, group)
    instance.share_group_cache.forget(name)
    with errors_maybe_applied(has_begun=group != found):
        announce_topics(instance, [*group.topics, group.config.dead_letter_topic])
    return group, found is None


def _claim(group: ShareGroup) -> Claim:
    return Claim(
        kind=ClaimKind.SHARE_GROUP,
        name=group.name,
        resource_id=group.share_group_id,
        claimed_at_ms=group.created_at_ms,
    )


def check_share_rights(
    access: Access,
    name: GroupName,
    found: ShareGroup | None,
    topics: Sequence[str] | None,
    config: Mapping[str, Any],
) -> None:
    """Raises NOT_AUTHORIZED, before any topic is looked up.

    Topics and dead-letter topic go together: a group moves records of the ones to the other. So a caller who changes
    one of them needs the rights on both.
    """
    access.require(Operation.CREATE if found is None else Operation.ALTER, Kind.SHARE_GROUP, name)
    if topics is None and _DEAD_LETTER not in config:
        return
    known = () if found is None else found.topics
    access.require(Operation.READ, Kind.TOPIC, *(known if topics is None else topics))
    dead_letter = config.get(_DEAD_LETTER, found.config.dead_letter_topic if found else None)
    if isinstance(dead_letter, str):
        access.require(Operation.WRITE, Kind.TOPIC, dead_letter)


def _new(instance: Instance, name: GroupName, topics: Sequence[str] | None, config: Mapping[str, Any]) -> ShareGroup:
    if topics is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"share group {name!r} does not exist yet: name its topics to create it"
        )
    settings = new_share_group_config(config)
    return ShareGroup(
        name=name,
        share_group_id=new_share_group_id(instance.entropy.random_bytes(SHARE_GROUP_ID_BYTES)),
        created_at_ms=instance.clock.now_ms(),
        topics=_bound(instance, topics),
        config=settings,
        order=tuple(map(TopicName, dict.fromkeys(topics))) if settings.is_listed else (),
    )


def _altered(
    instance: Instance, found: ShareGroup, topics: Sequence[str] | None, config: Mapping[str, Any]
) -> ShareGroup:
    settings = alter_share_group_config(found.config, config)
    altered = replace(
        found,
        topics=found.topics if topics is None else _bound(instance, topics),
        config=settings,
        order=_order(found, topics) if settings.is_listed else (),
    )
    altered = succeeding(altered, found)
    return altered if altered == found else replace(altered, version=found.version + 1)


def _order(found: ShareGroup, topics: Sequence[str] | None) -> tuple[TopicName, ...]:
    if topics is not None:
        return tuple(map(TopicName, dict.fromkeys(topics)))
    if found.order or len(found.topics) == 1:
        return found.ordered_topics
    raise PenstockError(
        ErrorCode.INVALID_CONFIG,
        f"topic_order=listed: share group {found.name!r} knows no order of its {len(found.topics)} topics; name all of "
        "them in `topics`, the highest first",
    )


def _bound(instance: Instance, topics: Sequence[str]) -> dict[TopicName, TopicId]:
    found = [instance.topic_cache.read_through(name) for name in topics]
    return {topic.name: topic.topic_id for topic in found}


def _begin_at_the_end(instance: Instance, group: ShareGroup, topics: Sequence[TopicName], *, is_new: bool) -> None:
    """Make the states of all partitions of these topics, where the log ends now.

    A topic that was created after the group has no older records: the group begins at its first one. So it misses no
    record of a topic that was made anew.
    """
    share = instance.stores.share
    for name in topics:
        topic: Topic = instance.topic_cache.get(name)
        if topic.created_at_ms > group.created_at_ms:
            continue
        keys = [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]
        begins = [
            (ShareKey(group.share_group_id, key.topic_id, key.partition), head.next_offset)
            for key, head in instance.stores.log.heads(keys).items()
        ]
        if is_new:
            instance.executor.map(lambda begin: share.create_state(*begin), begins).all_ok()
            continue
        # One after the other: each transaction holds the group's item.
        for at in range(0, len(begins), SHARE_BEGINS_MAX):
            if not share.begin_states(group.name, dict(begins[at : at + SHARE_BEGINS_MAX])):
                raise concurrent_update(f"share group {group.name}")


def _check_no_dead_letters(instance: Instance, group: ShareGroup) -> None:
    """Raises INVALID_CONFIG if records wait for the dead-letter topic: without it nobody would take them."""
    keys = [key for _, key in partitions_of(instance, group)]
    for key, state in states_of(instance, keys).items():
        if any(each.is_terminal for each in state.waits.values()):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"dead_letter_topic=null: records of partition {key.partition_key} wait for topic "
                f"{group.config.dead_letter_topic!r}; acquire once more, so that they get there, then try again",
            )
