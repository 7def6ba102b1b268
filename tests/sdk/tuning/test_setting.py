"""The sources of values: argument, environment, file, service, default. The stage's settings are those of the
construct, and its template tells them.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.tuning.environment import CONNECTION
from penstock.tuning.sections import TOPIC
from penstock.tuning.setting import Source, configured, defaults_of, found, partly_known
from penstock.tuning.stage import STAGE, settings_in
from penstock_cdk.settings import METADATA_KEY, StageSettings, told_settings
from penstock_core.errors import PenstockError

FILE = {"PENSTOCK_URL": "http://127.0.0.1:1", "AWS_REGION": "r-file", "AWS_SECRET_ACCESS_KEY": "secret"}
IN_SETTINGS_PY = ("function_sizes", "request_rate", "route_rates")
TEMPLATE = {"Metadata": {METADATA_KEY: '{"name": "penstock"}', f"{METADATA_KEY}Queue": '{"name": "shop"}'}}


def sources(
    arguments: dict[str, str], environ: dict[str, str], file: dict[str, str]
) -> dict[str, tuple[object, Source]]:
    values = found(CONNECTION, arguments, environ, file)
    return {each.setting.name: (each.value, each.source) for each in values}


def test_argument_goes_before_environment_and_file() -> None:
    known = sources({"PENSTOCK_URL": "https://a"}, {"PENSTOCK_URL": "https://b", "AWS_REGION": "r-env"}, FILE)
    assert known["PENSTOCK_URL"] == ("https://a", Source.ARGUMENT)
    assert known["AWS_REGION"] == ("r-env", Source.ENVIRONMENT)


def test_file_that_gives_the_url_gives_region_and_keys_too() -> None:
    known = sources({}, {"AWS_REGION": "r-env", "PENSTOCK_STACK": "Mine"}, FILE)
    assert known["PENSTOCK_URL"] == ("http://127.0.0.1:1", Source.FILE)
    assert known["AWS_REGION"] == ("r-file", Source.FILE)
    assert known["PENSTOCK_STACK"] == ("Mine", Source.ENVIRONMENT)


def test_file_does_not_count_when_the_environment_gives_the_url() -> None:
    known = sources({}, {"PENSTOCK_URL": "https://b"}, FILE)
    assert known["PENSTOCK_URL"] == ("https://b", Source.ENVIRONMENT)
    assert known["AWS_REGION"] == (None, Source.DEFAULT)


def test_secret_is_never_shown() -> None:
    known = sources({}, {"AWS_ACCESS_KEY_ID": "AKIA"}, FILE)
    assert known["AWS_SECRET_ACCESS_KEY"] == ("(set)", Source.FILE)
    assert known["AWS_ACCESS_KEY_ID"] == ("(set)", Source.ENVIRONMENT)


def test_nothing_given_leaves_the_defaults() -> None:
    known = sources({}, {}, {})
    assert known["PENSTOCK_STACK"] == ("Penstock", Source.DEFAULT)
    assert known["AWS_SECRET_ACCESS_KEY"] == (None, Source.DEFAULT)


def test_value_that_differs_from_its_default_is_of_its_topic() -> None:
    known = {
        each.setting.name: each for each in configured(TOPIC, {"retention_ms": 5, "index_tags": False}, Source.TOPIC)
    }
    assert (known["retention_ms"].value, known["retention_ms"].source) == (5, Source.TOPIC)
    assert (known["index_tags"].value, known["index_tags"].source) == (False, Source.DEFAULT)
    assert known["cleanup_policy"].value == "delete"


def test_value_that_nobody_tells_is_not_known() -> None:
    known = {each.setting.name: each for each in partly_known(TOPIC, {"index_tags": True}, Source.STAGE)}
    assert (known["index_tags"].value, known["index_tags"].source) == (True, Source.STAGE)
    assert (known["retention_ms"].value, known["retention_ms"].source) == (None, Source.UNKNOWN)


def test_defaults_are_the_values_of_options() -> None:
    assert all(each.value == each.setting.default and each.source is Source.DEFAULT for each in defaults_of(TOPIC))


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
