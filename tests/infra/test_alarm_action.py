"""Alarms publish to the topic that the stage names, and to no topic if it names none."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import Stack, assertions

from penstock_cdk.alarms.zone_alarms import ZoneAlarms
from penstock_cdk.overrides import overridden
from penstock_cdk.settings import STAGES, StageSettings

TOPIC_ARN = "arn:aws:sns:eu-central-1:123456789012:operators"


@pytest.mark.parametrize(("topic_arn", "actions"), [(TOPIC_ARN, [TOPIC_ARN]), (None, None)])
def test_every_alarm_publishes_to_the_topic_that_the_stage_names(topic_arn: str | None, actions: Any) -> None:
    settings = replace(next(iter(STAGES.values())), alarm_topic_arn=topic_arn)
    stack = cdk.Stack()
    ZoneAlarms(stack, "Zones", settings=settings)
    alarms = assertions.Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm")
    assert len(alarms) == 2
    assert all(each["Properties"].get("AlarmActions") == actions for each in alarms.values())


@pytest.mark.minutes
@pytest.mark.parametrize(("topic_arn", "warnings"), [(TOPIC_ARN, 0), (None, 1)])
def test_alarms_that_tell_no_one_are_told_at_synthesis(
    make_stack_of: Callable[[StageSettings], Stack], topic_arn: str | None, warnings: int
) -> None:
    stack = make_stack_of(replace(STAGES["local"], has_alarms=True, alarm_topic_arn=topic_arn))
    pattern = assertions.Match.string_like_regexp("tell no one")
    assert len(assertions.Annotations.from_stack(stack).find_warning("*", pattern)) == warnings


@pytest.mark.parametrize(("given", "expected"), [({"alarm_topic_arn": TOPIC_ARN}, TOPIC_ARN), ({}, None)])
def test_context_names_the_receiver(given: dict[str, str], expected: str | None) -> None:
    assert overridden(STAGES["dev"], given.get) == replace(STAGES["dev"], alarm_topic_arn=expected)
