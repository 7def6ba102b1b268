"""A topic and its settings."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, TopicId, TopicName

DELETE, COMPACT = "delete", "compact"
CLEANUP_POLICIES = (DELETE, COMPACT, f"{COMPACT},{DELETE}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Settings of a topic, each with its default. `retention_bytes` is for each partition; `cleanup_policy` is one of
    `CLEANUP_POLICIES`; `delete_retention_ms` is how long compaction keeps a tombstone after it has removed what that
    deletes."""

    max_batch_bytes: int = limits.BATCH_BYTES_DEFAULT_MAX
    min_insync_zones: int = limits.MIN_INSYNC_ZONES_DEFAULT
    retention_ms: int = limits.RETENTION_MS_DEFAULT
    retention_bytes: int = limits.UNLIMITED
    cleanup_policy: str = DELETE
    delete_retention_ms: int = limits.DELETE_RETENTION_MS_DEFAULT

    @property
    def is_compacted(self) -> bool:
        """Whether only the latest record of each key has to be kept."""
        return COMPACT in self.cleanup_policy.split(",")

    @property
    def is_expiring(self) -> bool:
        """Whether records go by time and size."""
        return DELETE in self.cleanup_policy.split(",")


_BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_batch_bytes": (limits.BATCH_BYTES_MIN, limits.BATCH_BYTES_MAX),
    "min_insync_zones": (1, limits.ZONES_MAX),  # and as many as there are: check_zones
    "retention_ms": (limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
    "retention_bytes": (limits.RETENTION_BYTES_MIN, limits.RETENTION_BYTES_MAX),
    "delete_retention_ms": (limits.RETENTION_MS_MIN, limits.RETENTION_MS_MAX),
}
_MAY_BE_UNLIMITED = ("retention_ms", "retention_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as the topics table holds it; its id is never used again after it is deleted."""

    name: TopicName
    topic_id: TopicId
    partitions: int
    created_at_ms: int
    config: TopicConfig = field(default_factory=TopicConfig)

    def all_partitions(self) -> tuple[Partition, ...]:
        return tuple(map(Partition, range(self.partitions)))


def alter_config(config: TopicConfig, changes: Mapping[str, Any]) -> TopicConfig:
    """`config` with `changes`; None sets a setting back to its default.

    Raises INVALID_CONFIG naming the setting, the value and what is allowed.
    """
    known = {setting.name: setting for setting in fields(TopicConfig)}
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise PenstockError(
                ErrorCode.INVALID_CONFIG, f"unknown topic setting {name!r}: known are {', '.join(sorted(known))}"
            )
        checked[name] = getattr(TopicConfig(), name) if value is None else _checked(name, value)
    return replace(config, **checked)


def check_zones(config: TopicConfig, zone_count: int) -> None:
    """Raises INVALID_CONFIG if the topic wants more zones in sync than there are; the default is met by fewer zones."""
    wanted = config.min_insync_zones
    if wanted > zone_count and wanted != TopicConfig().min_insync_zones:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"min_insync_zones={wanted}: must be from 1 to {zone_count}, the number of zones"
        )


def config_to_json(config: TopicConfig) -> dict[str, Any]:
    """Every setting by name, as the API shows it."""
    return asdict(config)


def check_partitions(count: int) -> int:
    """Raises INVALID_REQUEST unless a topic may have `count` partitions."""
    if not 1 <= count <= limits.TOPIC_PARTITIONS_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"{count} partitions: a topic has 1 to {limits.TOPIC_PARTITIONS_MAX}",
        )
    return count


def _checked(name: str, value: Any) -> int | str:
    if name != "cleanup_policy":
        return _checked_number(name, value)
    policy = ",".join(sorted(value.replace(" ", "").split(","))) if isinstance(value, str) else value
    if policy not in CLEANUP_POLICIES:
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name}={value!r}: must be {', '.join(map(repr, CLEANUP_POLICIES))}"
        )
    return str(policy)


def _checked_number(name: str, value: Any) -> int:
    low, high = _BOUNDS[name]
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_unlimited = value == limits.UNLIMITED and name in _MAY_BE_UNLIMITED
    if not is_number or not (low <= value <= high or is_unlimited):
        unlimited = f", or {limits.UNLIMITED} for no limit" if name in _MAY_BE_UNLIMITED else ""
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{name}={value!r}: must be a whole number from {low} to {high}{unlimited}"
        )
    return int(value)
