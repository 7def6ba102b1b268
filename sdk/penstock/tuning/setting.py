"""A setting as people look it up: its name, its default, its effect, and where it is set."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from typing import Any


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
