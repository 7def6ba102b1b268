"""Metrics of compaction, which filters find in the result lines of its runs, and the alarm on batches it cannot read.

The runs write to the jobs' log group on EMR; on Glue what they print goes elsewhere, and is not counted. The names are
those of the job's result line (glue_jobs/compact.py); what the operator does when it rings is in docs/running.md.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.alarm_action import tell_operators
from infra.settings import METRICS_NAMESPACE, StageSettings

_LEFT_WHOLE = "compaction_batches_left_whole"
# metric, and its field of the result line
METRICS = {
    "compaction_swaps": "runs",
    "compaction_bytes_rewritten": "bytes_after",
    "compaction_partitions_with_keys_left": "are_keys_left",
    _LEFT_WHOLE: "batches_left_whole",
}
_PERIOD = Duration.hours(1)  # as often as compaction runs by its schedule


class CompactionMetrics(Construct):
    """The METRICS in the namespace `Penstock/<stage>`, and the alarm `<stage>-batches-left-whole`."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: StageSettings, log_group: logs.LogGroup
    ) -> None:
        super().__init__(scope, construct_id)
        namespace = f"{METRICS_NAMESPACE}/{settings.name}"
        for metric, field in METRICS.items():
            logs.MetricFilter(
                self,
                metric,
                log_group=log_group,
                filter_pattern=logs.FilterPattern.all(
                    logs.FilterPattern.string_value("$.event", "=", "result"),
                    logs.FilterPattern.string_value("$.job", "=", "compact"),
                    logs.FilterPattern.boolean_value("$.is_dry_run", value=False),
                ),
                metric_namespace=namespace,
                metric_name=metric,
                metric_value=f"$.{field}",
            )
        alarm = cloudwatch.Alarm(
            self,
            "batches-left-whole",
            alarm_name=f"{settings.name}-batches-left-whole",
            alarm_description="Penstock: compaction cannot read some batches, so their partitions stay uncleaned",
            metric=cloudwatch.Metric(namespace=namespace, metric_name=_LEFT_WHOLE, period=_PERIOD, statistic="Maximum"),
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        tell_operators(alarm, settings)
