import pytest

from penstock.console.settings import changed_settings, settings_of
from penstock.errors import InvalidError

DEFAULTS = {"retention_ms": 100, "cleanup_policy": "delete", "validate_records": False, "retention_bytes": -1}


@pytest.mark.parametrize(
    ("form", "config", "changes"),
    [
        ({}, {}, {}),
        ({"set.retention_ms": "100"}, {}, {}),
        ({"set.retention_ms": "1h"}, {}, {"retention_ms": 3_600_000}),
        ({"set.retention_ms": "1h"}, {"retention_ms": 3_600_000}, {}),
        ({"set.retention_ms": "forever"}, {}, {"retention_ms": -1}),
        ({"set.retention_bytes": "unlimited"}, {"retention_bytes": 5}, {"retention_bytes": None}),
        ({"set.retention_ms": " "}, {"retention_ms": 5}, {"retention_ms": None}),
        ({"set.validate_records": "true"}, {}, {"validate_records": True}),
        ({"set.cleanup_policy": "compact", "set.other": "x", "name": "y"}, {}, {"cleanup_policy": "compact"}),
    ],
)
def test_only_changes_are_sent(form: dict[str, str], config: dict[str, object], changes: dict[str, object]) -> None:
    assert settings_of(form, config, DEFAULTS) == changes


@pytest.mark.parametrize(
    ("name", "text"), [("retention_ms", "soon"), ("retention_bytes", "1h"), ("retention_ms", "9" * 20)]
)
def test_value_that_is_no_number_is_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidError, match=f"{name}='{text}'"):
        settings_of({f"set.{name}": text}, {}, DEFAULTS)


def test_changed_settings_are_those_unlike_the_defaults() -> None:
    assert changed_settings({"retention_ms": 1, "cleanup_policy": "delete"}, DEFAULTS) == {"retention_ms": 1}
