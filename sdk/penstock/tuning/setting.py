"""A setting as people look it up: its name, its default, its effect, and where it is set.

The values that hold, each with its source. Pure: the caller reads environment, file and service.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from typing import Any

HIDDEN = "(set)"  # in place of a secret


class Source(StrEnum):
    """Where the value of a setting comes from."""

    ARGUMENT = "argument"
    ENVIRONMENT = "environment"
    FILE = "file"
    STAGE = "stage"
    TOPIC = "topic"
    GROUP = "group"
    SHARE_GROUP = "share group"
    SUBSCRIPTION = "subscription"
    AWS = "AWS's chain"
    DEFAULT = "default"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `effect` is one sentence. `is_secret` keeps its value out of every answer."""

    name: str
    default: Any
    effect: str
    is_secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Settings that are set in one place. `how` tells where, in one sentence."""

    name: str
    title: str
    how: str
    settings: Sequence[Setting]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingValue:
    """A setting with the value that holds."""

    setting: Setting
    value: Any
    source: Source

    def to_json(self) -> dict[str, Any]:
        """All of it as the command prints it for programs."""
        return {
            "setting": self.setting.name,
            "value": self.value,
            "default": self.setting.default,
            "source": self.source.value,
            "effect": self.setting.effect,
        }


def default_of(field: "Field[Any]") -> Any:
    """The default of a dataclass's field; None if it must be given."""
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def settings_with(config: type[Any], effects: Mapping[str, str]) -> tuple[Setting, ...]:
    """The fields of a dataclass, each with its effect. Raises KeyError for a field that has none."""
    return tuple(
        Setting(name=field.name, default=default_of(field), effect=effects[field.name]) for field in fields(config)
    )


def defaults_of(section: Section) -> list[SettingValue]:
    """Each setting with its default: nobody knows the arguments of your programs."""
    return [SettingValue(setting=each, value=each.default, source=Source.DEFAULT) for each in section.settings]


def configured(section: Section, config: Mapping[str, Any], source: Source) -> list[SettingValue]:
    """The settings of one topic, group, share group, subscription or stage: `config` has those that it tells."""
    return [
        SettingValue(
            setting=each,
            value=config.get(each.name, each.default),
            source=source if config.get(each.name, each.default) != each.default else Source.DEFAULT,
        )
        for each in section.settings
    ]


def partly_known(section: Section, config: Mapping[str, Any], source: Source) -> list[SettingValue]:
    """As `configured`, but nobody knows the settings that `config` does not tell."""
    return [
        SettingValue(setting=each, value=config[each.name], source=source)
        if each.name in config
        else SettingValue(setting=each, value=None, source=Source.UNKNOWN)
        for each in section.settings
    ]


def found(
    section: Section, arguments: Mapping[str, str], environ: Mapping[str, str], file: Mapping[str, str]
) -> list[SettingValue]:
    """Environment variables, by the rules of penstock.configuration: argument, environment, file, default.

    If the file gives the URL, it gives region and keys too, and what was exported for AWS does not count.
    """
    is_of_file = "PENSTOCK_URL" not in arguments and not environ.get("PENSTOCK_URL") and "PENSTOCK_URL" in file
    values = []
    for setting in section.settings:
        name = setting.name
        exported = "" if is_of_file and name in file else environ.get(name, "")
        local = file.get(name, "") if is_of_file else ""
        value, source = next(
            (
                (text, source)
                for text, source in (
                    (arguments.get(name, ""), Source.ARGUMENT),
                    (exported, Source.ENVIRONMENT),
                    (local, Source.FILE),
                )
                if text
            ),
            (setting.default, Source.DEFAULT),
        )
        shown = HIDDEN if setting.is_secret and value else value
        values.append(SettingValue(setting=setting, value=shown, source=source))
    return values
