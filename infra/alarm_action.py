"""What every alarm does when it rings."""

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns

from infra.settings import StageSettings


def tell_operators(alarm: cloudwatch.Alarm, settings: StageSettings) -> None:
    """Have the alarm publish to the stage's topic, if it has one (the setting `alarm_topic_arn`)."""
    if settings.alarm_topic_arn:
        topic = sns.Topic.from_topic_arn(alarm, "Topic", settings.alarm_topic_arn)
        alarm.add_alarm_action(actions.SnsAction(topic))
