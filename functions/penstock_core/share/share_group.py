"""A share group: its name, its topics and its settings.

A share group has a random id, so one that is made anew under an old name never meets the old one's state. It binds
topics by their ids. Its item changes by compare-and-set on `version`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, Mistakes, PenstockError, shown
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import (
    GroupName,
    ShareGroupId,
    SubscriptionName,
    TopicId,
    TopicName,
    parse_group_name,
    parse_own_topic_name,
)

SHARE_GROUP_ID_BYTES = 10
ORDER_NONE, ORDER_KEY = "none", "key"
TOPICS_ANY, TOPICS_LISTED = "any", "listed"
SHARING_ANY, SHARING_FAIR = "any", "fair"
FAIR_BY_KEY = "key"
STARTS = ("earliest", "latest")
HIDDEN_PREFIX = "#"  # of names that no user can give: redrive reads through such groups
_DELETED = "deleted."
_FIXED = ("ordering", "start")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """Settings of a share group, each with its default.

    - `lock_ms` is how long a lock lasts where an acquire does not say.
    - `deliveries_max` bounds how often a record is handed out; None is no bound. By default it is 5 with a dead-letter
      topic. Without one it must be None: a record is handed out until it is accepted, rejected or expires.
    - `retry_backoff_ms_min`, doubled for each delivery up to `retry_backoff_ms_max`, is the pause before the next one.
    - `ordering="key"` hands out no record while an earlier one of its key is unfinished.
    - `key_batch_max` lets one acquire hand out so many records of one key.
    - `filter` is a filter policy over headers; records that do not match are finished. None lets all pass.
    - `in_flight_max` bounds the records of one partition that are locked or wait.
    - `topic_order="listed"` takes records of a topic only for the room that the topics listed before it have left.
    - `sharing="fair"` shares the workers among tenants, which are told apart by `fair_by`: "key", or a header's name.
    """

    lock_ms: int = limits.SHARE_LOCK_MS_DEFAULT
    deliveries_max: int | None = None
    retry_backoff_ms_min: int = limits.SHARE_BACKOFF_FIRST_MS_DEFAULT
    retry_backoff_ms_max: int = limits.SHARE_BACKOFF_LAST_MS_DEFAULT
    dead_letter_topic: TopicName | None = None
    ordering: str = ORDER_NONE
    key_batch_max: int = 1
    filter: Mapping[str, Any] | None = None
    start: str = STARTS[0]
    in_flight_max: int = limits.SHARE_IN_FLIGHT_MAX
    topic_order: str = TOPICS_ANY
    sharing: str = SHARING_ANY
    fair_by: str = FAIR_BY_KEY

    @property
    def is_by_key(self) -> bool:
        """True if records of one key are handed out one after the other."""
        return self.ordering == ORDER_KEY

    @property
    def is_listed(self) -> bool:
        """True if the group's topics have priorities: the first one comes first."""
        return self.topic_order == TOPICS_LISTED

    @property
    def is_fair(self) -> bool:
        """True if tenants share the workers."""
        return self.sharing == SHARING_FAIR

    @property
    def work_ms(self) -> int | None:
        """The work that a consumer may hold, None for as much as it likes. Records that it holds are chosen already."""
        return limits.SHARE_CHOSEN_WORK_MS if self.is_listed or self.is_fair else None


SHARE_BOUNDS: Mapping[str, tuple[int, int]] = {
    "lock_ms": (limits.SHARE_LOCK_MS_MIN, limits.SHARE_LOCK_MS_MAX),
    "deliveries_max": (limits.SHARE_DELIVERIES_MIN, limits.SHARE_DELIVERIES_MAX),
    "retry_backoff_ms_min": (limits.SHARE_BACKOFF_MS_MIN, limits.SHARE_BACKOFF_MS_MAX),
    "retry_backoff_ms_max": (limits.SHARE_BACKOFF_MS_MIN, limits.SHARE_BACKOFF_MS_MAX),
    "key_batch_max": (limits.SHARE_KEY_BATCH_MIN, limits.SHARE_KEY_BATCH_MAX),
    "in_flight_max": (limits.SHARE_IN_FLIGHT_MIN, limits.SHARE_IN_FLIGHT_MAX),
}
CHOICES = {
    "ordering": (ORDER_NONE, ORDER_KEY),
    "start": STARTS,
    "topic_order": (TOPICS_ANY, TOPICS_LISTED),
    "sharing": (SHARING_ANY, SHARING_FAIR),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroup:
    """The group's item. `topics` are the topics that it reads, by name, with the ids that it is bound to.

    `order` has the names of all topics with topic_order=listed, the highest first, and is empty otherwise.
    `left_topics` are ids that it was bound to before, until retention has removed the group's states there.
    `subscription` is the one that a hidden group works for; the item does not have it.
    """

    name: GroupName
    share_group_id: ShareGroupId
    version: int = 0
    created_at_ms: int = 0
    topics: Mapping[TopicName, TopicId]
    config: ShareGroupConfig = field(default_factory=ShareGroupConfig)
    order: tuple[TopicName, ...] = ()
    left_topics: frozenset[TopicId] = frozenset()
    subscription: SubscriptionName | None = field(default=None, compare=False)

    @property
    def topic_ids(self) -> frozenset[TopicId]:
        """All topics in which the group may have states."""
        return self.left_topics.union(self.topics.values())

    @property
    def ordered_topics(self) -> tuple[TopicName, ...]:
        """The names of the topics: in the order of their priority, or sorted if they have none."""
        return self.order or tuple(sorted(self.topics))

    def succeeding(self, old: "ShareGroup") -> "ShareGroup":
        """This group in place of `old`: it notes the topics that it has left."""
        return replace(self, left_topics=old.topic_ids - {*self.topics.values()})

    def without(self, topic_id: TopicId) -> "ShareGroup":
        """The next version of the group, which has no states in a topic that it had left."""
        return replace(self, version=self.version + 1, left_topics=self.left_topics - {topic_id})


def new_share_group_id(entropy: bytes) -> ShareGroupId:
    """20 lower-case hexadecimal digits from `SHARE_GROUP_ID_BYTES` random bytes."""
    if len(entropy) != SHARE_GROUP_ID_BYTES:
        raise ValueError(f"a share group id takes {SHARE_GROUP_ID_BYTES} random bytes, got {len(entropy)}")
    return ShareGroupId(entropy.hex())


def hidden_name(purpose: str) -> GroupName:
    """The name of a group that no list shows, and that no user can name."""
    return GroupName(f"{HIDDEN_PREFIX}{purpose}")


def deletion_note(group: ShareGroup) -> ShareGroup:
    """The hidden group that stands for a deleted one until its states are gone."""
    return replace(group, name=hidden_name(f"{_DELETED}{group.share_group_id}"))


def is_deletion_note(group: ShareGroup) -> bool:
    """True if the hidden group stands for a deleted one."""
    return group.name.startswith(hidden_name(_DELETED))


def redrive_name(topic_id: TopicId) -> GroupName:
    """The name of the hidden group by which a redrive remembers which records of that topic it has moved."""
    return hidden_name(f"redrive.{topic_id}")


def new_share_group_config(settings: Mapping[str, Any]) -> ShareGroupConfig:
    """The settings of a new group: those that are given, and defaults. None in place of a value is the default.

    Raises INVALID_CONFIG naming the setting, the value and what is allowed.
    """
    given = {name: value for name, value in _checked(settings).items() if value is not None}
    if given.get("ordering") == ORDER_KEY:
        given.setdefault("in_flight_max", limits.SHARE_KEY_IN_FLIGHT_MAX)
    if given.get("dead_letter_topic") is not None:
        given.setdefault("deliveries_max", limits.SHARE_DELIVERIES_DEFAULT)
    return _consistent(ShareGroupConfig(**given))


def alter_share_group_config(config: ShareGroupConfig, changes: Mapping[str, Any]) -> ShareGroupConfig:
    """`config` with `changes`; None sets a setting back to its default.

    Raises INVALID_CONFIG as `new_share_group_config`, and for a change of `ordering` or `start`.
    """
    defaults = new_share_group_config(
        {"ordering": config.ordering, "dead_letter_topic": changes.get("dead_letter_topic", config.dead_letter_topic)}
    )
    altered = {name: getattr(defaults, name) if value is None else value for name, value in _checked(changes).items()}
    if "dead_letter_topic" in changes and "deliveries_max" not in changes:
        is_kept = changes["dead_letter_topic"] is not None and config.deliveries_max is not None
        altered["deliveries_max"] = config.deliveries_max if is_kept else defaults.deliveries_max
    if changes.get("dead_letter_topic", "") is None:
        altered["dead_letter_topic"] = None
    if altered.get("sharing") == SHARING_ANY:
        altered.setdefault("fair_by", defaults.fair_by)
    for name in _FIXED:
        if changes.get(name) is not None and changes[name] != getattr(config, name):
            raise PenstockError(
                ErrorCode.INVALID_CONFIG,
                f"{name}={shown(changes[name])}: a share group keeps its {name} ({getattr(config, name)}) for ever; "
                "delete the group, or make one of another name",
            )
        altered.pop(name, None)
    return _consistent(replace(config, **altered))


def share_group_config_to_json(config: ShareGroupConfig) -> dict[str, Any]:
    """Every setting by name, as the API shows it."""
    return asdict(config)


def check_declared_group(name: str, settings: Mapping[str, Any]) -> None:
    """Raises INVALID_CONFIG with all mistakes that the name and each of the settings have by themselves."""
    mistakes = Mistakes()
    mistakes.check(parse_group_name, name)
    mistakes.check_each(_checked, settings)
    if isinstance(settings.get("filter"), Mapping):
        mistakes.check(parse_filter, settings["filter"])
    mistakes.refuse(f"share group {shown(name)}")


def check_share_topics(topics: Mapping[TopicName, TopicId], config: ShareGroupConfig) -> None:
    """Raises INVALID_CONFIG for no topics, too many, or a dead-letter topic that is one of them."""
    if config.is_listed and len(topics) > limits.SHARE_LISTED_TOPICS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"topic_order=listed with {len(topics)} topics: {limits.SHARE_LISTED_TOPICS_MAX} at most; name fewer "
            "topics, or leave topic_order out",
            limit=limits.SHARE_LISTED_TOPICS_MAX,
        )
    if not 1 <= len(topics) <= limits.SHARE_TOPICS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"a share group of {len(topics)} topics: 1 to {limits.SHARE_TOPICS_MAX} are allowed",
        )
    if config.dead_letter_topic in topics:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"dead_letter_topic={shown(config.dead_letter_topic)}: is a topic of the group itself; name another topic",
        )


def check_listed_partitions(name: GroupName, partitions: Mapping[TopicName, int]) -> None:
    """Raises INVALID_CONFIG if the topics of a group with topic_order=listed have too many partitions in all."""
    count = sum(partitions.values())
    if count > limits.SHARE_LISTED_PARTITIONS_MAX:
        told = ", ".join(f"{topic} has {number}" for topic, number in partitions.items())
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"share group {name!r} has topic_order=listed, and its topics would have {count} partitions ({told}): "
            f"{limits.SHARE_LISTED_PARTITIONS_MAX} at most in all; take fewer partitions or topics, or set "
            "topic_order=any",
            limit=limits.SHARE_LISTED_PARTITIONS_MAX,
        )


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    known = {setting.name for setting in fields(ShareGroupConfig)}
    for name, value in settings.items():
        if name not in known:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"unknown setting {shown(name)}: known are {', '.join(sorted(known))}"
            )
        if value is not None:
            _check_setting(name, value)
    return dict(settings)


def _check_setting(name: str, value: Any) -> None:
    if name == "dead_letter_topic":
        if not isinstance(value, str):
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be the name of a topic")
        parse_own_topic_name(value)
    elif name == "filter":
        if not isinstance(value, Mapping):
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be a filter policy, an object")
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: cannot be stored as JSON") from error
    elif name == "fair_by":
        _check_fair_by(value)
    elif name in CHOICES:
        if value not in CHOICES[name]:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be one of {', '.join(CHOICES[name])}"
            )
    else:
        low, high = SHARE_BOUNDS[name]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be a whole number from {low} to {high}"
            )


def _check_fair_by(value: Any) -> None:
    most = limits.SHARE_FAIR_BY_LENGTH_MAX
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"fair_by={shown(value)}: must be key, or the name of a header of 1 to {most} characters",
        )


def _consistent(config: ShareGroupConfig) -> ShareGroupConfig:
    why = ""
    if config.retry_backoff_ms_min > config.retry_backoff_ms_max:
        why = (
            f"retry_backoff_ms_min={config.retry_backoff_ms_min} with retry_backoff_ms_max="
            f"{config.retry_backoff_ms_max}: the first pause is at most the longest"
        )
    elif config.deliveries_max is not None and config.dead_letter_topic is None:
        why = (
            f"deliveries_max={config.deliveries_max} without dead_letter_topic: name the topic that takes the records "
            "after that, or leave deliveries_max out"
        )
    elif config.is_by_key and config.in_flight_max > limits.SHARE_KEY_IN_FLIGHT_MAX:
        why = f"in_flight_max={config.in_flight_max} with ordering=key: {limits.SHARE_KEY_IN_FLIGHT_MAX} at most"
    elif not config.is_by_key and config.key_batch_max != 1:
        why = f"key_batch_max={config.key_batch_max} with ordering={config.ordering}: it is for ordering=key"
    elif config.is_fair and config.is_by_key:
        why = (
            f"sharing=fair with ordering=key: order by key has {limits.SHARE_KEY_IN_FLIGHT_MAX} records of a partition "
            "in sight, which one tenant may fill; take one of the two"
        )
    elif not config.is_fair and config.fair_by != FAIR_BY_KEY:
        why = f"fair_by={shown(config.fair_by)} with sharing={config.sharing}: it is for sharing=fair"
    elif config.deliveries_max is None and config.dead_letter_topic is not None:
        why = "a dead_letter_topic needs deliveries_max"
    if why:
        raise PenstockError(ErrorCode.INVALID_CONFIG, why)
    return config
