from typing import Any

import click
import pytest

from penstock.cli.options.settings import (
    BACK_TO_DEFAULT,
    CONFIG,
    GROUP_DEFAULTS,
    TOPIC_DEFAULTS,
    changed_settings_text,
    parse_settings,
    settings_text,
)
from penstock_core.limits import UNLIMITED
from tests.sdk.cli.options.parsing import parsed


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("max_batch_bytes=5000", {"max_batch_bytes": 5_000}),
        ("shift=-1", {"shift": -1}),
        ("validate_records=true", {"validate_records": True}),
        ("validate_records=false", {"validate_records": False}),
        ("assignor=range", {"assignor": "range"}),
        ("retention_ms=7d", {"retention_ms": 604_800_000}),
        ("retention_ms=forever", {"retention_ms": UNLIMITED}),
        ("retry_ms_max=1h", {"retry_ms_max": 3_600_000}),
        ("name=7d", {"name": "7d"}),
        ("name=a=b", {"name": "a=b"}),
    ],
)
def test_setting_is_a_number_a_boolean_a_duration_or_text(text: str, setting: dict[str, Any]) -> None:
    assert parse_settings([text]) == setting


@pytest.mark.parametrize("text", ["", "lock_ms", "lock_ms=", "=5", "lock_ms=soon", "lock_ms=5w"])
def test_setting_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"NAME=VALUE|is not a duration"):
        parse_settings([text])


def test_settings_are_shown_as_they_are_given() -> None:
    shown = settings_text({"validate_records": True, "retention_ms": 5, "assignor": "range"})
    assert shown == "validate_records=true retention_ms=5 assignor=range"
    assert parse_settings(shown.split()) == {"validate_records": True, "retention_ms": 5, "assignor": "range"}


@pytest.mark.parametrize("defaults", [TOPIC_DEFAULTS, GROUP_DEFAULTS])
def test_only_settings_that_differ_from_their_defaults_are_shown(defaults: dict[str, Any]) -> None:
    assert changed_settings_text(defaults, defaults) is None
    name = next(iter(defaults))
    assert changed_settings_text(defaults | {name: "x"}, defaults) == f"{name}=x"


def test_options_of_settings_may_be_repeated() -> None:
    assert parsed(CONFIG, "--config", "a=1", "--config", "b=2") == {"settings": ("a=1", "b=2")}
    assert parsed(BACK_TO_DEFAULT, "--default", "a", "--default", "b") == {"defaults": ("a", "b")}
