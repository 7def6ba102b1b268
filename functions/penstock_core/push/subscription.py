"""A subscription: its name, its topics, its target and its settings.

A subscription has a random id, so one that is made anew under an old name never meets the old one's state or messages.
It binds topics by their ids.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, Mistakes, PenstockError, shown
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import (
    PartitionKey,
    SubscriptionId,
    SubscriptionName,
    TopicId,
    TopicName,
    parse_own_topic_name,
    parse_subscription_name,
)
from penstock_core.push.lane import PushMessage
from penstock_core.push.targets.target import StageTarget, Target, TopicTarget

ORDERED, PARALLEL = "ordered", "parallel"
EARLIEST, LATEST = "earliest", "latest"
STARTS = (EARLIEST, LATEST)
SUBSCRIPTION_ID_BYTES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConfig:
    """Settings of a subscription, each with its default.

    - `mode="ordered"` keeps the order of a partition; `"parallel"` delivers each record for itself, as a share group.
    - `start="latest"` begins behind the records that there are when the subscription is made.
    - A delivery has at most `batch_records` records. If it finds fewer, it waits for more, up to `batch_window_ms`.
    - At most `concurrency` partitions are delivered at a time.
    - `filter` is a filter policy over headers; records that do not match are passed over.
    - After `attempts_max` attempts a record goes to `dead_letter_topic`. The last one begins while the target is known
      to work. By default it is 5 with such a topic. Without one it must be None: a record is tried until it succeeds.
    - `backoff_ms_min`, doubled for each failure up to `backoff_ms_max`, is the pause before the next attempt.
    - While nothing succeeds, records wait for `patience_ms` before they go to the dead letters.
    - `age_ms_max`: a record that fails goes there as soon as it is so old. None is no bound.
    - `bisect` halves a batch that fails, to find the record that does.
    """

    mode: str = ORDERED
    start: str = LATEST
    batch_records: int = limits.PUSH_BATCH_RECORDS_DEFAULT
    batch_window_ms: int = 0
    concurrency: int = limits.PUSH_CONCURRENCY_DEFAULT
    filter: Mapping[str, Any] | None = None
    attempts_max: int | None = None
    backoff_ms_min: int = limits.PUSH_BACKOFF_FIRST_MS_DEFAULT
    backoff_ms_max: int = limits.PUSH_BACKOFF_LAST_MS_DEFAULT
    patience_ms: int = limits.PUSH_PATIENCE_MS_DEFAULT
    age_ms_max: int | None = None
    bisect: bool = True
    dead_letter_topic: TopicName | None = None


SUBSCRIPTION_BOUNDS: Mapping[str, tuple[int, int]] = {
    "batch_records": (1, limits.PUSH_BATCH_RECORDS_MAX),
    "batch_window_ms": (0, limits.PUSH_BATCH_WINDOW_MS_MAX),
    "concurrency": (1, limits.PUSH_CONCURRENCY_MAX),
    "attempts_max": (1, limits.PUSH_ATTEMPTS_MAX),
    "backoff_ms_min": (1, limits.PUSH_BACKOFF_MS_MAX),
    "backoff_ms_max": (1, limits.PUSH_BACKOFF_MS_MAX),
    "patience_ms": (0, limits.PUSH_PATIENCE_MS_MAX),
    "age_ms_max": (1, limits.PUSH_AGE_MS_MAX),
}
_FIXED = ("mode", "start")
_OF_DEAD_LETTERS = ("attempts_max", "age_ms_max")  # without a dead-letter topic they mean nothing
SUBSCRIPTION_CHOICES = {"mode": (ORDERED, PARALLEL), "start": STARTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The subscription's item. `topics` are those that it reads, by name, with the ids that it is bound to.

    A subscription that starts at the latest records gets the states of all partitions before it becomes visible. Every
    other partition begins with the log. `version` rises with each change.

    `mirrored` has the id of the topic that mirrors a topic, by the id of the latter, as the mirror told it last.
    """

    name: SubscriptionName
    subscription_id: SubscriptionId
    version: int = 0
    created_at_ms: int = 0
    topics: Mapping[TopicName, TopicId]
    target: Target
    is_paused: bool = False
    config: SubscriptionConfig = field(default_factory=SubscriptionConfig)
    mirrored: Mapping[TopicId, str] = field(default_factory=dict)

    @property
    def is_mirror(self) -> bool:
        """True if it pushes its topics to another stage."""
        return isinstance(self.target, StageTarget)


def new_subscription_id(entropy: bytes) -> SubscriptionId:
    """20 lower-case hexadecimal digits from `SUBSCRIPTION_ID_BYTES` random bytes."""
    if len(entropy) != SUBSCRIPTION_ID_BYTES:
        raise ValueError(f"a subscription id takes {SUBSCRIPTION_ID_BYTES} random bytes, got {len(entropy)}")
    return SubscriptionId(entropy.hex())


def new_subscription_config(settings: Mapping[str, Any]) -> SubscriptionConfig:
    """The settings of a new subscription: those that are given, and defaults. None in place of a value is the default.

    Raises INVALID_CONFIG naming the setting, the value and what is allowed.
    """
    _check_settings(settings)
    given = {name: value for name, value in settings.items() if value is not None}
    if "dead_letter_topic" in given:
        given.setdefault("attempts_max", limits.PUSH_ATTEMPTS_DEFAULT)
    return _consistent(SubscriptionConfig(**given))


def check_declared_subscription(name: str, settings: Mapping[str, Any]) -> None:
    """Raises INVALID_CONFIG with all mistakes that the name and each of the settings have by themselves."""
    mistakes = Mistakes()
    mistakes.check(parse_subscription_name, name)
    mistakes.check_each(_check_settings, settings)
    if isinstance(settings.get("filter"), Mapping):
        mistakes.check(parse_filter, settings["filter"])
    mistakes.refuse(f"subscription {shown(name)}")


def alter_subscription_config(config: SubscriptionConfig, changes: Mapping[str, Any]) -> SubscriptionConfig:
    """`config` with `changes`; None sets a setting back to its default.

    Without a dead-letter topic, `attempts_max` and `age_ms_max` end too, unless `changes` has them. Raises
    INVALID_CONFIG as `new_subscription_config`, and for a change of `mode` or `start`.
    """
    for name in _FIXED:
        if changes.get(name) not in (None, getattr(config, name)):
            raise _refused(
                f"{name}={shown(changes[name])}: a subscription keeps its {name} ({getattr(config, name)}) for ever; "
                "delete it, or make one of another name"
            )
    kept = {name: value for name, value in subscription_config_to_json(config).items() if name not in changes}
    if changes.get("dead_letter_topic", config.dead_letter_topic) is None:
        kept |= dict.fromkeys((name for name in _OF_DEAD_LETTERS if name in kept), None)
    fixed = {name: getattr(config, name) for name in _FIXED}
    return new_subscription_config({**kept, **changes, **fixed})


def subscription_config_to_json(config: SubscriptionConfig) -> dict[str, Any]:
    """Every setting by name, as the API shows it."""
    return asdict(config)


def check_subscription_topics(topics: Mapping[TopicName, TopicId], target: Target, config: SubscriptionConfig) -> None:
    """Raises INVALID_CONFIG for no topics, too many, or one that is its own target or its own dead-letter topic.

    Raises it also for a parallel copy to a topic, because a copy keeps the order of its records, and for a
    parallel subscription that waits for full batches.
    """
    if not 1 <= len(topics) <= limits.PUSH_TOPICS_MAX:
        raise _refused(f"a subscription of {len(topics)} topics: 1 to {limits.PUSH_TOPICS_MAX} are allowed")
    if config.dead_letter_topic in topics:
        raise _refused(
            f"dead_letter_topic={shown(config.dead_letter_topic)}: the subscription reads it; name another topic"
        )
    if isinstance(target, TopicTarget) and target.topic in topics:
        raise _refused(f"target.topic={shown(target.topic)}: the subscription reads it; name another topic")
    if config.mode == PARALLEL and config.batch_window_ms:
        raise _refused(f"batch_window_ms={config.batch_window_ms} with mode={PARALLEL}: only {ORDERED} waits")
    if isinstance(target, TopicTarget) and config.mode == PARALLEL:
        raise _refused(f"target.topic={shown(target.topic)} with mode={PARALLEL}: a copy to a topic is {ORDERED}")
    if isinstance(target, StageTarget):
        _check_mirror(config)


def _check_mirror(config: SubscriptionConfig) -> None:
    """A mirror repeats the whole log, batch by batch."""
    wanted = {"mode": ORDERED, "start": EARLIEST, "batch_window_ms": 0, "filter": None, "dead_letter_topic": None}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            raise _refused(
                f"{name}={shown(getattr(config, name))} with target.stage: a mirror repeats all records in order, give "
                f"{name}={shown(value)}"
            )


def _check_settings(settings: Mapping[str, Any]) -> None:
    known = {setting.name for setting in fields(SubscriptionConfig)}
    for name, value in settings.items():
        if name not in known:
            raise _refused(f"unknown setting {shown(name)}: known are {', '.join(sorted(known))}")
        if value is not None:
            _check_setting(name, value)


def _check_setting(name: str, value: Any) -> None:
    if name == "dead_letter_topic":
        if not isinstance(value, str):
            raise _refused(f"{name}={shown(value)}: must be the name of a topic")
        parse_own_topic_name(value)
    elif name == "filter":
        if not isinstance(value, Mapping):
            raise _refused(f"{name}={shown(value)}: must be a filter policy, an object")
    elif name == "bisect":
        if not isinstance(value, bool):
            raise _refused(f"{name}={shown(value)}: must be true or false")
    elif name in SUBSCRIPTION_CHOICES:
        if value not in SUBSCRIPTION_CHOICES[name]:
            raise _refused(f"{name}={shown(value)}: must be one of {', '.join(SUBSCRIPTION_CHOICES[name])}")
    else:
        low, high = SUBSCRIPTION_BOUNDS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise _refused(f"{name}={shown(value)}: must be a whole number from {low} to {high}")


def _consistent(config: SubscriptionConfig) -> SubscriptionConfig:
    why = ""
    if config.backoff_ms_min > config.backoff_ms_max:
        why = (
            f"backoff_ms_min={config.backoff_ms_min} with backoff_ms_max={config.backoff_ms_max}: the first pause is "
            "at most the longest"
        )
    elif config.dead_letter_topic is None:
        for name in _OF_DEAD_LETTERS:
            if getattr(config, name) is not None:
                why = (
                    f"{name}={getattr(config, name)} without dead_letter_topic: name the topic that takes the records "
                    f"then, or leave {name} out"
                )
    if why:
        raise _refused(why)
    return config


def _refused(why: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, why)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionNote:
    """What the small item of a topic tells of one of its subscriptions: enough to send it a message."""

    name: SubscriptionName
    subscription_id: SubscriptionId
    version: int
    concurrency: int
    is_paused: bool
    is_mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedStates:
    """Lanes and states of a subscription that is gone, or not there yet, since `since_ms`. The look removes them."""

    subscription_id: SubscriptionId
    name: SubscriptionName
    since_ms: int


def note_of(subscription: Subscription) -> SubscriptionNote:
    """The note that each topic of the subscription has."""
    return SubscriptionNote(
        name=subscription.name,
        subscription_id=subscription.subscription_id,
        version=subscription.version,
        concurrency=subscription.config.concurrency,
        is_paused=subscription.is_paused,
        is_mirror=subscription.is_mirror,
    )


def message_of(sender: Subscription | SubscriptionNote, lane: int, partition: PartitionKey | None) -> PushMessage:
    """The message that starts a delivery of the lane, from what its sender has read of the subscription."""
    return PushMessage(
        name=sender.name,
        subscription_id=sender.subscription_id,
        lane=lane,
        version=sender.version,
        partition=partition,
        is_mirror=sender.is_mirror,
    )
