"""The item of a subscription.

```
groups table   pk "#subscriptions"   sk subscription name
subscription_id   S   in the keys of its lanes and states
version           N   rises with each change of this item: the condition of the next change
created_at_ms     N
is_paused         BOOL
topics            M   topic name -> S, the topic's id
target            S   JSON of the target, as the API shows it: without the secret
secret            S   of an HTTPS endpoint; missing for other targets
config            S   JSON of the settings that differ from their defaults
mirrored          M   topic id -> S, the id of its mirror; missing before the first answer of a mirror
```
The secret is here and nowhere else. Nothing encrypts it but the table itself.

The notes about a subscription: one for each of its topics, and one for states that have no subscription.

```
groups table   pk "#subscriptions#<topic id>"   sk subscription name
subscription_id   S
version           N     that of the subscription's item
concurrency       N     the number of its lanes
is_paused         BOOL

groups table   pk "#orphaned_states"   sk subscription id
name              S
since_ms          N
```
One query of a topic's key tells whom an append wakes. A transaction changes the notes with the subscription's item, so
they never differ from it.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.formats import check_item
from penstock_core.ids import SubscriptionId, SubscriptionName, TopicId, TopicName
from penstock_core.push.subscription import (
    OrphanedStates,
    Subscription,
    SubscriptionConfig,
    SubscriptionNote,
    new_subscription_config,
    subscription_config_to_json,
)
from penstock_core.push.targets.target import (
    BusTarget,
    FunctionTarget,
    HttpsTarget,
    QueueTarget,
    StageTarget,
    Target,
    TopicTarget,
    target_to_json,
)
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number, rewriting
from penstock_core.storage.keys import ORPHANED_STATES, SUBSCRIPTIONS, SUBSCRIPTIONS_OF

_SECRET = "secret"  # noqa: S105 - the name of the attribute
_MIRRORED = "mirrored"
_IS_SEEN = "subscription_id = :seen_id AND version = :seen_version"


def subscription_key(name: SubscriptionName) -> Item:
    """The key of the subscription's item."""
    return {"pk": {"S": SUBSCRIPTIONS}, "sk": {"S": name}}


def subscription_item(subscription: Subscription) -> Item:
    """The item stores no default setting, so that a default can change with the code."""
    defaults = subscription_config_to_json(SubscriptionConfig())
    config = subscription_config_to_json(subscription.config)
    item = {
        **subscription_key(subscription.name),
        "subscription_id": {"S": subscription.subscription_id},
        "version": number(subscription.version),
        "created_at_ms": number(subscription.created_at_ms),
        "is_paused": {"BOOL": subscription.is_paused},
        "topics": {"M": {name: {"S": topic_id} for name, topic_id in subscription.topics.items()}},
        "target": {"S": _json(target_to_json(subscription.target))},
        "config": {"S": _json({name: value for name, value in config.items() if value != defaults[name]})},
    }
    if isinstance(subscription.target, HttpsTarget):
        item[_SECRET] = {"S": subscription.target.secret}
    if subscription.mirrored:
        item[_MIRRORED] = {"M": {topic_id: {"S": mirror} for topic_id, mirror in subscription.mirrored.items()}}
    return item


def parse_subscription(item: Mapping[str, Any]) -> Subscription:
    """The inverse of `subscription_item`.

    Raises INVALID_CONFIG for a setting, and UNSUPPORTED_FORMAT for a target, that this release does not know.
    """
    check_item("subscription", item)
    return Subscription(
        name=SubscriptionName(item["sk"]["S"]),
        subscription_id=SubscriptionId(item["subscription_id"]["S"]),
        version=int(item["version"]["N"]),
        created_at_ms=int(item["created_at_ms"]["N"]),
        topics={TopicName(name): TopicId(topic_id["S"]) for name, topic_id in item["topics"]["M"].items()},
        target=_target(json.loads(item["target"]["S"]), item),
        is_paused=bool(item["is_paused"]["BOOL"]),
        config=new_subscription_config(json.loads(item["config"]["S"])),
        mirrored={TopicId(each): mirror["S"] for each, mirror in item[_MIRRORED]["M"].items()}
        if _MIRRORED in item
        else {},
    )


def subscription_put(subscription: Subscription) -> ConditionalPut:
    """Puts the item if there is none of that name."""
    return ConditionalPut(item=subscription_item(subscription), condition="attribute_not_exists(pk)")


def subscription_update(old: Subscription, new: Subscription) -> ConditionalUpdate:
    """Rewrites the item if it is still the one of `old`."""
    return rewriting(subscription_item(new), _IS_SEEN, _seen(old), optional=[_SECRET])


def subscription_delete(seen: Subscription) -> dict[str, Any]:
    """The arguments of a Delete, if the item is still the one that was seen."""
    return {
        "Key": subscription_key(seen.name),
        "ConditionExpression": _IS_SEEN,
        "ExpressionAttributeValues": _seen(seen),
    }


def _seen(subscription: Subscription) -> Item:
    return {":seen_id": {"S": subscription.subscription_id}, ":seen_version": number(subscription.version)}


def _target(document: Mapping[str, Any], item: Mapping[str, Any]) -> Target:
    """The stored target as it is. It was checked when it was set, and a stricter check must not hide it now."""
    match document:
        case {"lambda": str(arn)}:
            return FunctionTarget(arn=arn)
        case {"sqs": str(url)}:
            return QueueTarget(url=url)
        case {"event_bus": str(arn)}:
            return BusTarget(arn=arn)
        case {"https": {"url": str(url)}}:
            return HttpsTarget(url=url, secret=item[_SECRET]["S"])
        case {"topic": str(topic)}:
            return TopicTarget(topic=TopicName(topic))
        case {"stage": {"url": str()} as stage} if set(stage) <= {each.name for each in fields(StageTarget)}:
            return StageTarget(**stage)
    raise PenstockError(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"subscription {item['sk']['S']} has a target that this release does not know ({shown(sorted(document))}): use "
        "the release that wrote it, or a later one",
    )


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def notes_key(topic_id: TopicId) -> str:
    """The partition key of a topic's notes."""
    return f"{SUBSCRIPTIONS_OF}{topic_id}"


def note_key(topic_id: TopicId, name: SubscriptionName) -> Item:
    """The key of the note of one subscription."""
    return {"pk": {"S": notes_key(topic_id)}, "sk": {"S": name}}


def note_item(topic_id: TopicId, note: SubscriptionNote) -> Item:
    """The whole note."""
    return {
        **note_key(topic_id, note.name),
        "subscription_id": {"S": note.subscription_id},
        "version": number(note.version),
        "concurrency": number(note.concurrency),
        "is_paused": {"BOOL": note.is_paused},
        **({"is_mirror": {"BOOL": True}} if note.is_mirror else {}),
    }


def parse_note(item: Mapping[str, Any]) -> SubscriptionNote:
    """The inverse of `note_item`."""
    check_item("subscription_note", item)
    return SubscriptionNote(
        name=SubscriptionName(item["sk"]["S"]),
        subscription_id=SubscriptionId(item["subscription_id"]["S"]),
        version=int(item["version"]["N"]),
        concurrency=int(item["concurrency"]["N"]),
        is_paused=bool(item["is_paused"]["BOOL"]),
        is_mirror="is_mirror" in item,
    )


def note_update(topic_id: TopicId, note: SubscriptionNote) -> ConditionalUpdate:
    """Rewrites the note, or makes it. The condition holds always: a deletion takes the notes with the subscription."""
    return rewriting(
        note_item(topic_id, note),
        "attribute_not_exists(pk) OR subscription_id = :seen_id",
        {":seen_id": {"S": note.subscription_id}},
    )


def orphans_key(subscription_id: SubscriptionId) -> Item:
    """The key of the note of orphaned states."""
    return {"pk": {"S": ORPHANED_STATES}, "sk": {"S": subscription_id}}


def orphans_item(orphans: OrphanedStates) -> Item:
    """The whole note."""
    return {
        **orphans_key(orphans.subscription_id),
        "name": {"S": orphans.name},
        "since_ms": number(orphans.since_ms),
    }


def parse_orphans(item: Mapping[str, Any]) -> OrphanedStates:
    """The inverse of `orphans_item`."""
    check_item("orphaned_states", item)
    return OrphanedStates(
        subscription_id=SubscriptionId(item["sk"]["S"]),
        name=SubscriptionName(item["name"]["S"]),
        since_ms=int(item["since_ms"]["N"]),
    )
