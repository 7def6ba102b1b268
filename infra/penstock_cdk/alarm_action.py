"""How every alarm of a stage is made, and whom it tells."""

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from penstock_cdk.settings import StageSettings


def ring(
    scope: Construct,
    name: str,
    description: str,
    metric: cloudwatch.Metric,
    *,
    settings: StageSettings,
    threshold: float = 1,
    periods: int = 1,
    bad_periods: int | None = None,
) -> cloudwatch.Alarm:
    """Makes the alarm `<stage>-<name>`, for $0.10 a month, and returns it.

    It rings when `bad_periods` of the last `periods` periods of the metric are at or above `threshold`; None means all
    of them. A period without values is a good one.
    """
    alarm = cloudwatch.Alarm(
        scope,
        name,
        alarm_name=f"{settings.name}-{name}",
        alarm_description=f"Penstock: {description}",
        metric=metric,
        threshold=threshold,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods=periods,
        datapoints_to_alarm=bad_periods,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )
    tell_operators(alarm, settings)
    return alarm


def tell_operators(alarm: cloudwatch.Alarm, settings: StageSettings) -> None:
    """Lets the alarm publish to the SNS topic of the setting `alarm_topic_arn`, if the stage has one."""
    if settings.alarm_topic_arn:
        topic = sns.Topic.from_topic_arn(alarm, "Topic", settings.alarm_topic_arn)
        alarm.add_alarm_action(actions.SnsAction(topic))
