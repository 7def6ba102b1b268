"""A mapping that CloudFormation makes disabled on the emulator has that state."""

from types import SimpleNamespace
from typing import Any

import pytest

from localstack.disabled_mappings import MAPPING, Handlers, tell_disabled_mappings


@pytest.mark.parametrize(("is_enabled", "state"), [(True, "Enabled"), (False, "Disabled")])
def test_mapping_has_the_state_that_the_template_asks_for(is_enabled: bool, state: str) -> None:
    mappings: dict[str, dict[str, Any]] = {}

    def create(logical_id: str, props: dict[str, Any], stack_name: str) -> tuple[str, dict[str, str]]:
        mappings["m1"] = {"State": "Enabled", "Enabled": props["Enabled"], "of": (logical_id, stack_name)}
        return "m1", {"Id": "m1"}

    def delete(*_arguments: Any) -> None:
        """Nothing."""

    handlers: Handlers = {MAPPING: {"create": create, "delete": delete}}
    tell_disabled_mappings(handlers, SimpleNamespace(_esms=mappings))
    made = handlers[MAPPING]["create"]("Poll", {"Enabled": is_enabled}, "Penstock")
    assert made == ("m1", {"Id": "m1"})
    assert mappings["m1"] == {"State": state, "Enabled": is_enabled, "of": ("Poll", "Penstock")}
    assert handlers[MAPPING]["delete"] is delete
