"""A consumer group and its members as they are stored, and the rules about them that need no I/O.

The group's own item is small. It changes only with the target assignment, the settings or the time of the next check,
each time by compare-and-set on `version`. Only a member's own heartbeats write that member's item. Once its session has
ended, another member's heartbeat may remove the item.

The document of a group whose leader assigns, as Kafka Connect's workers do (docs/protocol/gateway).

The gateways of such a group keep its members and assignments here, and change them by compare-and-set on the group's
`version`. The service does not read `data`.

Sessions of members: what a heartbeat does to a member's item, and when it is refused.

| stored                                        | heartbeat                            |
|-----------------------------------------------|--------------------------------------|
| no such member                                | UNKNOWN_MEMBER: join anew            |
| another process has taken its instance id     | MEMBER_FENCED: stop                  |
| a heartbeat with this sequence, or a higher   | STALE_HEARTBEAT: it came late        |
| another session of the same process           | UNKNOWN_MEMBER: join anew            |
| else                                          | the session goes on                  |

A session is numbered by the heartbeat that opened it. Suppose a member sends its join twice, the second copy opens a
session, and that session expires. The delayed first copy then opens another session, which the member does not know.
Its next heartbeat is refused with UNKNOWN_MEMBER, and it joins again.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.groups.topic_patterns import WILDCARD, check_pattern, matches
from penstock_core.ids import GroupName, MemberName
from penstock_core.limits import GROUP_DOCUMENT_BYTES_MAX, GROUP_MEMBERS_MAX, PROTOCOL_TYPE_LENGTH_MAX
from penstock_core.text import check_label

ASSIGNORS = ("sticky", "range", "round_robin")
FINGERPRINT_BYTES = 8
CONSUMER = "consumer"  # the type of each group in which the service assigns


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a group, each with its default."""

    assignor: str = ASSIGNORS[0]
    session_timeout_ms: int = limits.SESSION_TIMEOUT_MS_DEFAULT
    heartbeat_interval_ms: int = limits.HEARTBEAT_INTERVAL_MS_DEFAULT
    offsets_retention_ms: int = limits.OFFSETS_RETENTION_MS_DEFAULT


GROUP_BOUNDS: Mapping[str, tuple[int, int]] = {
    "session_timeout_ms": (limits.SESSION_TIMEOUT_MS_MIN, limits.SESSION_TIMEOUT_MS_MAX),
    "heartbeat_interval_ms": (limits.HEARTBEAT_INTERVAL_MS_MIN, limits.SESSION_TIMEOUT_MS_MAX),
    "offsets_retention_ms": (limits.OFFSETS_RETENTION_MS_MIN, limits.OFFSETS_RETENTION_MS_MAX),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDocument:
    """`protocol_type` says what its members are, as "connect". `member_count` is for operators."""

    protocol_type: str
    member_count: int
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """Topics by name, and patterns of names (`topic_patterns`). Both are sorted, so that equal ones compare equal."""

    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def selects(self, topic: str) -> bool:
        """True if the topic is named, or matches a pattern."""
        return topic in self._names or any(matches(pattern, topic) for pattern in self._wild)

    def fingerprint(self) -> bytes:
        """Eight bytes that differ for different subscriptions."""
        text = "\n".join([*self.topics, "", *self.patterns])
        return hashlib.blake2b(text.encode(), digest_size=FINGERPRINT_BYTES).digest()

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names, and the patterns that describe one name: there may be thousands."""
        return frozenset([*self.topics, *(each for each in self.patterns if WILDCARD not in each)])

    @cached_property
    def _wild(self) -> tuple[str, ...]:
        return tuple(each for each in self.patterns if WILDCARD in each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member's item.

    - `epoch` is the group epoch whose target the member was last told. It is 0 if the member was told none since it
      joined or changed its subscription.
    - `is_settled`: the member has said that it holds nothing outside its part of that target. It stays true until the
      next epoch, since the member acquires only partitions inside its part.
    - `sequence` is the number of its newest heartbeat.
    - `session` is the number of the heartbeat that joined. So the member can tell its own session from one that it does
      not know.
    - `session_timeout_ms` is what the member asked for; None if the group's setting counts. Its heartbeats name it.
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
    session_timeout_ms: int | None = None


def next_check_ms(members: Iterable[Member], now_ms: int) -> int:
    """The time of the next look at the group's members and topics.

    It is the first deadline of a session, so no session ends unnoticed. It comes `GROUP_CHECK_MS_MAX` from now at the
    latest, so new partitions wait no longer, and `GROUP_CHECK_MS_MIN` from now at the earliest.
    """
    first = min((member.deadline_ms for member in members), default=now_ms + limits.GROUP_CHECK_MS_MAX)
    return max(now_ms + limits.GROUP_CHECK_MS_MIN, min(first, now_ms + limits.GROUP_CHECK_MS_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The group's item. Each `epoch` has one target assignment, stored under `target_id` before the epoch begins.

    Epoch 0 has none, because no member has joined yet. `created_at_ms` is None in a group of an earlier release.
    `empty_since_ms` is when the group was first seen without
    members. `document` is there in a group whose leader assigns.
    """

    name: GroupName
    version: int = 0
    epoch: int = 0
    target_id: str = ""
    member_count: int = 0
    config: GroupConfig = field(default_factory=GroupConfig)
    next_check_ms: int = 0
    changed_at_ms: int = 0
    created_at_ms: int | None = None
    empty_since_ms: int | None = None
    document: GroupDocument | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """The part of the member's item that a heartbeat writes once it has seen the target of `epoch`."""

    epoch: int
    is_settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTouch:
    """A heartbeat of the process `member_id` in its session, which then goes on until `deadline_ms`.

    `report` is None if the heartbeat has seen no target.
    """

    member_id: str
    sequence: int
    session: int
    deadline_ms: int
    report: MemberProgress | None = None


def parse_subscription(topics: Iterable[str], patterns: Iterable[str]) -> Subscription:
    """The subscription to these names and patterns. Raises INVALID_NAME for a bad pattern.

    Raises INVALID_REQUEST for too many names or too long ones. A name that no topic can have is no error: a topic that
    does not exist selects nothing.
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
                ErrorCode.INVALID_CONFIG, f"unknown group setting {shown(name)}: known are {', '.join(sorted(known))}"
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


def state_after_check(state: GroupState, members: Collection[Member], now_ms: int) -> GroupState:
    """The group's item after a check that found its target to fit these members."""
    return replace(
        state,
        version=state.version + 1,
        next_check_ms=next_check_ms(members, now_ms),
        empty_since_ms=None if members else (state.empty_since_ms or now_ms),
    )


def state_after_rebalance(
    state: GroupState, members: Collection[Member], now_ms: int, first_epoch: int, target_id: str
) -> GroupState:
    """The group's item once `target_id` is its target, made for these members: its epoch is the next one.

    A group that has had no target yet begins with `first_epoch`.
    """
    return replace(
        state_after_check(state, members, now_ms),
        epoch=state.epoch + 1 if state.epoch else first_epoch,
        target_id=target_id,
        member_count=len(members),
        changed_at_ms=now_ms,
    )


def _checked_setting(name: str, value: Any) -> Any:
    if name == "assignor":
        if value not in ASSIGNORS:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"assignor={shown(value)}: must be one of {', '.join(ASSIGNORS)}"
            )
        return value
    low, high = GROUP_BOUNDS[name]
    may_be_unlimited = name == "offsets_retention_ms"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not (low <= value <= high or (may_be_unlimited and value == limits.UNLIMITED)):
        unlimited = f", or {limits.UNLIMITED} for ever" if may_be_unlimited else ""
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be a whole number from {low} to {high}{unlimited}"
        )
    return value


def checked_document(protocol_type: str, member_count: int, data: bytes) -> GroupDocument:
    """The document. Raises INVALID_REQUEST if a field is out of its bounds."""
    if not 1 <= len(protocol_type) <= PROTOCOL_TYPE_LENGTH_MAX or protocol_type == CONSUMER:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"protocol_type={shown(protocol_type)}: give 1 to {PROTOCOL_TYPE_LENGTH_MAX} characters, and not "
            f"{CONSUMER!r}, whose groups have no document",
        )
    check_label("protocol_type", protocol_type)
    if not 0 <= member_count <= GROUP_MEMBERS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"member_count={member_count}: a group has {GROUP_MEMBERS_MAX} members at most"
        )
    if len(data) > GROUP_DOCUMENT_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"a document of {len(data)} bytes: {GROUP_DOCUMENT_BYTES_MAX} at most, so give the group fewer members or "
            "tasks",
        )
    return GroupDocument(protocol_type=protocol_type, member_count=member_count, data=data)


def touched(stored: Member | None, group: GroupName, name: MemberName, touch: SessionTouch) -> Member:
    """The member after a heartbeat; `storage.member_item.touch_update` is the same as an update.

    A driver that lost the answer may send the member's newest heartbeat again: that changes nothing. Raises
    UNKNOWN_MEMBER, MEMBER_FENCED, STALE_HEARTBEAT.
    """
    if stored is not None and _is_touched(stored, touch):
        return stored
    refuse_heartbeat(stored, group, name, touch.member_id, touch.sequence, touch.session)
    assert stored is not None
    report = touch.report
    member = replace(stored, sequence=touch.sequence, deadline_ms=touch.deadline_ms)
    return member if report is None else replace(member, epoch=report.epoch, is_settled=report.is_settled)


def refuse_heartbeat(
    stored: Member | None, group: GroupName, name: MemberName, member_id: str, sequence: int, session: int | None
) -> None:
    """Raises the error that the table above gives for this heartbeat, if any.

    With `session` None the heartbeat ends whatever session there is. The condition of
    `storage.member_item.touch_update` states the same rule. The contract test
    `test_touch_is_refused_exactly_where_sessions_touched_says` holds the two together.
    """
    if stored is None:
        raise unknown_member(group, name)
    if stored.member_id != member_id:
        raise PenstockError(
            ErrorCode.MEMBER_FENCED,
            f"another process ({stored.member_id}) has joined group {group} as instance {stored.instance_id}: "
            "one process at a time may use an instance id, and this one has to stop",
        )
    if stored.sequence >= sequence:
        raise PenstockError(
            ErrorCode.STALE_HEARTBEAT,
            f"heartbeat {sequence} of member {name} of group {group} comes after its heartbeat {stored.sequence}: "
            "give each heartbeat, also one that is sent again, a higher sequence",
        )
    if session not in (None, stored.session):
        raise unknown_member(group, name)


def unknown_member(group: GroupName, name: MemberName) -> PenstockError:
    """The error for a member that never joined, has left, or whose session has ended."""
    return PenstockError(
        ErrorCode.UNKNOWN_MEMBER,
        f"group {group} has no member {name}, or no longer: drop every partition, then join anew with epoch 0",
    )


def concurrent_update(what: str) -> PenstockError:
    """The error for a change whose item another writer changed first."""
    return PenstockError(ErrorCode.CONCURRENT_UPDATE, f"{what} was changed by somebody else: look again")


def _is_touched(stored: Member, touch: SessionTouch) -> bool:
    heard, report = (stored.member_id, stored.sequence, stored.session, stored.deadline_ms), touch.report
    is_same = heard == (touch.member_id, touch.sequence, touch.session, touch.deadline_ms)
    return is_same and (report is None or (stored.epoch, stored.is_settled) == (report.epoch, report.is_settled))
