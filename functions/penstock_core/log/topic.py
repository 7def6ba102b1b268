"""A topic and its settings."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, Mistakes, PenstockError, shown
from penstock_core.ids import Partition, TopicId, TopicName, parse_own_topic_name
from penstock_core.log.retention_raise import RetentionRaise
from penstock_core.log.value_schema import NO_SCHEMA, check_value_schema

DELETE, COMPACT = "delete", "compact"
CLEANUP_POLICIES = (DELETE, COMPACT, f"{COMPACT},{DELETE}")
NONE, WAIT = "none", "wait"
ORDERINGS_ON_CHANGE = (NONE, WAIT)
BY_TIME, ACKNOWLEDGED = "time", "acknowledged"
RETENTIONS = (BY_TIME, ACKNOWLEDGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Settings of a topic, each with its default.

    - `retention_bytes` is for each partition.
    - `cleanup_policy` is one of `CLEANUP_POLICIES`.
    - `delete_retention_ms`: compaction removes the records that a tombstone deletes, and keeps the tombstone for that
      long.
    - `validate_records`: produce decodes each batch, and refuses those that do not hold what their headers claim.
    - `index_tags`: new refs carry the Bloom filter of their records' tags, so that filters by tag read less.
    - `ordering_on_change` is one of `ORDERINGS_ON_CHANGE`. With `wait`, a change of the number of partitions begins a
      generation of new partitions, which groups read once they have read the ones before (docs/protocol/partitions).
      Compacted topics cannot have it.
    - `retention` is one of `RETENTIONS`. With `acknowledged`, retention also removes what all readers have passed
      (docs/protocol/retention). Compacted topics cannot have it.
    - `value_schema` is where the schema of the values is, "" for none (log/value_schema.py). The job archive types by
      it.
    """

    max_batch_bytes: int = limits.BATCH_BYTES_DEFAULT_MAX
    min_insync_zones: int = limits.MIN_INSYNC_ZONES_DEFAULT
    retention_ms: int = limits.RETENTION_MS_DEFAULT
    retention_bytes: int = limits.UNLIMITED
    cleanup_policy: str = DELETE
    delete_retention_ms: int = limits.DELETE_RETENTION_MS_DEFAULT
    validate_records: bool = False
    index_tags: bool = False
    ordering_on_change: str = NONE
    retention: str = BY_TIME
    value_schema: str = NO_SCHEMA

    @property
    def is_compacted(self) -> bool:
        """True if the topic must keep only the latest record of each key."""
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def is_expiring(self) -> bool:
        """True if retention removes records by time and size."""
        return DELETE in self.cleanup_policy.split(",")

    @property
    def is_acknowledged(self) -> bool:
        """True if retention also removes what all readers have passed."""
        return self.retention == ACKNOWLEDGED


TOPIC_BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_batch_bytes": (limits.BATCH_BYTES_MIN, limits.BATCH_BYTES_MAX),
    "min_insync_zones": (1, limits.ZONES_MAX),  # and as many as there are: check_zones
    "retention_ms": (limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
    "retention_bytes": (limits.RETENTION_BYTES_MIN, limits.RETENTION_BYTES_MAX),
    "delete_retention_ms": (limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
}
TOPIC_CHOICES: Mapping[str, tuple[str, ...]] = {"ordering_on_change": ORDERINGS_ON_CHANGE, "retention": RETENTIONS}
_FLAGS = ("validate_records", "index_tags")
_POLICY_LENGTH_MAX = 100  # with room for spaces, which do not count
MAY_BE_UNLIMITED = ("retention_ms", "retention_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorNote:
    """The topic of another stage that a mirrored topic repeats, by its id. The subscription `name` there pushes it.

    `source` is the URL of that stage, for its clients; "" if the mirror does not tell it. Settings and partitions are
    those that the source had at `settings_ms`, by its clock.

    A promotion is `decided` before its first head, and nothing takes that back: by the number of its move, or by 0
    without one. It is -1 before. `refused` is the last move that was given up before that: it promotes nothing.
    """

    name: str
    topic_id: str
    source: str = ""
    settings_ms: int = 0
    decided: int = -1
    refused: int = 0


class MoveState(StrEnum):
    """The state of a move."""

    MOVED = "moved"
    """The topic takes no appends: its mirror does, or will."""
    REOPENING = "reopening"
    """The mirror has refused the move, so the heads open again, one by one."""
    RETURNING = "returning"
    """The mirror has taken over, and this topic becomes its mirror, head by head."""
    OPEN = "open"
    """The move was given up, or the topic has become a mirror. Its number is not used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveNote:
    """The last move of a topic to its mirror: its `number`, which rises, and where the topic is there.

    `mirror` is the subscription that pushes it to the stage at `url`, as the topic `topic`. Once the topic returns, it
    is the one that pushes it back.
    """

    number: int
    mirror: str
    url: str
    topic: str
    state: MoveState = MoveState.MOVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the topics table holds it; its id is never used again after it is deleted.

    `was_compacted` is true from the moment on that its `cleanup_policy` has `compact`. It stays true: compaction has
    removed records whose bytes the pages' sums still count.

    New records go to `writable_partitions` partitions from `first_writable` on. The others are draining: readers read
    them to their ends, and retention takes the last ones away once they are empty (docs/adr/0046). `writable` is None
    if all from `first_writable` on take records. `layout` rises with each change of the writable partitions.

    `generations` has the first partition of each generation, in rising order. Only the last one takes records. While
    `opening` is a number, the last one closes, and a generation of so many partitions comes (docs/protocol/partitions).

    `heads` is the number of heads, None if it is that of the partitions. The heads of partitions that went stay, closed
    and empty. They answer a client that still knows them, and their offsets go on if their numbers come back.

    `was_restored`: heads of the topic have jumps, so commits look whether they lie within one (docs/adr/0078).

    `retention_raise` notes a raise of the retention that has not reached the items of small appends (docs/adr/0064).

    `mirror` is set while pushes of another stage alone write to the topic, and `move` since it was moved to its mirror
    (docs/protocol/mirrors).

    `acknowledged_since_ms` is when an alteration set `retention=acknowledged`, None if none has.
    """

    name: TopicName
    topic_id: TopicId
    partitions: int
    created_at_ms: int
    config: TopicConfig = field(default_factory=TopicConfig)
    was_compacted: bool = False
    writable: int | None = None
    layout: int = 0
    heads: int | None = None
    generations: tuple[int, ...] = (0,)
    opening: int | None = None
    was_restored: bool = False
    retention_raise: RetentionRaise | None = None
    mirror: MirrorNote | None = None
    move: MoveNote | None = None
    acknowledged_since_ms: int | None = None

    def __post_init__(self) -> None:
        if self.config.is_compacted:
            object.__setattr__(self, "was_compacted", True)
        if self.writable == self.partitions - self.first_writable:
            object.__setattr__(self, "writable", None)
        if self.heads == self.partitions:
            object.__setattr__(self, "heads", None)

    @property
    def is_moved(self) -> bool:
        """Its mirror takes the appends, or will, or the topic is about to open again."""
        return self.move is not None and self.move.state is not MoveState.OPEN

    @property
    def first_writable(self) -> int:
        """The first partition of the newest generation."""
        return self.generations[-1]

    @property
    def writable_partitions(self) -> int:
        """The number of partitions that take new records: those from `first_writable` on."""
        return self.partitions - self.first_writable if self.writable is None else self.writable

    @property
    def writable_end(self) -> int:
        """The partition behind the last one that takes new records."""
        return self.first_writable + self.writable_partitions

    @property
    def partitions_to_come(self) -> int:
        """The number of partitions that readers see, once a generation that is opening takes the records."""
        return self.partitions if self.opening is None else self.head_count + self.opening

    def is_writable(self, partition: int) -> bool:
        """True if the partition takes new records.

        None does while a generation is opening, nor in a topic that is mirrored or moved.
        """
        is_own = self.opening is None and self.mirror is None and (self.move is None or not self.is_moved)
        return is_own and self.first_writable <= partition < self.writable_end

    def writable_place(self, number: int) -> Partition:
        """The writable partition for records of the partition with this number, or for a hash."""
        return Partition(self.first_writable + number % self.writable_partitions)

    @property
    def head_count(self) -> int:
        """The number of heads: of the partitions, and of those that went."""
        return self.partitions if self.heads is None else self.heads

    def all_partitions(self) -> tuple[Partition, ...]:
        """The numbers of all partitions, from 0."""
        return tuple(map(Partition, range(self.partitions)))

    def all_heads(self) -> tuple[Partition, ...]:
        """The numbers of all partitions, and of those that went: their heads are empty."""
        return tuple(map(Partition, range(self.head_count)))

    def with_partitions(self, partitions: int) -> "Topic":
        """The topic without its last partitions, which drained."""
        return replace(self, partitions=partitions, writable=self.writable_partitions, heads=self.head_count)

    def with_writable(self, writable: int) -> "Topic":
        """The topic with so many writable partitions, in its next layout; itself if it has them already."""
        if writable == self.writable_partitions:
            return self
        partitions = max(self.partitions, self.first_writable + writable)
        heads = max(self.head_count, partitions)
        return replace(self, partitions=partitions, writable=writable, layout=self.layout + 1, heads=heads)

    def with_opening(self, partitions: int) -> "Topic":
        """The topic whose last generation closes, for one of so many partitions; itself if it has as many."""
        if partitions == self.writable_partitions:
            return self
        return replace(self, opening=partitions, layout=self.layout + 1)

    def coming_partitions(self) -> tuple[Partition, ...]:
        """The numbers of the generation that is opening. None has ever had a record."""
        return tuple(map(Partition, range(self.head_count, self.head_count + (self.opening or 0))))

    def with_next_generation(self) -> "Topic":
        """The topic once the generation that was opening takes the records."""
        end = self.head_count + (self.opening or 0)
        return replace(
            self,
            partitions=end,
            heads=end,
            writable=None,
            generations=(*self.generations, self.head_count),
            opening=None,
        )

    def draining_partitions(self) -> tuple[Partition, ...]:
        """The last partitions, which take no new records and may go. Those of older generations are not among them."""
        return tuple(map(Partition, range(self.writable_end, self.partitions)))


def check_own(topic: Topic) -> Topic:
    """Returns the topic. Raises MOVED for one that was moved away, and what `check_not_mirrored` raises."""
    move = topic.move
    if move is None or not topic.is_moved:
        return check_not_mirrored(topic)
    raise PenstockError(
        ErrorCode.MOVED,
        f"topic {topic.name!r} was moved to its mirror {move.mirror!r}: go on with topic {move.topic!r} at {move.url}",
        url=move.url,
        topic=move.topic,
        mirror=move.mirror,
    )


def check_not_mirrored(topic: Topic) -> Topic:
    """Returns the topic. Raises MIRRORED for one that repeats another: its source alone may change it."""
    if topic.mirror is None:
        return topic
    raise PenstockError(
        ErrorCode.MIRRORED,
        f"topic {topic.name!r} is the mirror {topic.mirror.name!r} of a topic of another stage, and changes with it: "
        f"{f'send this to {topic.mirror.source}' if topic.mirror.source else 'send this to the source'}, or end the "
        "mirror by `penstock mirrors promote`",
        mirror=topic.mirror.name,
        source=topic.mirror.source,
    )


def alter_config(config: TopicConfig, changes: Mapping[str, Any]) -> TopicConfig:
    """`config` with `changes`; None sets a setting back to its default.

    Raises INVALID_CONFIG naming the setting, the value and what is allowed.
    """
    if not changes:
        return config
    known = {setting.name: setting for setting in fields(TopicConfig)}
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"unknown topic setting {shown(name)}: known are {', '.join(sorted(known))}"
            )
        checked[name] = getattr(TopicConfig(), name) if value is None else _checked(name, value)
    return replace(config, **checked)


def check_declared_topic(name: str, partitions: int, settings: Mapping[str, Any]) -> None:
    """Raises INVALID_CONFIG with all mistakes that name, number of partitions and settings have by themselves."""
    mistakes = Mistakes()
    mistakes.check(parse_own_topic_name, name)
    mistakes.check(check_partitions, partitions)
    mistakes.check_each(partial(alter_config, TopicConfig()), settings)
    with suppress(PenstockError):
        mistakes.check(check_compaction, alter_config(TopicConfig(), settings))
    mistakes.refuse(f"topic {shown(name)}")


def check_compaction(config: TopicConfig, generations: int = 1) -> None:
    """Raises INVALID_CONFIG for a compacted topic whose partitions come in generations, or will, or that readers empty.

    Compaction works within a partition. A key's old record would stay in an older generation for ever, and the
    tombstone in the newest one would go: a reader from the start would get the deleted key back.
    """
    if config.is_compacted and (config.ordering_on_change == WAIT or generations > 1):
        has = f"ordering_on_change={WAIT!r}" if config.ordering_on_change == WAIT else "older generations of partitions"
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"cleanup_policy={config.cleanup_policy!r} with {has}: compaction would leave old records of keys in the "
            f"older partitions; choose cleanup_policy={DELETE!r}, or ordering_on_change={NONE!r} in a topic that has "
            "had no change with 'wait'",
        )
    if config.is_compacted and config.is_acknowledged:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG,
            f"cleanup_policy={config.cleanup_policy!r} with retention={ACKNOWLEDGED!r}: a compacted topic keeps the "
            f"last record of each key for readers to come; choose cleanup_policy={DELETE!r}, or retention={BY_TIME!r}",
        )


def check_zones(config: TopicConfig, zone_count: int) -> None:
    """Raises INVALID_CONFIG if the topic wants more zones in sync than there are.

    The default is exempt: fewer zones meet it.
    """
    wanted = config.min_insync_zones
    if wanted > zone_count and wanted != TopicConfig().min_insync_zones:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"min_insync_zones={wanted}: must be from 1 to {zone_count}, the number of zones"
        )


_SETTINGS = tuple(setting.name for setting in fields(TopicConfig))


def config_to_json(config: TopicConfig) -> dict[str, Any]:
    """Every setting by name, as the API shows it. They are plain values, which `asdict` would copy one by one."""
    return {name: getattr(config, name) for name in _SETTINGS}


def check_partitions(count: int) -> int:
    """Returns `count`. Raises INVALID_REQUEST unless a topic may have so many partitions."""
    if not 1 <= count <= limits.TOPIC_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{shown(count)} partitions: a topic has 1 to {limits.TOPIC_PARTITIONS_MAX}",
        )
    return count


def _checked(name: str, value: Any) -> int | str:
    if name in _FLAGS:
        if not isinstance(value, bool):
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be true or false")
        return value
    if name in TOPIC_CHOICES:
        if value not in TOPIC_CHOICES[name]:
            known = " or ".join(map(repr, TOPIC_CHOICES[name]))
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be {known}")
        return str(value)
    if name == "value_schema":
        return check_value_schema(value)
    if name != "cleanup_policy":
        return _checked_number(name, value)
    is_short = isinstance(value, str) and len(value) <= _POLICY_LENGTH_MAX
    policy = ",".join(sorted(value.replace(" ", "").split(","))) if is_short else None
    if policy not in CLEANUP_POLICIES:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be {', '.join(map(repr, CLEANUP_POLICIES))}"
        )
    return str(policy)


def _checked_number(name: str, value: Any) -> int:
    low, high = TOPIC_BOUNDS[name]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_unlimited = value == limits.UNLIMITED and name in MAY_BE_UNLIMITED
    if not is_number or not (low <= value <= high or is_unlimited):
        unlimited = f", or {limits.UNLIMITED} for no limit" if name in MAY_BE_UNLIMITED else ""
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name}={shown(value)}: must be a whole number from {low} to {high}{unlimited}"
        )
    return int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """The note of a topic id without a name. Its heads and pages may be removed.

    With `is_being_created`, a creation that began at `deleted_at_ms` makes its heads, and may yet name it. At
    `heads_removed_at_ms`, if it is known, none of its heads was left.
    """

    topic_id: TopicId
    name: TopicName
    partitions: int
    deleted_at_ms: int
    is_being_created: bool = False
    heads_removed_at_ms: int | None = None


def note_of(topic: Topic, now_ms: int, *, is_being_created: bool = False) -> DeletedTopic:
    """The note of a topic that is deleted or created now."""
    return DeletedTopic(
        topic_id=topic.topic_id,
        name=topic.name,
        partitions=topic.head_count,
        deleted_at_ms=now_ms,
        is_being_created=is_being_created,
    )
