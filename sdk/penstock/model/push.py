"""Subscriptions as operators see them. All values are immutable; times are milliseconds since 1970."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription: its topics, its target and all its settings. `state` is "active" or "paused".

    `target` is as the HTTP API has it, as `{"lambda": "<ARN>"}`, without the secret of an endpoint.
    `subscription_id` is another one when a subscription is made anew.
    """

    name: str
    subscription_id: str
    state: str
    topics: tuple[str, ...]
    target: Mapping[str, Any]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPartition:
    """One partition of a subscription. None for what there is not.

    The target has answered for all records below `offset`, and not for the `lag` records from there on.
    `oldest_age_ms` is the age of the first of these. `last_result` is "none", "ok", "failing" (the target refuses
    records, or is broken) or "away" (it is throttled, denied, missing or out of reach). While it fails, `attempts`
    counts the attempts since `failing_since_ms`, `last_error` tells why, and nothing is tried before `next_try_ms`.
    Records that had their attempts wait for a success of another delivery until `patience_until_ms`. `dead_lettered`
    counts the records that went to the dead-letter topic; it is None in parallel mode. `expired` counts those that were
    passed over because their time was over.
    """

    topic: str
    partition: int
    lane: int
    offset: int
    lag: int
    oldest_age_ms: int | None
    last_result: str
    last_error: str | None
    attempts: int
    failing_since_ms: int | None
    succeeded_ms: int | None
    next_try_ms: int | None
    patience_until_ms: int | None = None
    dead_lettered: int | None = None
    expired: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionLanes:
    """The deliveries that work now, those that rest until a time, and those that died in the middle."""

    working: int
    resting: int
    deaths: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDescription:
    """A subscription, its lanes, and its partitions by topic and number.

    `dead_lettered` counts the records that went to the dead-letter topic, of all partitions; None in parallel mode.
    """

    subscription: Subscription
    lanes: SubscriptionLanes
    partitions: tuple[SubscriptionPartition, ...]
    dead_lettered: int | None = None

    @property
    def lag(self) -> int:
        """The records that the target has not answered for, of all partitions. A filter may pass over some."""
        return sum(each.lag for each in self.partitions)

    @property
    def expired(self) -> int:
        """The records that were passed over because their time was over, of all partitions."""
        return sum(each.expired for each in self.partitions)

    @property
    def oldest_age_ms(self) -> int | None:
        """The age of the oldest of these records, None if there is none."""
        return max((each.oldest_age_ms for each in self.partitions if each.oldest_age_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTopic:
    """A topic that another stage mirrors, as `name_there`. None for what there is not.

    `state` is "mirroring", or that of its move: "moved", "reopening" or "returning". `epoch` is the number of its last
    move, 0 if it was never moved. The mirror lacks `lag` records, of which the oldest one came `oldest_age_ms` ago. It
    took the last ones at `succeeded_ms`.
    """

    topic: str
    name_there: str
    state: str
    epoch: int
    lag: int
    oldest_age_ms: int | None
    succeeded_ms: int | None


def mirrored_topics(found: SubscriptionDescription, topics: Iterable[Topic]) -> tuple[MirroredTopic, ...]:
    """The topics that the mirror `found` repeats. A topic that is not among `topics` of the source is left out.

    It is empty for a subscription that is no mirror.
    """
    stage = found.subscription.target.get("stage")
    if stage is None:
        return ()
    named, prefix = {each.name: each for each in topics}, stage.get("prefix", "")
    return tuple(_mirrored(found, prefix, named[name]) for name in found.subscription.topics if name in named)


def _mirrored(found: SubscriptionDescription, prefix: str, topic: Topic) -> MirroredTopic:
    of_topic = [each for each in found.partitions if each.topic == topic.name]
    move = topic.move or {"move": 0, "state": "open"}
    return MirroredTopic(
        topic=topic.name,
        name_there=f"{prefix}{topic.name}",
        state="mirroring" if move["state"] == "open" else move["state"],
        epoch=move["move"],
        lag=sum(each.lag for each in of_topic),
        oldest_age_ms=max((each.oldest_age_ms for each in of_topic if each.oldest_age_ms is not None), default=None),
        succeeded_ms=max((each.succeeded_ms for each in of_topic if each.succeeded_ms is not None), default=None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUserCounts:
    """The numbers of share groups and subscriptions that use a topic, also of those that you may not describe."""

    share_groups: int
    subscriptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUser:
    """A share group or a subscription that uses a topic.

    `kind` is "share group" or "subscription". `use` is "reads", "dead letters" or "target".
    """

    kind: str
    name: str
    use: str
