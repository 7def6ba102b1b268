"""A consumer group and its members as they are stored, and what may be said of them without any I/O.

The group's own item is small and changes only when its target assignment, its settings or the time of its next check
do, each time by compare-and-set on `version`. A member's item is written by that member's heartbeats alone.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import GroupName, MemberName
from penstock_core.topic_patterns import check_pattern, matches

ASSIGNORS = ("sticky", "range", "round_robin")
FINGERPRINT_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a group, each with its default."""

    assignor: str = ASSIGNORS[0]
    session_timeout_ms: int = limits.SESSION_TIMEOUT_MS_DEFAULT
    heartbeat_interval_ms: int = limits.HEARTBEAT_INTERVAL_MS_DEFAULT
    offsets_retention_ms: int = limits.OFFSETS_RETENTION_MS_DEFAULT


_BOUNDS: Mapping[str, tuple[int, int]] = {
    "session_timeout_ms": (limits.SESSION_TIMEOUT_MS_MIN, limits.SESSION_TIMEOUT_MS_MAX),
    "heartbeat_interval_ms": (limits.HEARTBEAT_INTERVAL_MS_MIN, limits.SESSION_TIMEOUT_MS_MAX),
    "offsets_retention_ms": (limits.OFFSETS_RETENTION_MS_MIN, limits.OFFSETS_RETENTION_MS_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The group's item. Each `epoch` has one target assignment, stored under `target_id` before the epoch begins.

    Epoch 0 has none: nobody has joined yet. `empty_since_ms` is when the group was first seen without members.
    """

    name: GroupName
    version: int = 0
    epoch: int = 0
    target_id: str = ""
    member_count: int = 0
    config: GroupConfig = field(default_factory=GroupConfig)
    next_check_ms: int = 0
    changed_at_ms: int = 0
    empty_since_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Topics by name, and patterns of names (`topic_patterns`). Sorted, so that equal ones look equal."""

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def selects(self, topic: str) -> bool:
        return topic in self.topics or any(matches(pattern, topic) for pattern in self.patterns)

    def fingerprint(self) -> bytes:
        """Eight bytes that differ for different subscriptions."""
        text = "\n".join([*self.topics, "", *self.patterns])
        return hashlib.blake2b(text.encode(), digest_size=FINGERPRINT_BYTES).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member's item.

    `epoch` is the group epoch whose target the member was last told, 0 if none since it joined or changed its
    subscription. `is_settled`: the member has said that it holds nothing outside its part of that target; what it
    acquires at that epoch lies inside, so it stays true until the next. `sequence` is that of its newest heartbeat,
    `session` that of the one that joined: so the member can tell its session from one that it knows nothing of.
    """

    name: MemberName
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    subscription: Subscription
    sequence: int
    session: int
    deadline_ms: int
    epoch: int = 0
    is_settled: bool = False
    joined_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a heartbeat adds to the member's item once it has seen the target of `epoch`."""

    epoch: int
    is_settled: bool


def parse_subscription(topics: Iterable[str], patterns: Iterable[str]) -> Subscription:
    """Raises INVALID_NAME for a bad pattern, INVALID_REQUEST for too many names or too long ones.

    A name that no topic can have is no error: a topic that does not exist selects nothing.
    """
    subscription = Subscription(topics=tuple(sorted(set(topics))), patterns=tuple(sorted(set(patterns))))
    for pattern in subscription.patterns:
        check_pattern(pattern)
    names = subscription.topics + subscription.patterns
    if len(names) > limits.SUBSCRIPTION_NAMES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a subscription to {len(names)} names: {limits.SUBSCRIPTION_NAMES_MAX} at most, use a pattern",
        )
    size = sum(len(name.encode()) for name in names)
    if size > limits.SUBSCRIPTION_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a subscription whose names have {size} bytes: {limits.SUBSCRIPTION_BYTES_MAX} at most, use a pattern",
        )
    return subscription


def alter_group_config(config: GroupConfig, changes: Mapping[str, Any]) -> GroupConfig:
    """`config` with `changes`; None sets a setting back to its default.

    Raises INVALID_CONFIG naming the setting, the value and what is allowed.
    """
    known = {setting.name for setting in fields(GroupConfig)}
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"unknown group setting {name!r:.100}: known are {', '.join(sorted(known))}"
            )
        checked[name] = getattr(GroupConfig(), name) if value is None else _checked_setting(name, value)
    altered = replace(config, **checked)
    if altered.heartbeat_interval_ms * limits.HEARTBEATS_PER_SESSION_MIN > altered.session_timeout_ms:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"heartbeat_interval_ms={altered.heartbeat_interval_ms} with session_timeout_ms="
            f"{altered.session_timeout_ms}: a session must last {limits.HEARTBEATS_PER_SESSION_MIN} intervals at least",
        )
    return altered


def group_config_to_json(config: GroupConfig) -> dict[str, Any]:
    """Every setting by name, as the API shows it."""
    return asdict(config)


def next_check_ms(members: Iterable[Member], now_ms: int) -> int:
    """When the group's members and topics are to be looked at again: no session can end unnoticed before its deadline
    does, and new partitions wait `GROUP_CHECK_MS_MAX` at most."""
    first = min((member.deadline_ms for member in members), default=now_ms + limits.GROUP_CHECK_MS_MAX)
    return max(now_ms + limits.GROUP_CHECK_MS_MIN, min(first, now_ms + limits.GROUP_CHECK_MS_MAX))


def _checked_setting(name: str, value: Any) -> Any:
    if name == "assignor":
        if value not in ASSIGNORS:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"assignor={value!r:.100}: must be one of {', '.join(ASSIGNORS)}"
            )
        return value
    low, high = _BOUNDS[name]
    may_be_unlimited = name == "offsets_retention_ms"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not (low <= value <= high or (may_be_unlimited and value == limits.UNLIMITED)):
        unlimited = f", or {limits.UNLIMITED} for ever" if may_be_unlimited else ""
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name}={value!r:.100}: must be a whole number from {low} to {high}{unlimited}"
        )
    return value
