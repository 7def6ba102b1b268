"""Metrics of topics and consumers: off by default, bounded, told, with alarms on age and a dashboard."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk.assertions import Annotations, Match, Template

from bench.bill.idle_stage import bill_idle_stage
from bench.bill.synthesized import empty_shipment
from penstock_cdk import Metrics, Penstock
from penstock_cdk.overrides import overridden
from penstock_cdk.settings import STAGES, MetricsOf
from penstock_core.limits import METRIC_CONSUMERS_MAX, METRIC_TOPICS_MAX
from penstock_core.metrics.lag_memory import TopicTraffic
from penstock_handlers.edge.meters.traffic_meter import UNITS
from penstock_handlers.upkeep import wish_of_environment
from tests.infra.conftest import Resources, resources_of
from tests.infra.templates import functions_in, of_type

pytestmark = pytest.mark.synth

Make = Callable[..., Penstock]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A Penstock with the settings of `prod`, and these metrics."""

    def penstock(metrics: MetricsOf | Metrics = "all") -> Penstock:
        app = App(outdir=str(tmp_path / "out"), builtin_cloud_formation_validation=False)
        stack = Stack(app, "Shop", env=Environment(region="us-east-1"))
        settings = STAGES["prod"]
        shipment = empty_shipment(settings, tmp_path)
        return Penstock(stack, "Default", settings=settings, shipment=shipment, metrics=metrics)

    return penstock


def resources_in(queue: Penstock) -> Resources:
    return resources_of(dict(Template.from_stack(Stack.of(queue)).to_json()))


def variables_of(resources: Resources, function: str) -> dict[str, Any]:
    [found] = [each for each in functions_in(resources).values() if each["Handler"].split(".")[1] == function]
    return dict(found["Environment"]["Variables"])


def alarms_in(resources: Resources) -> dict[str, dict[str, Any]]:
    return {each["AlarmName"]: each for each in of_type(resources, "AWS::CloudWatch::Alarm").values()}


def test_stage_without_metrics_has_neither_function_nor_rule_nor_variable(make: Make) -> None:
    resources = resources_in(make("off"))
    assert "penstock-measure" not in {each["Name"] for each in of_type(resources, "AWS::Events::Rule").values()}
    assert "PENSTOCK_METRICS" not in variables_of(resources, "produce")


@pytest.mark.parametrize("of", ["topics", "all"])
def test_functions_learn_what_to_count_and_measure_runs_each_minute(make: Make, of: MetricsOf) -> None:
    resources = resources_in(make(Metrics(of=of, topics=3, consumers=4)))
    assert variables_of(resources, "produce")["PENSTOCK_METRICS"] == of
    wish = wish_of_environment(variables_of(resources, "upkeep"))
    assert (wish.topics_max, wish.consumers_max, wish.topics_only, wish.always) == (3, 4, of == "topics", [])
    [rule] = [each for each in of_type(resources, "AWS::Events::Rule").values() if each["Name"] == "penstock-measure"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 minute)", "ENABLED")


def test_bound_of_series_and_its_price_are_told(make: Make) -> None:
    queue = make(Metrics(of="all", topics=10, consumers=20, has_dashboard=True))
    metrics = queue.settings.metrics
    assert metrics.series_max == 6 * 11 + 2 * 23
    assert metrics.usd_max == pytest.approx(0.30 * 112 + 3)
    [told] = Annotations.from_stack(Stack.of(queue)).find_info("*", Match.string_like_regexp("metrics of all.*"))
    assert "$36.60 a month" in str(told.entry.data)
    assert "112 series" in str(told.entry.data)


def test_series_of_a_topic_are_those_that_the_price_counts() -> None:
    of_topics = {*TopicTraffic.__dataclass_fields__}
    assert len(of_topics) == 6
    assert UNITS.keys() - of_topics == {"records_waiting", "oldest_waited"}


def test_consumer_with_an_age_rings_when_it_was_behind_in_two_of_three_minutes(make: Make) -> None:
    queue = make()
    queue.group("billing", alarm_age_ms=300_000)
    queue.share_group("workers", ["orders"], alarm_age_ms=600_000)
    function = lambda_.Function.from_function_arn(queue, "Pack", "arn:aws:lambda:us-east-1:123456789012:function:pack")
    queue.subscription("packing", ["orders"], function, alarm_age_ms=900_000)
    resources = resources_in(queue)
    found = alarms_in(resources)
    for name, kind, consumer, age_ms in (
        ("penstock-group-billing-age", "group", "billing", 300_000),
        ("penstock-share-group-workers-age", "share_group", "workers", 600_000),
        ("penstock-subscription-packing-age", "subscription", "packing", 900_000),
    ):
        alarm = found[name]
        dimensions = {each["Name"]: each["Value"] for each in alarm["Dimensions"]}
        assert dimensions == {"service": "penstock", kind: consumer}
        assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("Penstock", "oldest_waited", "Maximum")
        assert (alarm["Threshold"], alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (age_ms, 2, 3)
        assert alarm["TreatMissingData"] == "notBreaching"
    always = variables_of(resources, "upkeep")["PENSTOCK_METRICS_ALWAYS"]
    assert always == "group/billing,share_group/workers,subscription/packing"


def test_metric_of_a_consumer_gives_it_a_series_of_its_own(make: Make) -> None:
    queue = make()
    queue.group("billing").metrics.oldest_waited()
    assert variables_of(resources_in(queue), "upkeep")["PENSTOCK_METRICS_ALWAYS"] == "group/billing"


@pytest.mark.parametrize("of", ["off", "topics"])
def test_alarm_is_refused_where_the_stage_measures_no_consumers(make: Make, of: MetricsOf) -> None:
    queue = make(of)
    queue.group("quiet")
    with pytest.raises(ValueError, match=r"group/billing.*set metrics='all'"):
        queue.group("billing", alarm_age_ms=300_000)


def test_alarm_is_refused_when_no_place_is_left(make: Make) -> None:
    queue = make(Metrics(of="all", consumers=1))
    queue.group("a", alarm_age_ms=300_000)
    with pytest.raises(ValueError, match=r"set metrics=Metrics\(of='all', consumers=2\)"):
        queue.group("b", alarm_age_ms=300_000)


def test_names_that_do_not_fit_into_the_environment_are_refused(make: Make) -> None:
    queue = make()
    for number in range(14):
        queue.group(f"{number:02}{'x' * 200}", alarm_age_ms=300_000)
    with pytest.raises(ValueError, match=r"characters: 3000 at most"):
        queue.group("x" * 200, alarm_age_ms=300_000)


@pytest.mark.parametrize("age_ms", [-1, 0, 59_999])
def test_age_below_a_minute_is_refused(make: Make, age_ms: int) -> None:
    with pytest.raises(ValueError, match="60000 or more"):
        make().group("billing", alarm_age_ms=age_ms)


def test_wrong_name_of_a_group_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match="group name"):
        make().group("bill ing")


@pytest.mark.parametrize("of", ["topics", "all"])
def test_dashboard_searches_for_what_the_stage_measures(make: Make, of: MetricsOf) -> None:
    resources = resources_in(make(Metrics(of=of, has_dashboard=True)))
    [dashboard] = of_type(resources, "AWS::CloudWatch::Dashboard").values()
    assert dashboard["DashboardName"] == "penstock"
    body = str(dashboard["DashboardBody"]).replace("\\", "")
    searches = re.findall(r"SEARCH\('\{Penstock,service,(\w+)\} service=\"penstock\" MetricName=\"(\w+)\"'", body)
    topics = {("topic", name) for name in TopicTraffic.__dataclass_fields__}
    kinds = ("group", "share_group", "subscription") if of == "all" else ()
    consumers = {(kind, name) for kind in kinds for name in ("oldest_waited", "records_waiting")}
    assert {*searches} == topics | consumers


@pytest.mark.minutes
def test_stage_with_all_metrics_that_stays_idle_costs_a_run_each_minute(make: Make) -> None:
    bills = {}
    for of in ("off", "all"):
        queue = make(of)
        template = dict(Template.from_stack(Stack.of(queue)).to_json())
        bills[of] = bill_idle_stage(template["Resources"], queue.settings.profile, "INFO").usd
    assert 0.0 < bills["all"] - bills["off"] < 0.10


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("off", Metrics()),
        ("topics", Metrics(of="topics")),
        ("all,topics=5,consumers=50", Metrics(of="all", topics=5, consumers=50)),
        ("all, dashboard", Metrics(of="all", has_dashboard=True)),
    ],
)
def test_context_changes_the_metrics(text: str, metrics: Metrics) -> None:
    assert overridden(STAGES["dev"], {"metrics": text}.get).metrics == metrics


@pytest.mark.parametrize(
    "text", ["", "on", "all,topics", "all,topics=x", "all,groups=3", "all,topics=0", "off,dashboard"]
)
def test_context_with_wrong_metrics_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="metrics"):
        overridden(STAGES["dev"], {"metrics": text}.get)


@pytest.mark.parametrize(
    "wrong", [{"topics": 0}, {"topics": METRIC_TOPICS_MAX + 1}, {"consumers": METRIC_CONSUMERS_MAX + 1}, {"of": "some"}]
)
def test_metrics_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="metrics"):
        replace(Metrics(of="all"), **wrong)
