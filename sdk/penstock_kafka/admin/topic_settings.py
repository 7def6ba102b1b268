"""Topic settings by Kafka's names, and by Penstock's.

Kafka has settings that mean nothing here, such as those of its files. Tools send them, so the gateway takes them with a
warning; a strict gateway refuses them. A name that Kafka does not know is refused anyway.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock_core.log.topic import TopicConfig, alter_config, config_to_json
from penstock_kafka.errors import KafkaError, RequestRefused

_PENSTOCK_NAMES: Mapping[str, str] = {
    "cleanup.policy": "cleanup_policy",
    "delete.retention.ms": "delete_retention_ms",
    "max.message.bytes": "max_batch_bytes",
    "min.insync.replicas": "min_insync_zones",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    "penstock.index.tags": "index_tags",
    "penstock.ordering.on.change": "ordering_on_change",
    "penstock.validate.records": "validate_records",
}
_WITHOUT_EFFECT = frozenset(  # Kafka 4.3: org.apache.kafka.common.config.TopicConfig
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "preallocate",
        "remote.storage.enable",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
_FIXED: Mapping[str, str] = {"compression.type": "producer", "message.timestamp.type": "CreateTime"}
_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
_DEFAULTS = config_to_json(TopicConfig())
_LISTS = ("cleanup.policy",)

_log = logging.getLogger("penstock.kafka")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of a topic as Kafka shows it."""

    name: str
    value: str
    is_default: bool
    is_read_only: bool = False


def penstock_settings(settings: Iterable[tuple[str, str | None]], *, is_strict: bool) -> dict[str, Any]:
    """The settings as Penstock takes them. None sets one back to its default.

    Raises RequestRefused for a setting that is not known, twice there, or cannot have the value; and if the gateway
    `is_strict`, for one without effect here.
    """
    found: dict[str, Any] = {}
    for name, text in settings:
        if name in _WITHOUT_EFFECT:
            if text not in (None, _FIXED.get(name)):
                without_effect(name, text, is_strict=is_strict)
            continue
        if name not in _PENSTOCK_NAMES:
            raise _refused(name, text, f"there is no such setting; there are {', '.join(_PENSTOCK_NAMES)}")
        own = _PENSTOCK_NAMES[name]
        if own in found:
            raise _refused(name, text, "it is there twice")
        found[own] = None if text is None else _value(name, text, _DEFAULTS[own])
    return found


def without_effect(name: str, text: str, *, is_strict: bool) -> None:
    """Warn of a setting of Kafka's that changes nothing here. Raises RequestRefused if the gateway `is_strict`."""
    if is_strict:
        why = f"it is always {_FIXED[name]}" if name in _FIXED else "it has no effect here"
        raise _refused(name, text, f"{why}, and the gateway runs with --unknown-settings refuse")
    _log.warning("setting %s=%.100s was taken, and has no effect", name, text)


def changed_list(name: str, text: str | None, config: Mapping[str, Any], *, appends: bool) -> str:
    """The value of a list to which `text` was added, or from which it was taken. Raises RequestRefused for no list."""
    if name not in _LISTS:
        raise _refused(name, text, "it is no list, so set its whole value")
    before = str({**_DEFAULTS, **config}[_PENSTOCK_NAMES[name]]).split(",")
    named = [each.strip() for each in (text or "").split(",")]
    kept = [each for each in before if appends or each not in named]
    return ",".join(sorted({*kept, *named} if appends else kept))


def check(settings: Mapping[str, Any]) -> None:
    """Raises INVALID_CONFIG if a topic cannot have these settings together."""
    alter_config(TopicConfig(), settings)


def kafka_settings(config: Mapping[str, Any], wanted: Iterable[str] | None) -> list[Setting]:
    """All settings of a topic, or those that are wanted, by name. `config` may leave out those with their defaults."""
    values = {**_DEFAULTS, **config}
    found = [
        Setting(name=name, value=_text(values[own]), is_default=values[own] == _DEFAULTS[own])
        for name, own in _PENSTOCK_NAMES.items()
    ]
    found += [Setting(name=name, value=value, is_default=True, is_read_only=True) for name, value in _FIXED.items()]
    names = None if wanted is None else set(wanted)
    return sorted((each for each in found if names is None or each.name in names), key=lambda each: each.name)


def _value(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text not in _BOOLEANS:
            raise _refused(name, text, "give true or false")
        return _BOOLEANS[text]
    if isinstance(default, int):
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise _refused(name, text, "give a whole number")
        return int(text)
    return text


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(name: str, text: str | None, why: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_config, f"{name[:100]!r}={text!r:.100}: {why}")
