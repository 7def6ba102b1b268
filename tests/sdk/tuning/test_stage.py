"""The stage's settings are those of the construct, and its template tells them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.tuning.stage import STAGE, settings_in
from penstock_cdk.settings import StageSettings
from penstock_cdk.told_settings import METADATA_KEY, told_settings
from penstock_core.errors import PenstockError

IN_SETTINGS_PY = ("function_sizes", "request_rate", "route_rates")
TEMPLATE = {"Metadata": {METADATA_KEY: '{"name": "penstock"}', f"{METADATA_KEY}Queue": '{"name": "shop"}'}}


def test_section_has_each_field_with_its_default() -> None:
    told = told_settings(StageSettings(name=""))
    assert [each.name for each in STAGE.settings] == [field.name for field in fields(StageSettings)]
    for each in STAGE.settings:
        if each.name not in ("name", *IN_SETTINGS_PY):
            assert each.default == told[each.name], each.name


def test_template_tells_the_settings_of_each_construct() -> None:
    assert settings_in(TEMPLATE, "Penstock")["name"] == "penstock"
    assert settings_in(TEMPLATE, "Shop/Queue")["name"] == "shop"


@pytest.mark.parametrize(
    ("template", "stack"), [({}, "Penstock"), (TEMPLATE, "Shop/Other"), ("Resources: {}", "Penstock")]
)
def test_template_without_settings_is_refused(template: Mapping[str, Any] | str, stack: str) -> None:
    with pytest.raises(PenstockError) as raised:
        settings_in(template, stack)
    assert raised.value.code is ErrorCode.INVALID_CONFIG
