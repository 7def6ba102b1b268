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
```
The secret is here and nowhere else. Nothing encrypts it but the table itself.
"""

import json
from collections.abc import Mapping
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.formats import check_item
from penstock_core.ids import SubscriptionId, SubscriptionName, TopicId, TopicName
from penstock_core.push.subscription import (
    Subscription,
    SubscriptionConfig,
    new_subscription_config,
    subscription_config_to_json,
)
from penstock_core.push.targets.target import (
    BusTarget,
    FunctionTarget,
    HttpsTarget,
    QueueTarget,
    Target,
    TopicTarget,
    target_to_json,
)
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, Item, number, rewriting
from penstock_core.storage.keys import SUBSCRIPTIONS

_SECRET = "secret"  # noqa: S105 - the name of the attribute
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
    raise PenstockError(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"subscription {item['sk']['S']} has a target that this release does not know ({shown(sorted(document))}): use "
        "the release that wrote it, or a later one",
    )


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), sort_keys=True)
