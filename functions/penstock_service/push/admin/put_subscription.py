"""Create a subscription, or change its topics, target and settings.

```
creation:    note the states as orphaned -> begin at the latest records -> share group -> subscription -> deliveries
alteration:                                 begin in added topics       -> share group -> subscription -> deliveries
```
If a creation dies before the subscription is there, the look of each five minutes removes what it has left. If it dies
after that, the look starts the deliveries, and so does a repeated PUT.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock_core.acls.rule import Kind, Operation
from penstock_core.acls.rule_set import UNRESTRICTED, Access
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import Offset, PartitionKey, SubscriptionName, TopicId, TopicName, parse_subscription_name
from penstock_core.limits import MIRROR_BACKOFF_MS_MAX, MIRROR_LANES, PUSH_LIST_MAX, PUSH_SUBSCRIPTIONS_MAX
from penstock_core.outcomes import errors_maybe_applied
from penstock_core.push.delivery import DeliveryKey, DeliveryState
from penstock_core.push.subscription import (
    LATEST,
    PARALLEL,
    SUBSCRIPTION_ID_BYTES,
    OrphanedStates,
    Subscription,
    alter_subscription_config,
    check_subscription_topics,
    new_subscription_config,
    new_subscription_id,
)
from penstock_core.push.targets.target import HttpsTarget, StageTarget, Target, TopicTarget, parse_target
from penstock_core.quotas.quota import Claim, ClaimKind
from penstock_service.index.heads import announce_topics
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.push.parallel.parallel_group import put_parallel_group
from penstock_service.push.subscriptions import start_deliveries
from penstock_service.quotas.claim_resource import claim_resource
from penstock_service.share.dead_letters.place_records import check_letter_topic

_HTTPS, _SECRET = "https", "secret"
_DEAD_LETTER = "dead_letter_topic"
_CARRYING = (_DEAD_LETTER, "filter")  # settings that tell which records go where


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionWish:
    """What a caller asks for. None leaves topics or target as they are, and so does a setting that is left out.

    The object of `target` is that of the API. An endpoint's secret may be left out once it is set, for the same URL.
    """

    topics: Sequence[str] | None = None
    target: Mapping[str, Any] | None = None
    settings: Mapping[str, Any]


def put_subscription(
    instance: Instance, name: str, wish: SubscriptionWish, access: Access = UNRESTRICTED
) -> tuple[Subscription, bool]:
    """The subscription as it is now, and whether it is new.

    A topic that was made anew under its name is bound again. A repeat changes nothing, and starts the deliveries again.

    One read, one of each topic, what the target's check costs, one transaction, and what `start_deliveries` does. A
    creation counts the subscriptions, by a query for each 100. With start=latest, each partition costs a read of its
    head (100 in a call) and a put. Raises INVALID_NAME, INVALID_REQUEST, INVALID_CONFIG, INVALID_FILTER, UNKNOWN_TOPIC,
    ACCESS_DENIED, NOT_AUTHORIZED, TOO_MANY_SUBSCRIPTIONS, QUOTA_EXCEEDED, and CONCURRENT_UPDATE if somebody else
    changes it meanwhile.
    """
    known = parse_subscription_name(name)
    access.require_either(Operation.CREATE, Operation.ALTER, Kind.SUBSCRIPTION, name)
    window = UpdateWindow.open(instance.clock)
    found = instance.stores.push.get_subscription(known)
    check_push_rights(access, known, found, wish)
    wanted = _new(instance, known, wish) if found is None else _altered(instance, found, wish)
    _check(instance, found, wanted)
    if found is None:
        _check_room(instance, known)
        claim_resource(instance, window, access.principal.name, _claim(wanted))
        window.check()
        instance.stores.push.note_orphans(
            OrphanedStates(subscription_id=wanted.subscription_id, name=known, since_ms=wanted.created_at_ms)
        )
    if wanted != found:
        _store(instance, window, found, wanted)
    with errors_maybe_applied(has_begun=wanted != found):
        announce_topics(instance, [*wanted.topics, wanted.config.dead_letter_topic])
        start_deliveries(instance, wanted)
    return wanted, found is None


def _claim(subscription: Subscription) -> Claim:
    return Claim(
        kind=ClaimKind.SUBSCRIPTION,
        name=subscription.name,
        resource_id=subscription.subscription_id,
        claimed_at_ms=subscription.created_at_ms,
    )


def check_push_rights(access: Access, name: str, found: Subscription | None, wish: SubscriptionWish) -> None:
    """Raises NOT_AUTHORIZED, before any topic is looked up.

    A subscription carries records of its topics to its target. So a caller who changes topics, target, dead-letter
    topic or filter, or raises the concurrency, needs the rights on all of them, as they will be.
    """
    access.require(Operation.CREATE if found is None else Operation.ALTER, Kind.SUBSCRIPTION, name)
    if found is not None and not _carries_other_records(found, wish):
        return
    known = () if found is None else found.topics
    access.require(Operation.READ, Kind.TOPIC, *(known if wish.topics is None else wish.topics))
    mirror = found.target.topic if found and isinstance(found.target, TopicTarget) else None
    dead_letter = found.config.dead_letter_topic if found else None
    if wish.target is not None:
        mirror = wish.target.get("topic")
    if _DEAD_LETTER in wish.settings:
        dead_letter = wish.settings[_DEAD_LETTER]
    access.require(Operation.WRITE, Kind.TOPIC, *(each for each in (mirror, dead_letter) if isinstance(each, str)))


def _carries_other_records(found: Subscription, wish: SubscriptionWish) -> bool:
    """True if the target may get more records by the change, or get them faster, or another target gets them."""
    if wish.topics is not None or wish.target is not None or not wish.settings.keys().isdisjoint(_CARRYING):
        return True
    lanes = wish.settings.get("concurrency", found.config.concurrency)
    return not isinstance(lanes, int) or lanes > found.config.concurrency  # null is the default: it may be more


def _new(instance: Instance, name: SubscriptionName, wish: SubscriptionWish) -> Subscription:
    if wish.topics is None or wish.target is None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"subscription {name!r} does not exist yet: give topics and target to create it"
        )
    target = _target(wish.target, None)
    of_mirror = {"backoff_ms_max": MIRROR_BACKOFF_MS_MAX, "concurrency": MIRROR_LANES}
    defaults = of_mirror if isinstance(target, StageTarget) else {}
    return Subscription(
        name=name,
        subscription_id=new_subscription_id(instance.entropy.random_bytes(SUBSCRIPTION_ID_BYTES)),
        created_at_ms=instance.clock.now_ms(),
        topics=_bound(instance, wish.topics),
        target=target,
        config=new_subscription_config({**defaults, **wish.settings}),
    )


def _altered(instance: Instance, found: Subscription, wish: SubscriptionWish) -> Subscription:
    altered = replace(
        found,
        topics=found.topics if wish.topics is None else _bound(instance, wish.topics),
        target=found.target if wish.target is None else _target(wish.target, found.target),
        config=alter_subscription_config(found.config, wish.settings),
    )
    return altered if altered == found else replace(altered, version=found.version + 1)


def _bound(instance: Instance, topics: Sequence[str]) -> dict[TopicName, TopicId]:
    found = [instance.topic_cache.read_through(name) for name in topics]
    return {topic.name: topic.topic_id for topic in found}


def _target(document: Mapping[str, Any], known: Target | None) -> Target:
    """The target of the API's object. An endpoint of the known URL without a secret keeps the one that is known.

    Another URL would get requests with a signature that the first one trusts: several tenants may share a host. The
    target's check refuses an endpoint without TLS where none is allowed.
    """
    endpoint = document.get(_HTTPS)
    if isinstance(known, HttpsTarget) and isinstance(endpoint, Mapping) and _keeps_secret(endpoint, known):
        document = {**document, _HTTPS: {**endpoint, _SECRET: known.secret}}
    return parse_target(document, is_http_allowed=True)


def _keeps_secret(endpoint: Mapping[str, Any], known: HttpsTarget) -> bool:
    return endpoint.get(_SECRET) is None and endpoint.get("url") == known.url


def _check(instance: Instance, found: Subscription | None, wanted: Subscription) -> None:
    """Raises what is wrong with topics, filter and target, before anything is stored."""
    check_subscription_topics(wanted.topics, wanted.target, wanted.config)
    if wanted.config.filter is not None:
        parse_filter(wanted.config.filter)
    if wanted.config.dead_letter_topic is not None:
        before = None if found is None else found.config.dead_letter_topic
        check_letter_topic(instance, wanted.config.dead_letter_topic, before)
    if isinstance(wanted.target, TopicTarget):
        instance.topic_cache.read_through(wanted.target.topic)
    else:
        instance.stores.targets.check(wanted.target)


def _check_room(instance: Instance, name: SubscriptionName) -> None:
    """Creations at the same time may exceed the bound by their number."""
    count, after = 0, ""
    while page := instance.stores.push.list_subscriptions(after, PUSH_LIST_MAX):
        count, after = count + len(page), page[-1].name
    if count >= PUSH_SUBSCRIPTIONS_MAX:
        raise PenstockError(
            ErrorCode.TOO_MANY_SUBSCRIPTIONS,
            f"subscription {name!r} is not created: there are {count} of {PUSH_SUBSCRIPTIONS_MAX} subscriptions that "
            "are allowed, delete some",
            limit=PUSH_SUBSCRIPTIONS_MAX,
        )


def _store(instance: Instance, window: UpdateWindow, found: Subscription | None, wanted: Subscription) -> None:
    bound = {} if found is None else found.topics
    added = [name for name, topic_id in wanted.topics.items() if bound.get(name) != topic_id]
    begins = ends_of(instance, added, wanted.created_at_ms) if wanted.config.start == LATEST else []
    window.check()  # states that come later than the look of deserted ones would stay
    if wanted.config.mode == PARALLEL:
        put_parallel_group(instance, wanted, begins)
    else:
        begin_deliveries(instance, wanted, begins)
    with errors_maybe_applied(has_begun=wanted.config.mode == PARALLEL):  # its group is there
        window.check()
        instance.stores.push.change_subscription(found, wanted)


def ends_of(instance: Instance, topics: Iterable[TopicName], since_ms: int) -> list[tuple[PartitionKey, Offset]]:
    """The end of each partition of these topics. One read for 100 partitions.

    A topic that was created after `since_ms`, the creation of its reader, has no older records: it is read whole. So
    the reader misses none of a topic that was made anew.
    """
    found: list[tuple[PartitionKey, Offset]] = []
    for name in topics:
        topic = instance.topic_cache.get(name)
        if topic.created_at_ms > since_ms:
            continue
        keys = [PartitionKey(topic.topic_id, number) for number in topic.all_partitions()]
        found += [(key, head.next_offset) for key, head in instance.stores.log.heads(keys).items()]
    return found


def begin_deliveries(
    instance: Instance, subscription: Subscription, begins: Sequence[tuple[PartitionKey, Offset]]
) -> None:
    """Store the states of an ordered subscription. One put for each.

    A state that is there stays: of a topic that the subscription has read before, or of a change at the same time.
    """
    states = [
        (
            DeliveryKey(subscription_id=subscription.subscription_id, topic_id=key.topic_id, partition=key.partition),
            DeliveryState(offset=offset),
        )
        for key, offset in begins
    ]
    instance.executor.map(lambda state: instance.stores.push.put_delivery(*state), states).all_ok()
