"""What starts deliveries of delayed records: off while no topic has ever had one."""

import json
from typing import Any

import pytest

from penstock_cdk.settings import FUNCTION_SIZES, JOB_ENVIRONMENTS, STAGES
from tests.infra.conftest import Resources
from tests.infra.templates import functions_in, name_of, of_type

pytestmark = pytest.mark.synth


@pytest.fixture
def mapping(resources: Resources) -> dict[str, Any]:
    found = of_type(resources, "AWS::Lambda::EventSourceMapping").values()
    [mapping] = [each for each in found if name_of(each["EventSourceArn"]) == "<TimersSeconds>"]
    return mapping


@pytest.fixture
def rule(resources: Resources, stage: str) -> dict[str, Any]:
    rules = of_type(resources, "AWS::Events::Rule").values()
    [rule] = [each for each in rules if each.get("Name") == f"{STAGES[stage].name}-promote"]
    return rule


def test_triggers_are_off_unless_the_stage_keeps_them_on(
    mapping: dict[str, Any], rule: dict[str, Any], stage: str
) -> None:
    is_on = STAGES[stage].timers_always_on
    assert mapping["Enabled"] is is_on
    assert rule["State"] == ("ENABLED" if is_on else "DISABLED")
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_message_comes_again_after_its_run_and_ends_as_a_dead_letter(resources: Resources, stage: str) -> None:
    queues = of_type(resources, "AWS::SQS::Queue")
    timeout_s = STAGES[stage].function_sizes["promote"].timeout_s
    assert queues["TimersSeconds"]["VisibilityTimeout"] >= timeout_s
    assert queues["TimersSeconds"]["RedrivePolicy"]["maxReceiveCount"] == 10
    assert queues["TimersDead"]["MessageRetentionPeriod"] == 14 * 24 * 3_600
    assert int(JOB_ENVIRONMENTS["promote"]["PENSTOCK_BUDGET_MS"]) < FUNCTION_SIZES["promote"].timeout_s * 1_000


def test_functions_that_take_or_deliver_delayed_records_know_the_triggers(resources: Resources) -> None:
    functions = functions_in(resources)
    told = {
        name: json.dumps(function["Environment"]["Variables"].get("PENSTOCK_TIMERS"))
        for name, function in functions.items()
        if "PENSTOCK_TIMERS" in function["Environment"]["Variables"]
    }
    assert {name.removeprefix("Functions") for name in told} == {
        f"{name}Function" for name in ("Admin", "Produce", "Transactions", "Promote", "Upkeep")
    }
    assert all("-promote" in each and "TimersSeconds" in each for each in told.values())
