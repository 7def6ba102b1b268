"""Settings of groups by Kafka's names. Those of share groups are settings of Penstock's share groups.

Kafka keeps settings of a group that does not exist yet. The gateway does the same, until a member makes the share group
at this gateway. Sessions are each member's own here, so settings of sessions have no effect.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.api.share_group_calls import alter_share_group
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_LOCK_MS_DEFAULT
from penstock_core.share.share_group import new_share_group_config
from penstock_kafka.admin.topic_settings import Setting, without_effect
from penstock_kafka.context import Context
from penstock_kafka.dispatch.names import service_name
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.share.share_groups import ShareGroups, open_share_groups

_START, _LOCK_MS, _DELIVERIES = (
    "share.auto.offset.reset",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
)
_PENSTOCK_NAMES: Mapping[str, str] = {_START: "start", _LOCK_MS: "lock_ms", _DELIVERIES: "deliveries_max"}
_DEFAULTS: Mapping[str, str] = {_LOCK_MS: str(SHARE_LOCK_MS_DEFAULT)}
_WITHOUT_EFFECT = frozenset(  # Kafka 4.3: GroupConfig
    {
        "consumer.heartbeat.interval.ms",
        "consumer.session.timeout.ms",
        "share.heartbeat.interval.ms",
        "share.isolation.level",
        "share.session.timeout.ms",
        "streams.heartbeat.interval.ms",
        "streams.num.standby.replicas",
        "streams.session.timeout.ms",
    }
)


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
            for name, own in sorted(_PENSTOCK_NAMES.items())
            if (names is None or name in names) and (value := config.get(own) or _DEFAULTS.get(name)) is not None
        ]

    def _config(self, values: Mapping[str, str | None]) -> dict[str, Any]:
        config: dict[str, Any] = {}
        for name, text in values.items():
            if name in _WITHOUT_EFFECT:
                if text is not None:
                    without_effect(name, text, is_strict=self._is_strict)
            elif name not in _PENSTOCK_NAMES:
                raise _refused(name, text, f"there is no such setting; there are {', '.join(_PENSTOCK_NAMES)}")
            elif name == _START:
                config[_PENSTOCK_NAMES[name]] = text
            else:
                config[_PENSTOCK_NAMES[name]] = None if text is None else _whole(name, text)
        new_share_group_config(config)  # a group that does not exist yet could not begin with what is refused
        return config


def open_group_settings(context: Context) -> GroupSettings:
    """The settings of groups, which the APIs that change and show them share."""
    return context.share(GroupSettings, lambda: GroupSettings(context))


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise _refused(name, text, "give a whole number")
    return int(text)


def _refused(name: str, text: str | None, why: str) -> RequestRefused:
    return RequestRefused(KafkaError.invalid_config, f"{name[:100]!r}={text!r:.100}: {why}")
