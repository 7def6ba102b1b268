"""Alarms publish to the topic that the stage names, and to no topic if it names none."""

from dataclasses import replace
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_logs as logs

from infra.alarms.compaction_metrics import CompactionMetrics
from infra.alarms.job_alarms import JobAlarms
from infra.alarms.zone_alarms import ZoneAlarms
from infra.settings import STAGES

TOPIC_ARN = "arn:aws:sns:eu-central-1:123456789012:operators"


@pytest.mark.parametrize(("topic_arn", "actions"), [(TOPIC_ARN, [TOPIC_ARN]), (None, None)])
def test_every_alarm_publishes_to_the_topic_that_the_stage_names(topic_arn: str | None, actions: Any) -> None:
    settings = replace(next(iter(STAGES.values())), alarm_topic_arn=topic_arn)
    stack = cdk.Stack()
    JobAlarms(stack, "Jobs", settings=settings)
    ZoneAlarms(stack, "Zones", settings=settings)
    CompactionMetrics(stack, "Compaction", settings=settings, log_group=logs.LogGroup(stack, "Logs"))
    alarms = assertions.Template.from_stack(stack).find_resources("AWS::CloudWatch::Alarm")
    assert len(alarms) > 5
    assert all(each["Properties"].get("AlarmActions") == actions for each in alarms.values())
