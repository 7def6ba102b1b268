"""Alarms on what retention and sweep say of their runs: what they could not do, and objects that are none of theirs.

A run that ends with an error rings `<function>-errors` (alarms.py). These ring when a run ends well but not everything
in it did. The names of metrics are those of the functions' answers (`functions/handlers`); what the operator does then
is in docs/running.md.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.alarm_action import tell_operators
from infra.settings import METRICS_NAMESPACE, StageSettings, service_name

_PERIOD = Duration.minutes(15)
# function, metric, what it means, periods in a row
_WATCHED = (
    ("retention", "retention_failed", "partitions could not be let expire for an hour", 4),
    ("sweep", "sweep_failed", "a zone refused lists or deletes", 1),
    ("sweep", "objects_foreign", "objects are older than all that the index knows of: is it the right table?", 1),
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
