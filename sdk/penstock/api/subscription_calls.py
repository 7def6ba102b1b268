"""The calls by which operators manage subscriptions. Every call is one request, unless its docs say more."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.api.calls import all_pages, pages, topic_path
from penstock.api.share_group_calls import list_share_groups
from penstock.arguments import check, check_mapping, checked_name, checked_topic
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.model import GroupPlace, MovedPartition, MovedTopic, PromotedPartition, PromotedTopic
from penstock.model.fields import value_of
from penstock.model.push import (
    Subscription,
    SubscriptionDescription,
    SubscriptionLanes,
    SubscriptionPartition,
    TopicUser,
    TopicUserCounts,
)
from penstock.model.share import ShareGroup
from penstock_core.ids import parse_subscription_name

_TARGET_EXAMPLE = "{'lambda': 'arn:aws:lambda:eu-west-1:123456789012:function:pack'}"
_CONFIG_EXAMPLE = "{'batch_records': 10, 'retry': {'attempts_max': 3}}"
_SETTINGS = (
    "mode",
    "start",
    "batch_records",
    "batch_window_ms",
    "concurrency",
    "filter",
    "retry",
    "bisect",
    "dead_letter_topic",
)


def put_subscription(
    name: str,
    topics: str | Iterable[str] | None,
    target: Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
) -> Calls[Subscription]:
    """Create the subscription, or change what is given."""
    body: dict[str, Any] = {}
    if topics is not None:
        names = [topics] if isinstance(topics, str) else list(topics)
        check(bool(names), f"topics={topics!r:.100}: give one or more")
        body["topics"] = [checked_topic(each) for each in names]
    if target is not None:
        check_mapping("target", target, _TARGET_EXAMPLE)
        body["target"] = dict(target)
    if config is not None:
        check_mapping("config", config, _CONFIG_EXAMPLE)
        for setting in config:
            check(setting in _SETTINGS, f"config has {setting!r:.100}: known settings are {', '.join(_SETTINGS)}")
        body |= config
    answer = yield json_request("PUT", subscription_path(name), body=body, is_repeatable=True)
    return _subscription(answer)


def create_mirror(name: str, topics: str | Iterable[str], stage: Mapping[str, str]) -> Calls[Subscription]:
    """Let another stage mirror the topics."""
    told = {field: value for field, value in stage.items() if value}
    answer = yield from put_subscription(name, topics, {"stage": told}, {"start": "earliest", "mode": "ordered"})
    return answer


def move_topic(name: str, mirror: str, *, is_dry_run: bool = False) -> Calls[MovedTopic]:
    """End the topic for its mirror. A repeat tells how far the mirror is."""
    body = {"mirror": mirror, "dry_run": is_dry_run}
    answer = yield json_request("POST", f"{topic_path(name)}/move", body=body, is_repeatable=True)
    return value_of(MovedTopic, {**answer, "partitions": [value_of(MovedPartition, e) for e in answer["partitions"]]})


def reopen_topic(name: str, move: int, *, is_mirror_lost: bool = False) -> Calls[None]:
    """Let a moved topic take appends again, once its mirror has refused the move."""
    body = {"reopen": move, "mirror_lost": is_mirror_lost}
    yield json_request("POST", f"{topic_path(name)}/move", body=body, is_repeatable=True)


def return_topic(name: str, move: int, mirror: str, topic_id: str, source: str) -> Calls[None]:
    """Let a moved topic mirror the one that it was moved to."""
    body = {"return": move, "mirror": mirror, "topic_id": topic_id, "source": source}
    yield json_request("POST", f"{topic_path(name)}/move", body=body, is_repeatable=True)


def promote_topic(
    name: str, moved: MovedTopic | None = None, topic_id: str = "", *, is_dry_run: bool = False
) -> Calls[tuple[PromotedTopic, bool]]:
    """End the mirror of the topic, after a move only where it is equal. A repeat answers as the first call."""
    body: dict[str, Any] | None = {"dry_run": True} if is_dry_run else None
    if moved is not None:
        body = {
            "move": moved.move,
            "mirror": moved.mirror,
            "topic_id": topic_id,
            "source": dict(moved.source),
            "partitions": [
                {"partition": each.partition, "log_id": each.log_id, "end_offset": each.end_offset}
                for each in moved.partitions
            ],
        }
    answer = yield json_request("POST", f"{topic_path(name)}/promote", body=body, is_repeatable=True)
    groups, share_groups = (
        [
            value_of(GroupPlace, {"group": of_group["group"], **each})
            for of_group in answer.get(kind, ())
            for each in of_group["offsets"]
        ]
        for kind in ("groups", "share_groups")
    )
    partitions = [value_of(PromotedPartition, each) for each in answer["partitions"]]
    told = {**answer, "partitions": partitions, "groups": groups, "share_groups": share_groups}
    return value_of(PromotedTopic, told), answer["is_promoted"]


def refuse_move(name: str, move: int) -> Calls[None]:
    """Let a move promote nothing."""
    yield json_request("POST", f"{topic_path(name)}/promote", body={"refuse": move}, is_repeatable=True)


def resync_topic(name: str) -> Calls[None]:
    """Remove the mirrored topic. Not repeatable: a second call could meet the topic that was made anew."""
    yield json_request("POST", f"{topic_path(name)}/resync")


def list_subscriptions() -> Calls[list[Subscription]]:
    """All subscriptions, sorted by name. One request per page."""
    return [_subscription(each) for each in (yield from all_pages("/v1/subscriptions", "subscriptions"))]


def describe_subscription(name: str) -> Calls[SubscriptionDescription]:
    """The subscription and its partitions. One request per page."""
    found = yield from pages(subscription_path(name))
    partitions = (value_of(SubscriptionPartition, each) for page in found for each in page["partitions"])
    return SubscriptionDescription(
        subscription=_subscription(found[-1]),
        lanes=value_of(SubscriptionLanes, found[-1]["lanes"]),
        partitions=tuple(sorted(partitions, key=lambda each: (each.topic, each.partition))),
        dead_lettered=found[-1].get("dead_lettered"),
    )


def pause_subscription(name: str) -> Calls[Subscription]:
    """Begin no further delivery."""
    return _subscription((yield json_request("POST", f"{subscription_path(name)}/pause", is_repeatable=True)))


def resume_subscription(name: str) -> Calls[Subscription]:
    """Go on where the subscription was."""
    return _subscription((yield json_request("POST", f"{subscription_path(name)}/resume", is_repeatable=True)))


def delete_subscription(name: str) -> Calls[None]:
    """Delete the subscription. Not repeatable: a second delete could meet a new one of the name."""
    yield json_request("DELETE", subscription_path(name))


def topic_users(topic: str) -> Calls[list[TopicUser]]:
    """The share groups and subscriptions that use the topic. One request per page of the two lists."""
    name = checked_topic(topic)
    groups = yield from list_share_groups()
    return users_among(name, groups, (yield from list_subscriptions()))


def count_topic_users(topic: str) -> Calls[TopicUserCounts]:
    """The numbers of users, hidden ones among them. One request."""
    answer = yield json_request("GET", f"{topic_path(topic)}/users", is_repeatable=True)
    return value_of(TopicUserCounts, answer)


def users_among(topic: str, groups: Iterable[ShareGroup], subscriptions: Iterable[Subscription]) -> list[TopicUser]:
    """Those that use the topic, each with its uses."""
    users: list[TopicUser] = []
    for group in groups:
        users += _uses(topic, "share group", group.group, group.topics, group.config["dead_letter_topic"])
    for each in subscriptions:
        letters, target = each.config["dead_letter_topic"], each.target.get("topic")
        users += _uses(topic, "subscription", each.name, each.topics, letters, target)
    return users


def _uses(
    topic: str, kind: str, name: str, topics: Sequence[str], letters: str | None, target: str | None = None
) -> Iterator[TopicUser]:
    found = (("reads", topic in topics), ("dead letters", topic == letters), ("target", topic == target))
    return (TopicUser(kind=kind, name=name, use=use) for use, is_so in found if is_so)


def subscription_path(name: str) -> str:
    """`/v1/subscriptions/{name}`. Raises InvalidError for a bad name."""
    return f"/v1/subscriptions/{checked_name(parse_subscription_name, name)}"


def _subscription(answer: Mapping[str, Any]) -> Subscription:
    return value_of(Subscription, {**answer, "config": {name: answer[name] for name in _SETTINGS}})
