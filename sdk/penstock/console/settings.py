"""Settings in forms: a field each, named `set.NAME`. Times may be durations, such as 7d."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from penstock.errors import InvalidError
from penstock.model.times import parse_duration_ms
from penstock_core.errors import ErrorCode, shown
from penstock_core.limits import UNLIMITED
from penstock_core.log.topic import TopicConfig

PREFIX = "set."
TOPIC_DEFAULTS: Mapping[str, Any] = asdict(TopicConfig())
_TIMES = ("_ms", "_ms_min", "_ms_max")
_ENDLESS = ("forever", "unlimited")
_DIGITS_MAX = 19


def changed_settings(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings that differ from their defaults."""
    return {name: value for name, value in config.items() if value != defaults.get(name)}


def settings_of(form: Mapping[str, str], config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the form that differ from `config`, or else from their default. An empty field is the default.

    Raises InvalidError for a value that is no number or duration where the default is a number. The service checks the
    rest.
    """
    changes: dict[str, Any] = {}
    for name, default in defaults.items():
        text = form.get(PREFIX + name)
        if text is None:
            continue
        current = config.get(name, default)
        value = default if not text.strip() else _value(name, text.strip(), default)
        if value != current:
            changes[name] = None if value == default else value
    return {name: value for name, value in changes.items() if value is not None or name in config}


def _value(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        return text == "true"
    if not isinstance(default, int):
        return text
    if text in _ENDLESS or text == str(UNLIMITED):
        return UNLIMITED
    if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    try:
        if name.endswith(_TIMES):
            return parse_duration_ms(text)
    except ValueError:
        pass
    forms = "a number of milliseconds, or a duration such as 90m or 7d" if name.endswith(_TIMES) else "a whole number"
    raise InvalidError(ErrorCode.INVALID_CONFIG, f"{name}={shown(text)}: give {forms}")
