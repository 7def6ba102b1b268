"""Metrics of compaction. Batches that it cannot read, and values that archive cannot type, ring `runs-failed`.

Filters on the jobs' log group find the metrics in the result line of each run (penstock_spark/scripts/compact.py names
its fields), and the values in the line `unfit` (penstock_spark/archive/archiving.py). Runs on EMR write to this log
group. Runs on Glue write to another one, so there the metrics of compaction are missing.
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
    """The `METRICS` in the namespace `Penstock/<stage>`.

    A run that leaves batches whole, or values untyped, counts as one that failed (failures.py).
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StageSettings,
        log_group: logs.LogGroup,
        log_group_of_glue: logs.LogGroup,
    ) -> None:
        super().__init__(scope, construct_id)
        namespace = f"{METRICS_NAMESPACE}/{settings.name}"
        of_a_run = (
            logs.FilterPattern.string_value("$.event", "=", "result"),
            logs.FilterPattern.string_value("$.job", "=", "compact"),
            logs.FilterPattern.boolean_value("$.is_dry_run", value=False),
        )
        is_left = logs.FilterPattern.number_value(f"$.{METRICS[_LEFT_WHOLE]}", ">", 0)
        is_unfit = logs.FilterPattern.string_value("$.event", "=", "unfit")
        is_bad = logs.FilterPattern.any(logs.FilterPattern.all(*of_a_run, is_left), is_unfit)
        of_every_run = logs.FilterPattern.all(*of_a_run)
        for name, group, pattern, metric, value in (
            *((metric, log_group, of_every_run, metric, f"$.{field}") for metric, field in METRICS.items()),
            (RARE_FAILING, log_group, is_bad, RARE_FAILING, "1"),
            ("of-glue", log_group_of_glue, is_unfit, RARE_FAILING, "1"),
        ):
            logs.MetricFilter(
                self,
                name,
                log_group=group,
                filter_pattern=pattern,
                metric_namespace=namespace,
                metric_name=metric,
                metric_value=value,
            )
