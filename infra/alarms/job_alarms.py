"""Alarms on runs of retention and sweep that end without an error and still leave work undone.

A run that ends with an error rings `<function>-errors` (alarms.py). The metrics have the names of the fields that the
functions answer (`functions/penstock_handlers`). docs/how-to/operate.md says what to do when an alarm rings.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.alarm_action import tell_operators
from infra.settings import METRICS_NAMESPACE, StageSettings, service_name

_PERIOD = Duration.minutes(15)
# function, metric, meaning, periods in a row
_WATCHED = (
    ("retention", "retention_failed", "retention has failed on some partitions for an hour", 4),
    ("sweep", "sweep_failed", "a zone refused lists or deletes", 1),
    ("sweep", "objects_foreign", "sweep found objects older than the index: is it the right log table?", 1),
)


class JobAlarms(Construct):
    """`retention-failed`, `sweep-failed` and `objects-foreign`, each behind the stage's name."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: StageSettings) -> None:
        super().__init__(scope, construct_id)
        for function, metric, description, periods in _WATCHED:
            name = metric.replace("_", "-")
            alarm = cloudwatch.Alarm(
                self,
                name,
                alarm_name=f"{settings.name}-{name}",
                alarm_description=f"Penstock: {description}",
                metric=cloudwatch.Metric(
                    namespace=METRICS_NAMESPACE,
                    metric_name=metric,
                    dimensions_map={"service": service_name(settings, function)},
                    period=_PERIOD,
                    statistic="Maximum",
                ),
                threshold=1,
                comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
                evaluation_periods=periods,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            )
            tell_operators(alarm, settings)
