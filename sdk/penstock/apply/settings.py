"""The settings of one thing: what a file and the stage make of them, and what is lost by a change of them."""

from collections.abc import Collection, Iterator
from dataclasses import asdict, fields
from typing import Any, TypeVar

from penstock.apply.stage import Noun, Settings
from penstock.model.fields import parse_size
from penstock.model.times import duration_text, parse_duration_ms
from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.groups.group import GroupConfig, alter_group_config
from penstock_core.limits import UNLIMITED
from penstock_core.log.topic import TopicConfig, alter_config, check_compaction
from penstock_core.push.subscription import SubscriptionConfig, alter_subscription_config, new_subscription_config
from penstock_core.share.share_group import ShareGroupConfig, alter_share_group_config, new_share_group_config

FOREVER = "forever"
SCHEDULE_DEFAULTS: Settings = {"time_zone": "UTC", "enabled": True}
_BYTES = ("_bytes", "_bytes_per_s", "_bytes_max")
_TIMES = ("_ms", "_ms_min", "_ms_max")
_Config = TypeVar("_Config", TopicConfig, GroupConfig, ShareGroupConfig, SubscriptionConfig)


def whole(noun: Noun, given: Settings, known: Settings | None) -> dict[str, Any]:
    """All settings that the thing is to have: those that are given, then those of `known`, then defaults.

    A setting that an older service does not tell is missing, unless it is given. Raises INVALID_CONFIG for settings
    that do not go together, and for a change of one that is fixed.
    """
    wanted = _whole(noun, given, known)
    return {name: value for name, value in wanted.items() if known is None or name in known or name in given}


def _whole(noun: Noun, given: Settings, known: Settings | None) -> dict[str, Any]:
    config = {name: value for name, value in given.items() if name not in ("topics", "target", "partitions")}
    others = {name: value for name, value in given.items() if name not in config}
    match noun:
        case Noun.TOPIC:
            topic = alter_config(_config(TopicConfig, known), config)
            check_compaction(topic)
            return {**asdict(topic), **others}
        case Noun.GROUP:
            return {**asdict(alter_group_config(_config(GroupConfig, known), config)), **others}
        case Noun.SHARE_GROUP if known is None:
            return {**others, **asdict(new_share_group_config(config))}
        case Noun.SHARE_GROUP:
            return {**others, **asdict(alter_share_group_config(_config(ShareGroupConfig, known), config))}
        case Noun.SUBSCRIPTION if known is None:
            return {**others, **asdict(new_subscription_config(config))}
        case Noun.SUBSCRIPTION:
            return {**others, **asdict(alter_subscription_config(_config(SubscriptionConfig, known), config))}
        case Noun.SCHEDULE:
            return {**SCHEDULE_DEFAULTS, **(known or {}), **given}
        case Noun.QUOTA:
            return dict(given)


def _config(kind: type[_Config], known: Settings | None) -> _Config:
    """The config with the settings that are known. A newer service tells more than this release knows."""
    return kind(**{each.name: known[each.name] for each in fields(kind) if known is not None and each.name in known})


def defaults(noun: Noun, settings: Settings) -> Settings:
    """The settings of a thing that sets none but what decides about the others."""
    match noun:
        case Noun.TOPIC:
            return asdict(TopicConfig())
        case Noun.GROUP:
            return asdict(GroupConfig())
        case Noun.SHARE_GROUP:
            deciding = {name: settings[name] for name in ("ordering", "dead_letter_topic") if name in settings}
            return {**asdict(new_share_group_config(deciding)), **asdict_of(ShareGroupConfig(), deciding)}
        case Noun.SUBSCRIPTION:
            deciding = {name: settings[name] for name in ("dead_letter_topic",) if name in settings}
            return {**asdict(new_subscription_config(deciding)), **asdict_of(SubscriptionConfig(), deciding)}
        case Noun.SCHEDULE:
            return SCHEDULE_DEFAULTS
        case Noun.QUOTA:
            return {}


def asdict_of(config: ShareGroupConfig | SubscriptionConfig, names: Collection[str]) -> dict[str, Any]:
    """These settings of the config."""
    return {name: value for name, value in asdict(config).items() if name in names}


def losses(differing: Collection[str], known: Settings, wanted: Settings) -> Iterator[str]:
    """The losses by the change, in words. A setting that an older service does not tell may be the largest one."""
    for name in sorted(differing):
        before, after = known.get(name), wanted.get(name)
        if name == "partitions" and _falls(before, after):
            yield "the other partitions drain"
        elif "retention" in name and _falls(before, after):
            yield f"what is beyond the lower {name} goes, for ever"
        elif name == "cleanup_policy":
            yield "records go by another policy, for ever"
        elif name == "dead_letter_topic" and after is None:
            yield f"records that fail no longer go to {before}"
        elif name == "filter" and after is not None:
            yield "records that do not match the filter are passed over, for ever"
        elif name == "enabled" and after is False:
            yield "its records no longer come"
        elif name == "topics" and (left := sorted({*(before or ())} - {*(after or ())})):
            yield f"what waits in {', '.join(left)} waits on, until retention takes it"


def _falls(before: int | None, after: Any) -> bool:
    is_bound = after != UNLIMITED
    return is_bound and (before is None or before == UNLIMITED or after < before)


def unit_text(name: str, value: Any) -> Any:
    """A time of a setting with its unit, as the file may have it; another value as it is."""
    if type(value) is not int or not name.endswith(_TIMES):
        return value
    if value == UNLIMITED:
        return FOREVER
    return duration_text(value) if value > 0 else value


def whole_number(value: object) -> int:
    """The value. Raises INVALID_CONFIG if it is no whole number."""
    if type(value) is not int:
        raise PenstockError(ErrorCode.INVALID_CONFIG, f"{shown(value)} is no whole number")
    return value


def with_unit(name: str, value: Any) -> Any:
    """The value, in which `14d` is milliseconds and `10MB` is bytes. Raises INVALID_CONFIG."""
    if not isinstance(value, str):
        return value
    try:
        if name.endswith(_TIMES):
            return UNLIMITED if value == FOREVER else parse_duration_ms(value)
        return parse_size(value) if name.endswith(_BYTES) else value
    except ValueError:
        forms = f"90m, 14d or {FOREVER}" if name.endswith(_TIMES) else "10MB or 64KiB"
        raise PenstockError(
            ErrorCode.INVALID_CONFIG, f"{shown(value)}: write a number with its unit, such as {forms}"
        ) from None
