"""The action of every alarm: it tells the operators."""

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns

from infra.settings import StageSettings


def tell_operators(alarm: cloudwatch.Alarm, settings: StageSettings) -> None:
    """Lets the alarm publish to the SNS topic of the setting `alarm_topic_arn`, if the stage has one."""
    if settings.alarm_topic_arn:
        topic = sns.Topic.from_topic_arn(alarm, "Topic", settings.alarm_topic_arn)
        alarm.add_alarm_action(actions.SnsAction(topic))
