"""The alarms on runs of retention and sweep watch metrics that these functions emit."""

from typing import Any

import pytest

from infra.alarms.job_alarms import JobAlarms
from infra.settings import JOB_ENVIRONMENTS, STAGES
from penstock_handlers import retention, sweep
from penstock_service.adapters.memory.service import memory_instance
from tests.infra.conftest import Resources
from tests.infra.templates import of_type

pytestmark = pytest.mark.synth


def job_alarms(resources: Resources) -> dict[str, dict[str, Any]]:
    found = of_type(resources, "AWS::CloudWatch::Alarm").items()
    return {alarm["AlarmName"]: alarm for name, alarm in found if name.startswith(JobAlarms.__name__)}


def test_alarm_rings_when_a_run_leaves_work_undone(resources: Resources, stage: str) -> None:
    name = STAGES[stage].name
    rings_after_s = {
        alarm_name: alarm["Period"] * alarm["EvaluationPeriods"] for alarm_name, alarm in job_alarms(resources).items()
    }
    expected = {f"{name}-retention-failed": 3600, f"{name}-sweep-failed": 900, f"{name}-objects-foreign": 900}
    assert rings_after_s == (expected if STAGES[stage].has_alarms else {})


def test_alarms_watch_what_the_functions_emit(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
    for variables in (JOB_ENVIRONMENTS["retention"], JOB_ENVIRONMENTS["sweep"]):
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
    emitted = {"retention": retention.run(memory_instance()), "sweep": sweep.run(memory_instance())}
    services = {
        function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        for function in of_type(resources, "AWS::Lambda::Function").values()
    }
    for alarm in job_alarms(resources).values():
        [dimension] = alarm["Dimensions"]
        assert dimension["Name"] == "service"
        assert dimension["Value"] in services
        assert alarm["MetricName"] in emitted[dimension["Value"].rpartition("-")[2]]
        assert (alarm["Namespace"], alarm["Statistic"], alarm["Threshold"]) == ("Penstock", "Maximum", 1)
        assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
        assert alarm["TreatMissingData"] == "notBreaching"
