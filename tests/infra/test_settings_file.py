"""`-c settings=FILE`: the file may have each setting, and what is wrong in it is told with its place.

The template tells the settings of its stage, and no name of an account.
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.tuning.stage import settings_in
from penstock_cdk.overrides import settings_of_app
from penstock_cdk.settings import (
    AT_ONCE,
    FUNCTION_SIZES,
    METADATA_KEY,
    STAGES,
    FunctionSize,
    Metrics,
    StageSettings,
    settings_of,
    stack_name,
    told_settings,
)
from penstock_cdk.settings_file import with_settings_of
from penstock_cdk.walls import Jwt, reserved_concurrency

DEV = replace(STAGES["dev"], region="eu-central-1")
OPS = "arn:aws:iam::123456789012:role/ops"
WRONG: tuple[tuple[Any, str], ...] = (
    ([1], 'give a JSON object, such as {"emr_release": null}'),
    ({"metriks": "all"}, "metriks, which is no setting: do you mean metrics?"),
    ({"emr_vcpus_max": "64"}, "wrong emr_vcpus_max='64': Input should be a valid integer"),
    ({"traces": 1}, "wrong traces=1: Input should be a valid boolean"),
    ({"architecture": "arm"}, "wrong architecture='arm': Input should be 'arm64' or 'x86_64'"),
    ({"tags": {"team": 1}}, "wrong tags.team=1: Input should be a valid string"),
    ({"function_sizes": {"fetch": {"memory_mb": 512}}}, "wrong function_sizes.fetch.timeout_s="),
    ({"function_sizes": {"fetch": {"memory_mb": 512, "timeout_s": 28, "cpu": 1}}}, "wrong function_sizes.fetch.cpu=1"),
    ({"function_sizes": {"fetsh": {"memory_mb": 512, "timeout_s": 28}}}, "function_sizes has 'fetsh': name some of"),
    ({"canary": {"percent": 0, "minutes": 1}}, "give 1 to 99 percent"),
    ({"log_retention": "YEAR"}, "wrong log_retention='YEAR': give ONE_DAY, "),
    ({"audit_log_retention": "YEAR"}, "wrong audit_log_retention='YEAR': give ONE_DAY, "),
    ({"log_level": "LOUD"}, "wrong log_level='LOUD': give "),
    ({"scheduled_jobs": ["compact", "tidy"]}, "wrong scheduled_jobs='tidy': give compact, archive, analyze, sweep"),
    ({"name": "Orders"}, "give lower-case letters and digits"),
    ({"region": "Frankfurt"}, "region='Frankfurt' is no region"),
    ({"alarm_topic_arn": "operators"}, "give the ARN of an SNS topic"),
    ({"registry_secret": "arn:aws:secretsmanager:x"}, "give the name of a secret"),
    ({"kms_key": "alias/orders"}, "give the ARN of a key"),
    ({"emr_release": "8"}, "give off, or a release such as emr-spark-8.0.0"),
    ({"python_version": "3.9"}, "give one of 3.11"),
    ({"super_principals": ["ops"]}, "give ARN,ARN"),
    ({"waits_max": -1}, "waits_max=-1: give 0 or more"),
    ({"account_concurrency": -4}, "give 1 or more"),
    ({"super_principals": [""]}, "give ARN,ARN"),
    ({"private_targets": ["nonsense"]}, "'nonsense' does not appear to be an IPv4 or IPv6 network"),
    ({"function_sizes": {"fetch": {"memory_mb": 64, "timeout_s": 28}}}, "give 128 to 10,240 MB"),
    ({"request_rate": {"per_second": 0, "burst": 1}}, "give 1 request or more"),
    ({"pip_platforms": ["manylinux_2_28_x86_64"]}, "architecture='arm64' with pip_platforms"),
    ({"restored_tables": {"topics": "", "log": "l", "groups": "g", "log_stream": "s"}}, "give a name for each table"),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stage.json"


@pytest.mark.parametrize(("content", "told"), WRONG)
def test_wrong_content_is_refused_with_its_place_and_what_is_allowed(file: Path, content: Any, told: str) -> None:
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=re.escape(told)):
        settings_of_app({"stage": "dev", "settings": str(file), "acl_default": "allow"}, "eu-central-1")


@pytest.mark.parametrize("text", ["", "{", "{} {}", "\xff", '{"traces": true, "traces": false}'])
def test_file_without_json_is_refused(file: Path, text: str) -> None:
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="give a file with a JSON object"):
        with_settings_of(str(file), DEV)


@pytest.mark.parametrize("stage", STAGES)
def test_file_carries_every_setting(file: Path, stage: str) -> None:
    """Those of one stage in a file make another stage the same."""
    wanted = replace(STAGES[stage], jwt=Jwt(issuer="https://login.example", audiences=["penstock"], scopes=["use"]))
    told = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(wanted).items()}
    assert told.keys() == {each.name for each in fields(StageSettings)}
    file.write_text(json.dumps(told))
    bare = replace(DEV, function_sizes={}, route_rates={}, reserved_concurrency={}, job_environments=None)
    assert asdict(with_settings_of(str(file), bare)) == asdict(wanted)


def test_mappings_change_the_entries_that_they_name(file: Path) -> None:
    file.write_text('{"function_sizes": {"fetch": {"memory_mb": 2048, "timeout_s": 28}}, "metrics": {"of": "all"}}')
    found = with_settings_of(str(file), DEV)
    assert found.function_sizes == {**FUNCTION_SIZES, "fetch": FunctionSize(memory_mb=2048, timeout_s=28)}
    assert found.metrics == Metrics(of="all")


def test_variables_of_jobs_change_those_that_they_name(file: Path) -> None:
    file.write_text('{"job_environments": {"sweep": {"PENSTOCK_BUDGET_MS": "600000"}}}')
    found = with_settings_of(str(file), DEV).environments_of_jobs
    usual = DEV.environments_of_jobs
    assert found == {**usual, "sweep": {**usual["sweep"], "PENSTOCK_BUDGET_MS": "600000"}}


def test_architecture_takes_its_platforms_along(file: Path) -> None:
    file.write_text('{"architecture": "x86_64"}')
    found = with_settings_of(str(file), DEV)
    assert found.pip_platforms == ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


@pytest.mark.parametrize("context", [{}, {"account_concurrency": "1000"}])
def test_account_gives_shares_but_to_functions_that_the_file_names(file: Path, context: dict[str, str]) -> None:
    told = {} if context else {"account_concurrency": 1_000}
    file.write_text(json.dumps({**told, "reserved_concurrency": {"fetch": 50}, "super_principals": [OPS]}))
    found = settings_of_app({"settings": str(file), **context}, None)
    assert found.reserved_concurrency == {**reserved_concurrency(1_000), "fetch": 50}


@pytest.mark.parametrize("name", ["stage", "base", "settings", "ask", "region", "profile"])
@pytest.mark.parametrize("value", [5, True, ["dev"]])
def test_place_that_is_no_text_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*: give a text"):
        settings_of_app({name: value}, "us-east-1")


def test_no_two_stages_share_a_stack() -> None:
    names = ["prod", "dev", "orders-2", "orders2", "v1-1", "v11", "q1eu", "q1-eu"]
    stacks = [stack_name(settings_of(name)) for name in names]
    assert stacks[:3] == ["Penstock", "PenstockDev", "penstock-orders-2"]
    assert len({stack.lower() for stack in stacks}) == len(names)


def test_names_of_the_command_line_go_before_those_of_the_file(file: Path) -> None:
    file.write_text(json.dumps({"region": "eu-west-1", "waits_max": 5, "direct": True, "super_principals": [OPS]}))
    found = settings_of_app({"settings": str(file), "waits_max": "7", "canary": "off", "region": "us-west-2"}, None)
    assert (found.name, found.region, found.waits_max, found.direct) == ("penstock", "us-west-2", 7, True)
    assert (found.super_principals, found.canary) == ((OPS,), AT_ONCE)


def test_stage_of_any_name_has_the_settings_of_its_base() -> None:
    for base, expected in ((None, STAGES["prod"]), ("dev", STAGES["dev"])):
        given = {} if base is None else {"base": base}
        found = settings_of_app({"stage": "orders", **given, "super_principals": OPS}, "us-west-2")
        assert found == replace(expected, name="penstock-orders", region="us-west-2", super_principals=(OPS,))


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
