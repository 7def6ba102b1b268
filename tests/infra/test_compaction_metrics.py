"""The metrics of compaction: their filters name fields that the result line of a run has."""

from typing import Any

import pytest

from penstock_cdk.alarms.compaction_metrics import METRICS, CompactionMetrics
from penstock_cdk.alarms.failures import RARE_FAILING
from penstock_cdk.settings import STAGES
from penstock_service.compaction.compact import CompactionResult
from penstock_spark.scripts import compact
from tests.infra.conftest import Resources
from tests.infra.templates import name_of, of_type

pytestmark = pytest.mark.synth


def filters(resources: Resources) -> dict[str, dict[str, Any]]:
    """Returns the metric filters of the group that EMR logs to, by the metric that each feeds."""
    ours = [each for each in all_filters(resources) if name_of(each["LogGroupName"]) == "<JobsLogs>"]
    return {each["MetricTransformations"][0]["MetricName"]: each for each in ours}


def all_filters(resources: Resources) -> list[dict[str, Any]]:
    found = of_type(resources, "AWS::Logs::MetricFilter").items()
    return [each for name, each in found if name.startswith(CompactionMetrics.__name__)]


def of_a_run(condition: str = "") -> str:
    """The pattern of a run's result line."""
    return '($.event = "result") && ($.job = "compact") && ($.is_dry_run IS FALSE)' + condition


def test_every_metric_is_a_field_of_the_result_line_of_a_real_run(resources: Resources, stage: str) -> None:
    found = filters(resources)
    if not STAGES[stage].has_alarms:
        assert not found
        return
    assert set(found) == {*METRICS, RARE_FAILING}
    del found[RARE_FAILING]
    for metric, each in found.items():
        [transformation] = each["MetricTransformations"]
        assert transformation["MetricNamespace"] == f"Penstock/{STAGES[stage].name}"
        assert transformation["MetricValue"] == f"$.{METRICS[metric]}"
        assert METRICS[metric] in compact.COUNTED
        assert hasattr(CompactionResult(topic="", partition=0), METRICS[metric])
        assert name_of(each["LogGroupName"]) == "<JobsLogs>"
        assert each["FilterPattern"] == f"{{ {of_a_run()} }}"


@pytest.mark.parametrize("stage", ["dev", "prod"])
def test_run_that_leaves_batches_whole_or_values_untyped_counts_as_one_that_failed(
    resources: Resources, stage: str
) -> None:
    """The alarm runs-failed watches that metric (test_alarms.py)."""
    found = filters(resources)[RARE_FAILING]
    [transformation] = found["MetricTransformations"]
    assert (transformation["MetricNamespace"], transformation["MetricValue"]) == (f"Penstock/{STAGES[stage].name}", "1")
    assert name_of(found["LogGroupName"]) == "<JobsLogs>"
    left = of_a_run(" && ($.batches_left_whole > 0)")
    assert found["FilterPattern"] == f'{{ ({left}) || ($.event = "unfit") }}'
    [of_glue] = [each for each in all_filters(resources) if name_of(each["LogGroupName"]) != "<JobsLogs>"]
    assert name_of(of_glue["LogGroupName"]) == "<JobsGlueOutput>"
    assert (of_glue["FilterPattern"], of_glue["MetricTransformations"]) == (
        '{ $.event = "unfit" }',
        found["MetricTransformations"],
    )
    assert "batches_left_whole" in compact.COUNTED
