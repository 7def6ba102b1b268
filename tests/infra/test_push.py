"""What starts deliveries of subscriptions: which records of the stream reach `dispatch`, and what fails after it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk.assertions import Template

from penstock_cdk.service.push import DELIVER, DISPATCH, PushQueues, PushSource
from penstock_cdk.settings import STAGES
from penstock_cdk.storage.tables import Tables
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import (
    PUSH_LOCK_MS,
    PUSH_MESSAGE_AGE_MS_MAX,
    PUSH_SLICE_MS,
    PUSH_TARGET_MS,
    PUSH_VISIBILITY_MS,
)
from penstock_core.log.index import EMPTY_HEAD, Page, appended
from penstock_core.storage.head_item import head_item
from penstock_core.storage.page_item import page_item
from tests.infra.conftest import Resources, entry_of, resources_of
from tests.infra.powers import permissions_of_roles
from tests.infra.stream_filter import matches
from tests.infra.templates import functions_in, name_of, of_type
from tests.infra.test_targets import function
from tests.support.refs import ref_at

pytestmark = pytest.mark.synth

KEY = PartitionKey(TopicId("t1"), Partition(0))


@pytest.fixture
def stream(resources: Resources) -> dict[str, Any]:
    mapping: dict[str, Any] = of_type(resources, "AWS::Lambda::EventSourceMapping")["PushSourceStream"]
    return mapping


def test_dispatch_reads_the_logs_stream_on_every_stage(stream: dict[str, Any], stage: str) -> None:
    entry = entry_of(stage, "Dispatch")
    assert name_of(stream["EventSourceArn"]) == "<TablesLog.StreamArn>"
    assert name_of(stream["FunctionName"]) == (entry if STAGES[stage].canary is None else f"{entry}[:6]:live")
    assert (stream["StartingPosition"], stream["MaximumBatchingWindowInSeconds"]) == ("TRIM_HORIZON", 0)
    assert "Enabled" not in stream, "Lambda reads a stream at no charge"


def test_batch_that_fails_is_retried_in_halves_for_a_day_and_becomes_a_dead_letter(stream: dict[str, Any]) -> None:
    assert stream["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert stream["BisectBatchOnFunctionError"] is True
    assert (stream["MaximumRetryAttempts"], stream["MaximumRecordAgeInSeconds"]) == (-1, 24 * 3600)
    assert name_of(stream["DestinationConfig"]["OnFailure"]["Destination"]) == "<PushDead>"


def test_only_writes_that_take_a_push_waiter_pass_the_filter(stream: dict[str, Any]) -> None:
    [criteria] = stream["FilterCriteria"]["Filters"]
    pattern = json.loads(criteria["Pattern"])
    ref = ref_at(1, zones=0b011)
    waits = replace(EMPTY_HEAD, has_push_waiter=True)
    plain, waiting, after = (head_item(KEY, head) for head in (EMPTY_HEAD, waits, appended(waits, ref)))
    read = head_item(KEY, replace(EMPTY_HEAD, waiter_ms=5))
    page = page_item(KEY, Page(base_offset=Offset(0), refs=(ref,), max_timestamp_ms=1))
    assert matches(pattern, {"dynamodb": {"OldImage": waiting, "NewImage": after}})
    other = head_item(KEY, replace(waits, waiter_ms=5, evictions=1, tail_base=Offset(3), noted_log_start=Offset(2)))
    assert not matches(pattern, {"dynamodb": {"OldImage": waiting, "NewImage": other}}), "every other update"
    assert not matches(pattern, {"dynamodb": {"OldImage": waiting}}), "a deletion"
    old = {name: value for name, value in plain.items() if name != "push_waiter"}
    assert not matches(pattern, {"dynamodb": {"OldImage": old, "NewImage": after}}), "a head of an older release"
    assert not matches(pattern, {"dynamodb": {"OldImage": plain, "NewImage": after}})
    assert not matches(pattern, {"dynamodb": {"OldImage": read, "NewImage": after}})
    assert not matches(pattern, {"dynamodb": {"OldImage": plain, "NewImage": waiting}}), "arming"
    assert not matches(pattern, {"dynamodb": {"NewImage": waiting}}), "a head that begins armed"
    assert not matches(pattern, {"dynamodb": {"OldImage": page | {"push_waiter": {"N": "1"}}, "NewImage": after}})


def test_message_comes_again_after_its_lock_however_often(resources: Resources) -> None:
    queues = of_type(resources, "AWS::SQS::Queue")
    deliveries, dead = queues["PushDeliveries"], queues["PushDead"]
    assert deliveries["VisibilityTimeout"] * 1_000 == PUSH_VISIBILITY_MS > PUSH_LOCK_MS
    assert "RedrivePolicy" not in deliveries, "a message that pauses is received again and again"
    for queue in (deliveries, dead):
        kept_ms = queue["MessageRetentionPeriod"] * 1_000
        assert (kept_ms, queue["SqsManagedSseEnabled"]) == (PUSH_MESSAGE_AGE_MS_MAX, True)


def test_pollers_of_deliver_are_off_and_take_one_message_at_a_time() -> None:
    stack, settings = Stack(), STAGES["prod"]
    functions = {name: function(stack, name.title()) for name in (DISPATCH, DELIVER)}
    tables = Tables(stack, "Tables", settings=settings)
    queues = PushQueues(stack, "Push", settings=settings)
    PushSource(stack, "PushSource", settings=settings, tables=tables, queues=queues, functions=functions)
    found = resources_of(dict(Template.from_stack(stack).to_json()))
    mapping = of_type(found, "AWS::Lambda::EventSourceMapping")["PushSourceDeliveries"]
    assert (mapping["Enabled"], mapping["BatchSize"]) == (False, 1)
    assert name_of(mapping["EventSourceArn"]) == "<PushDeliveries>"
    assert name_of(mapping["FunctionName"]).startswith("<Deliver")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_lock_covers_a_delivery_and_the_function_lives_longer_than_its_longest_invocation(stage: str) -> None:
    timeout_ms = STAGES[stage].function_sizes["deliver"].timeout_s * 1_000
    assert PUSH_SLICE_MS + PUSH_TARGET_MS < timeout_ms < PUSH_LOCK_MS < PUSH_VISIBILITY_MS


def test_start_of_deliveries_may_enable_the_pollers_of_deliver_alone() -> None:
    stack, settings = Stack(), STAGES["prod"]
    queues = PushQueues(stack, "Push", settings=settings)
    statements = [stack.resolve(each.to_statement_json()) for each in queues.start_statements()]
    conditions = {each["Action"]: each.get("Condition") for each in statements}
    assert conditions.keys() == {
        "sqs:SendMessage", "lambda:ListEventSourceMappings", "lambda:UpdateEventSourceMapping", "events:EnableRule"
    }  # fmt: skip
    [named, of_aliases] = conditions["lambda:UpdateEventSourceMapping"]["ArnLike"]["lambda:FunctionArn"]
    assert name_of(named).endswith(":function:penstock-deliver")
    assert name_of(of_aliases).endswith(":function:penstock-deliver:*")


def test_retention_may_switch_deliveries_on(resources: Resources) -> None:
    powers = {each.power() for each in permissions_of_roles(resources) if each.holder == "Upkeep"}
    assert {("switch on", "deliver's pollers"), ("switch on", "the look's rule"), ("find", "every poller")} <= powers


def test_only_those_that_start_deliveries_know_the_queue(resources: Resources, stage: str) -> None:
    told = {
        name: name_of(function["Environment"]["Variables"].get("PENSTOCK_DELIVERIES"))
        for name, function in functions_in(resources).items()
        if "PENSTOCK_DELIVERIES" in function["Environment"]["Variables"]
    }
    names = ("Dispatch", "Admin", "Deliver", "Upkeep")
    starters = [f"Functions{name}Function" for name in names]
    places = f"<PushDeliveries>,<PushDeliveries>,{STAGES[stage].name}-look-at-subscriptions"
    assert told == dict.fromkeys(starters, places)


def test_look_runs_each_five_minutes_once_it_is_switched_on(resources: Resources, stage: str) -> None:
    rules = of_type(resources, "AWS::Events::Rule").values()
    [rule] = [each for each in rules if each.get("Name") == f"{STAGES[stage].name}-look-at-subscriptions"]
    assert (rule["State"], rule["ScheduleExpression"]) == ("DISABLED", "rate(5 minutes)")


def test_alarm_rings_when_something_failed_on_all_attempts(resources: Resources, stage: str) -> None:
    alarms = [each for name, each in of_type(resources, "AWS::CloudWatch::Alarm").items() if name.startswith("Push")]
    assert len(alarms) == STAGES[stage].has_alarms
    for alarm in alarms:
        assert [name_of(each["Value"]) for each in alarm["Dimensions"]] == ["<PushDead.QueueName>"]
        assert (alarm["MetricName"], alarm["Threshold"]) == ("ApproximateNumberOfMessagesVisible", 1)
