"""How a release reaches its callers: versions, aliases, and a canary that alarms stop."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template

from penstock_cdk.overrides import overridden
from penstock_cdk.service.functions import construct_name
from penstock_cdk.service.grants import grants_of
from penstock_cdk.service.tasks import tasks_of
from penstock_cdk.settings import AT_ONCE, STAGES, Canary, StageSettings
from penstock_core.routes import ROUTES, ROUTES_OF_ALIAS, functions_of
from tests.infra.conftest import Resources, settings_named
from tests.infra.templates import functions_in, name_of, of_type

pytestmark = pytest.mark.synth

OF_API = {construct_name(route.function) for route in ROUTES}
DIRECT = {
    construct_name(f"{function}_{alias}".replace("-", "_")): "admin" not in (function, alias.removeprefix("direct-"))
    for alias in ROUTES_OF_ALIAS
    for function in functions_of(alias)
}
DIRECT_WITH_RECORDS = {name for name, has_records in DIRECT.items() if has_records}
CLOUDWATCH_LATE_S = 120
OPERATE = Path(__file__).parents[2] / "docs/how-to/upgrade.md"


def whole(template: dict[str, Any], resource_type: str) -> dict[str, dict[str, Any]]:
    """The resources of a type with their attributes, by their full logical ids."""
    found: dict[str, dict[str, Any]] = template["Resources"]
    return {name: resource for name, resource in found.items() if resource["Type"] == resource_type}


def test_each_function_has_a_version_and_an_alias_only_where_the_stage_has_a_canary(
    resources: Resources, stage: str
) -> None:
    aliases = {name: each for name, each in of_type(resources, "AWS::Lambda::Alias").items() if each["Name"] == "live"}
    versioned = {name_of(each["FunctionName"]) for each in of_type(resources, "AWS::Lambda::Version").values()}
    expected = {f"<{name}>" for name in functions_in(resources)} if STAGES[stage].canary is not None else set()
    assert versioned == {name_of(each["FunctionName"]) for each in aliases.values()} == expected
    assert bool(expected) == (stage == "prod")


def test_alias_names_the_version_of_its_function(template: Callable[[str], dict[str, Any]]) -> None:
    versions = whole(template("prod"), "AWS::Lambda::Version")
    for alias in of_type(template("prod")["Resources"], "AWS::Lambda::Alias").values():
        version, attribute = alias["FunctionVersion"]["Fn::GetAtt"]
        assert attribute == "Version"
        assert versions[version]["Properties"]["FunctionName"] == alias["FunctionName"]


def test_each_alias_that_carries_calls_of_applications_moves_by_a_deployment_group_of_its_own(
    template: Callable[[str], dict[str, Any]],
) -> None:
    """Those of direct calls take the same steps at the same time: none waits for another."""
    groups = whole(template("prod"), "AWS::CodeDeploy::DeploymentGroup")
    aliases = whole(template("prod"), "AWS::Lambda::Alias")
    moved = {}
    for name, alias in aliases.items():
        if "UpdatePolicy" in alias:
            moved[name[:-8]] = alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]["Ref"]
            assert not {each for each in alias.get("DependsOn", ()) if each in aliases}
    assert moved.keys() == {f"Releases{name}" for name in OF_API} | {
        f"DirectCalls{name}" for name in DIRECT_WITH_RECORDS
    }
    assert sorted(moved.values()) == sorted(groups)  # none is shared: a group runs one deployment at a time
    names = {group["Properties"]["DeploymentGroupName"] for group in groups.values()}
    assert len(names) == len(groups)
    assert {"penstock-produce", "penstock-produce-direct-produce", "penstock-fetch-direct-consume"} <= names
    assert len(DIRECT_WITH_RECORDS) == 5


def test_direct_aliases_without_a_canary_wait_until_all_others_have_moved(
    template: Callable[[str], dict[str, Any]],
) -> None:
    """A release that is rolled back never reaches them."""
    aliases = whole(template("prod"), "AWS::Lambda::Alias")
    moved = {name for name, alias in aliases.items() if "UpdatePolicy" in alias}
    waiting = [name for name in aliases if name.startswith("DirectCalls") and name not in moved]
    assert len(waiting) == len(DIRECT) - len(DIRECT_WITH_RECORDS)
    for name in waiting:
        assert moved <= set(aliases[name]["DependsOn"])


def test_stage_without_direct_calls_moves_the_functions_of_the_api_only(
    make_stack_of: Callable[[StageSettings], Stack],
) -> None:
    settings = replace(settings_named("prod"), name="plain", direct=False)
    found = dict(Template.from_stack(make_stack_of(settings)).to_json())
    assert len(whole(found, "AWS::CodeDeploy::DeploymentGroup")) == len(OF_API)


def test_steps_are_those_of_aws_where_it_has_them_and_else_the_stage_has_its_own(
    template: Callable[[str], dict[str, Any]], make_stack_of: Callable[[StageSettings], Stack]
) -> None:
    def steps_of(template: dict[str, Any]) -> set[str]:
        groups = whole(template, "AWS::CodeDeploy::DeploymentGroup").values()
        return {name_of(group["Properties"]["DeploymentConfigName"]) for group in groups}

    assert STAGES["prod"].canary == Canary(percent=10, minutes=10)
    assert steps_of(template("prod")) == {"CodeDeployDefault.LambdaCanary10Percent10Minutes"}
    assert not whole(template("prod"), "AWS::CodeDeploy::DeploymentConfig")
    settings = replace(settings_named("dev"), canary=Canary(percent=5, minutes=20))
    own = dict(Template.from_stack(make_stack_of(settings)).to_json())
    [steps] = whole(own, "AWS::CodeDeploy::DeploymentConfig").items()
    assert {steps[0]} == {name.strip("<>") + steps[0][-8:] for name in steps_of(own)}
    assert steps[1]["Properties"]["TrafficRoutingConfig"] == {
        "Type": "TimeBasedCanary",
        "TimeBasedCanary": {"CanaryPercentage": 5, "CanaryInterval": 20},
    }


def test_canary_goes_back_when_callers_meet_errors_or_appends_are_slow(
    template: Callable[[str], dict[str, Any]],
) -> None:
    alarms = whole(template("prod"), "AWS::CloudWatch::Alarm")
    for group in of_type(template("prod")["Resources"], "AWS::CodeDeploy::DeploymentGroup").values():
        watched = [alarms[each["Name"]["Ref"]]["Properties"] for each in group["AlarmConfiguration"]["Alarms"]]
        assert group["AlarmConfiguration"]["Enabled"] is True
        assert [alarm["AlarmName"] for alarm in watched] == ["penstock-api-5xx", "penstock-produce-slow"]
        assert group["AutoRollbackConfiguration"]["Enabled"] is True
        assert set(group["AutoRollbackConfiguration"]["Events"]) == {
            "DEPLOYMENT_FAILURE", "DEPLOYMENT_STOP_ON_ALARM", "DEPLOYMENT_STOP_ON_REQUEST",
        }  # fmt: skip


def test_alarms_of_a_canary_ring_before_it_ends(template: Callable[[str], dict[str, Any]]) -> None:
    alarms = whole(template("prod"), "AWS::CloudWatch::Alarm")
    groups = of_type(template("prod")["Resources"], "AWS::CodeDeploy::DeploymentGroup").values()
    watched = {each["Name"]["Ref"] for group in groups for each in group["AlarmConfiguration"]["Alarms"]}
    canary = STAGES["prod"].canary
    assert canary is not None
    for name in watched:
        alarm = alarms[name]["Properties"]
        first_period_s = alarm["Period"]  # of which the new version may have had only the end
        rings_after_s = first_period_s + alarm["DatapointsToAlarm"] * alarm["Period"] + CLOUDWATCH_LATE_S
        assert rings_after_s <= canary.minutes * 60


def test_functions_without_a_route_wait_for_those_of_the_api(template: Callable[[str], dict[str, Any]]) -> None:
    found = whole(template("prod"), "AWS::Lambda::Alias")
    aliases = {name: each for name, each in found.items() if name.startswith("Releases")}
    of_api = {name for name in aliases if name[:-8].removeprefix("Releases") in OF_API}
    direct = {name for name, each in found.items() if name not in aliases and "UpdatePolicy" in each}
    assert len(direct) == len(DIRECT_WITH_RECORDS)
    others = aliases.keys() - of_api
    assert {name[:-8].removeprefix("Releases") for name in others} == {
        construct_name(name) for name in grants_of(STAGES["prod"])
    } - OF_API
    for name in others:
        assert of_api | direct <= set(aliases[name]["DependsOn"])
        assert "UpdatePolicy" not in aliases[name]


def test_list_that_goes_back_by_hand_names_each_function_and_those_of_the_api_last() -> None:
    found = re.search(r"for name in ([a-z\\\s-]+); do", OPERATE.read_text(encoding="utf-8"))
    assert found is not None
    names = found[1].replace("\\\n", " ").split()
    moved = [construct_name(name.replace("-", "_")) for name in names]
    assert sorted(moved) == sorted(construct_name(name) for name in grants_of(STAGES["prod"]))
    assert set(moved[-len(OF_API) :]) == OF_API


def test_old_versions_stay_and_a_release_that_is_rolled_back_leaves_none(
    template: Callable[[str], dict[str, Any]],
) -> None:
    """Lambda publishes no version of unchanged code, so a version left behind would refuse the next attempt."""
    versions = whole(template("prod"), "AWS::Lambda::Version").values()
    assert {each["DeletionPolicy"] for each in versions} == {"RetainExceptOnCreate"}


@pytest.mark.minutes
@pytest.mark.slow
def test_setting_that_is_no_part_of_a_version_publishes_none_and_a_canary_switched_off_moves_aliases_at_once(
    template: Callable[[str], dict[str, Any]], make_stack_of: Callable[[StageSettings], Stack]
) -> None:
    context = {"canary": "off", "account_concurrency": "3000", "alarm_topic_arn": "arn:aws:sns:us-east-1:1:operators"}
    settings = replace(overridden(STAGES["prod"], context.get), tags={"cost-centre": "7"}, warm_log_writes=20_000)
    settings = replace(settings, waits_max=2)  # the number of an account of unknown size, which is in a version
    changed = dict(Template.from_stack(make_stack_of(settings)).to_json())
    assert settings.canary == AT_ONCE
    assert settings.reserved_concurrency != STAGES["prod"].reserved_concurrency
    assert whole(changed, "AWS::Lambda::Version").keys() == whole(template("prod"), "AWS::Lambda::Version").keys()
    aliases = whole(changed, "AWS::Lambda::Alias")
    assert aliases.keys() == whole(template("prod"), "AWS::Lambda::Alias").keys()
    assert not any("UpdatePolicy" in each for each in aliases.values())
    assert not [each for each in changed["Resources"].values() if each["Type"].startswith("AWS::CodeDeploy::")]


def test_lambda_does_not_repeat_a_scheduled_run_that_failed(resources: Resources, stage: str) -> None:
    settings = STAGES[stage]
    found = of_type(resources, "AWS::Lambda::EventInvokeConfig").values()
    scheduled = {construct_name(task.function) for task in tasks_of(settings).values()}
    assert {name_of(each["FunctionName"]) for each in found} == {f"<Functions{name}Function>" for name in scheduled}
    for each in found:
        name = name_of(each["FunctionName"]).removeprefix("<Functions").removesuffix("Function>")
        assert each["MaximumRetryAttempts"] == 0
        of_alias = f"<Releases{name}>[:7]"  # the last part of the alias's ARN
        assert name_of(each["Qualifier"]) == ("$LATEST" if settings.canary is None else of_alias)


@pytest.mark.parametrize(("percent", "minutes"), [(0, 10), (100, 10), (101, 0), (10, 0), (10, 2_881)])
def test_canary_that_codedeploy_would_refuse_is_refused(percent: int, minutes: int) -> None:
    with pytest.raises(ValueError, match="1 to 99 percent"):
        Canary(percent=percent, minutes=minutes)


def test_canary_without_alarms_is_refused() -> None:
    with pytest.raises(ValueError, match="no alarms that could stop it"):
        replace(STAGES["prod"], has_alarms=False)
    assert not replace(STAGES["prod"], has_alarms=False, canary=AT_ONCE).has_alarms


def test_canary_of_the_context_is_off_or_nothing() -> None:
    assert overridden(STAGES["prod"], {"canary": "off"}.get).canary == AT_ONCE
    assert overridden(STAGES["dev"], {"canary": "off"}.get).canary is None
    with pytest.raises(ValueError, match="give off"):
        overridden(STAGES["prod"], {"canary": "no"}.get)
