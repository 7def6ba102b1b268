"""The metrics of compaction: their filters name fields that the result line of a run has."""

from typing import Any

import pytest

from penstock_cdk.alarms.compaction_metrics import METRICS, CompactionMetrics
from penstock_cdk.settings import STAGES
from penstock_service.compaction.compact import CompactionResult
from penstock_spark.scripts import compact
from tests.infra.conftest import Resources
from tests.infra.templates import name_of, of_type

pytestmark = pytest.mark.synth


def filters(resources: Resources) -> dict[str, dict[str, Any]]:
    """Returns the metric filters by the metric that each feeds."""
    found = of_type(resources, "AWS::Logs::MetricFilter").items()
    ours = [each for name, each in found if name.startswith(CompactionMetrics.__name__)]
    return {each["MetricTransformations"][0]["MetricName"]: each for each in ours}


def test_every_metric_is_a_field_of_the_result_line_of_a_real_run(resources: Resources, stage: str) -> None:
    found = filters(resources)
    if not STAGES[stage].has_alarms:
        assert not found
        return
    assert set(found) == set(METRICS)
    for metric, each in found.items():
        [transformation] = each["MetricTransformations"]
        assert transformation["MetricNamespace"] == f"Penstock/{STAGES[stage].name}"
        assert transformation["MetricValue"] == f"$.{METRICS[metric]}"
        assert METRICS[metric] in compact.COUNTED
        assert hasattr(CompactionResult(topic="", partition=0), METRICS[metric])
        assert name_of(each["LogGroupName"]) == "<JobsLogs>"
        assert each["FilterPattern"] == ('{ ($.event = "result") && ($.job = "compact") && ($.is_dry_run IS FALSE) }')


def test_batches_that_cannot_be_cleaned_ring(resources: Resources, stage: str) -> None:
    found = of_type(resources, "AWS::CloudWatch::Alarm").items()
    alarms = [alarm for name, alarm in found if name.startswith(CompactionMetrics.__name__)]
    if not STAGES[stage].has_alarms:
        assert not alarms
        return
    [alarm] = alarms
    assert alarm["AlarmName"] == f"{STAGES[stage].name}-batches-left-whole"
    assert (alarm["Namespace"], alarm["MetricName"]) == (
        f"Penstock/{STAGES[stage].name}",
        "compaction_batches_left_whole",
    )
    assert (alarm["Statistic"], alarm["Threshold"], alarm["Period"]) == ("Maximum", 1, 3600)
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert alarm["TreatMissingData"] == "notBreaching"
