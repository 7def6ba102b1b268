"""Topic settings by Kafka's names, and by Penstock's.

Kafka has settings that mean nothing here, such as those of its files. Tools send them, so the gateway takes them with a
warning; a strict gateway refuses them. A name that Kafka does not know is refused anyway.

Settings of groups by Kafka's names. Those of share groups are settings of Penstock's share groups.

Kafka keeps settings of a group that does not exist yet. The gateway does the same, until a member makes the share group
at this gateway. Sessions are each member's own here, so settings of sessions have no effect.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.api.share_group_calls import alter_share_group
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_IN_FLIGHT_MAX, SHARE_LOCK_MS_DEFAULT
from penstock_core.log.topic import TopicConfig, alter_config, config_to_json
from penstock_core.share.share_group import new_share_group_config
from penstock_kafka.context import Context
from penstock_kafka.dispatch.names import service_name
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.share.share_groups import ShareGroups, open_share_groups

_PENSTOCK_NAMES: Mapping[str, str] = {
    "cleanup.policy": "cleanup_policy",
    "delete.retention.ms": "delete_retention_ms",
    "max.message.bytes": "max_batch_bytes",
    "min.insync.replicas": "min_insync_zones",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    "penstock.index.tags": "index_tags",
    "penstock.ordering.on.change": "ordering_on_change",
    "penstock.retention": "retention",
    "penstock.validate.records": "validate_records",
    "penstock.value.schema": "value_schema",
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
_START, _LOCK_MS, _IN_FLIGHT, _LETTERS = (
    "share.auto.offset.reset",
    "share.record.lock.duration.ms",
    "share.partition.max.record.locks",
    "errors.deadletterqueue.topic.name",
)
_PENSTOCK_GROUP_NAMES: Mapping[str, str] = {
    _START: "start",
    _LOCK_MS: "lock_ms",
    "share.delivery.count.limit": "deliveries_max",
    _IN_FLIGHT: "in_flight_max",
    _LETTERS: "dead_letter_topic",
}
_GROUP_TEXTS = (_START, _LETTERS)
_GROUP_DEFAULTS: Mapping[str, str] = {_LOCK_MS: str(SHARE_LOCK_MS_DEFAULT), _IN_FLIGHT: str(SHARE_IN_FLIGHT_MAX)}
_GROUP_WITHOUT_EFFECT = frozenset(  # Kafka 4.4: GroupConfig
    {
        "consumer.assignment.interval.ms",
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "errors.deadletterqueue.copy.record.enable",
        "share.assignment.interval.ms",
        "share.heartbeat.interval.ms",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
        "share.session.timeout.ms",
        "streams.heartbeat.interval.ms",
        "streams.num.standby.replicas",
        "streams.session.timeout.ms",
    }
)


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


class GroupSettings:
    """Changes and shows settings of groups."""

    def __init__(self, context: Context) -> None:
        self._service = context.service
        self._is_strict = context.settings.refuses_unknown_settings
        self._groups: ShareGroups = open_share_groups(context)

    async def alter(self, group: str, values: Mapping[str, str | None], *, only_checks: bool) -> None:
        """Set these, or set them back to their defaults (None). Raises RequestRefused, and what the service raises."""
        config = self._config(values)
        if only_checks or not config:
            return
        name = service_name(group)
        try:
            await self._service.call(alter_share_group(name, config, None))
            self._groups.forget(name)
        except PenstockError as error:
            if error.code is not ErrorCode.UNKNOWN_SHARE_GROUP:
                raise
            self._groups.begin_with(name, config)

    async def shown(self, group: str, wanted: Iterable[str] | None) -> list[Setting]:
        """The settings of a share group, or those that it will begin with."""
        config = await self._groups.config_of(service_name(group))
        names = None if wanted is None else set(wanted)
        return [
            Setting(name=name, value=str(value), is_default=config.get(own) is None)
            for name, own in sorted(_PENSTOCK_GROUP_NAMES.items())
            if (names is None or name in names) and (value := config.get(own) or _GROUP_DEFAULTS.get(name)) is not None
        ]

    def _config(self, values: Mapping[str, str | None]) -> dict[str, Any]:
        config: dict[str, Any] = {}
        for name, text in values.items():
            if name in _GROUP_WITHOUT_EFFECT:
                if text is not None:
                    without_effect(name, text, is_strict=self._is_strict)
            elif name not in _PENSTOCK_GROUP_NAMES:
                raise _group_refused(
                    name, text, f"there is no such setting; there are {', '.join(_PENSTOCK_GROUP_NAMES)}"
                )
            elif name in _GROUP_TEXTS:
                config[_PENSTOCK_GROUP_NAMES[name]] = text or None  # Kafka's empty name is that of no topic
            else:
                config[_PENSTOCK_GROUP_NAMES[name]] = None if text is None else _whole(name, text)
        new_share_group_config(config)  # a group that does not exist yet could not begin with what is refused
        return config


def open_group_settings(context: Context) -> GroupSettings:
    """The settings of groups, which the APIs that change and show them share."""
    return context.share(GroupSettings, lambda: GroupSettings(context))


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _group_refused(name, text, "give a whole number")
    return int(text)


def _group_refused(name: str, text: str | None, why: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_config, f"{name[:100]!r}={text!r:.100}: {why}")
