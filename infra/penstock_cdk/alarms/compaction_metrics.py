"""Metrics of compaction, and the alarm on batches that it cannot read.

Filters on the jobs' log group find the metrics in the result line of each run (penstock_spark/scripts/compact.py names
its fields). Runs on EMR write to this log group. Runs on Glue write to another one, so their metrics are missing.
docs/how-to/operate.md says what to do when the alarm rings.
"""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.alarm_action import ring
from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings

_LEFT_WHOLE = "compaction_batches_left_whole"
# the name of each metric, and its field in the result line
METRICS = {
    "compaction_swaps": "runs",
    "compaction_bytes_rewritten": "bytes_after",
    "compaction_partitions_with_keys_left": "are_keys_left",
    _LEFT_WHOLE: "batches_left_whole",
}
_PERIOD = Duration.hours(1)  # the schedule runs compaction once an hour


class CompactionMetrics(Construct):
    """The `METRICS` in the namespace `Penstock/<stage>`, and the alarm `<stage>-batches-left-whole`."""

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
        ring(
            self,
            "batches-left-whole",
            "compaction cannot read some batches, so it does not clean their partitions",
            cloudwatch.Metric(namespace=namespace, metric_name=_LEFT_WHOLE, period=_PERIOD, statistic="Maximum"),
            settings=settings,
        )
