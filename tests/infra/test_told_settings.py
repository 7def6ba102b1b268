"""The template tells the settings of its stage, and no name of an account."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.tuning.stage import settings_in
from penstock_cdk.settings import FunctionSize, StageSettings, settings_of
from penstock_cdk.told_settings import METADATA_KEY, told_settings


@pytest.mark.synth
def test_template_tells_the_settings_that_the_command_reads(
    template: Callable[[str], dict[str, Any]], stage: str
) -> None:
    told = settings_in(template(stage), "Penstock")
    assert {**told, "kms_key": False, "registry_secret": False, "reads_glue_schemas": False} == told_settings(
        settings_of(stage)
    )
    assert told["log_level"] == settings_of(stage).log_level


def test_told_settings_are_plain_json() -> None:
    told = told_settings(
        StageSettings(
            name="shop",
            scheduled_jobs=frozenset(["compact", "analyze"]),
            function_sizes={"produce": FunctionSize(memory_mb=512, timeout_s=3)},
        )
    )
    assert json.loads(json.dumps(told)) == told
    assert told["scheduled_jobs"] == ["analyze", "compact"]
    assert told["function_sizes"] == {"produce": {"memory_mb": 512, "timeout_s": 3}}


def test_told_settings_keep_names_of_the_account() -> None:
    settings = StageSettings(name="shop")
    told = told_settings(replace(settings, alarm_topic_arn="arn:aws:sns:eu-west-1:1:ops", tags={"team": "shop"}))
    assert (told["alarm_topic_arn"], told["tags"]) == (True, True)
    assert told_settings(settings)["alarm_topic_arn"] is False
    assert METADATA_KEY.isalnum()
