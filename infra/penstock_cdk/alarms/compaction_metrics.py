"""Metrics of compaction. Batches that it cannot read ring `runs-failed` (failures.py).

Filters on the jobs' log group find the metrics in the result line of each run (penstock_spark/scripts/compact.py names
its fields). Runs on EMR write to this log group. Runs on Glue write to another one, so their metrics are missing.
docs/how-to/operate.md says what to do when the alarm rings.
"""

from aws_cdk import aws_logs as logs
from constructs import Construct

from penstock_cdk.alarms.failures import RARE_FAILING
from penstock_cdk.settings import METRICS_NAMESPACE, StageSettings

_LEFT_WHOLE = "compaction_batches_left_whole"
# the name of each metric, and its field in the result line
METRICS = {
    "compaction_swaps": "runs",
    "compaction_bytes_rewritten": "bytes_after",
    "compaction_partitions_with_keys_left": "are_keys_left",
    _LEFT_WHOLE: "batches_left_whole",
}


class CompactionMetrics(Construct):
    """The `METRICS` in the namespace `Penstock/<stage>`. A run that leaves batches whole counts as one that failed."""

    def __init__(
        self, scope: Construct, construct_id: str, *, settings: StageSettings, log_group: logs.LogGroup
    ) -> None:
        super().__init__(scope, construct_id)
        namespace = f"{METRICS_NAMESPACE}/{settings.name}"
        of_a_run = (
            logs.FilterPattern.string_value("$.event", "=", "result"),
            logs.FilterPattern.string_value("$.job", "=", "compact"),
            logs.FilterPattern.boolean_value("$.is_dry_run", value=False),
        )
        is_left = logs.FilterPattern.number_value(f"$.{METRICS[_LEFT_WHOLE]}", ">", 0)
        filters = [(metric, f"$.{field}", of_a_run) for metric, field in METRICS.items()]
        for metric, value, patterns in (*filters, (RARE_FAILING, "1", (*of_a_run, is_left))):
            logs.MetricFilter(
                self,
                metric,
                log_group=log_group,
                filter_pattern=logs.FilterPattern.all(*patterns),
                metric_namespace=namespace,
                metric_name=metric,
                metric_value=value,
            )
