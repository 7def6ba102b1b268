"""The lines of metrics that a function prints: of topics once a minute, and of consumers in each run of `measure`."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.metrics.lag_memory import OTHER, Consumer, ConsumerKind, TopicTraffic
from penstock_handlers.edge import lambda_function
from penstock_handlers.edge.lambda_function import observed
from penstock_handlers.edge.meters.traffic_meter import TrafficMeter, publish
from penstock_handlers.tasks import measure
from penstock_handlers.tasks.measure import wish_of_environment
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.instance.instance import Instance
from penstock_service.metrics.rank_topics import rank_topics
from tests.handlers.service import CONTEXT
from tests.support.service import Intercepted, SteppedClock, filled_topic, new_topic, patient_instance, with_stores

MINUTE_MS = 60_000
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def instance(clock: SteppedClock, monkeypatch: pytest.MonkeyPatch) -> Instance:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "penstock-dev")
    found = patient_instance(clock)
    found.traffic.is_on = True
    return found


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """The lines that were printed since the last call."""
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]


def test_line_has_the_stage_the_topic_and_a_unit_for_each_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "penstock-dev")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Penstock")
    publish("topic", "orders", {"records_received": 3, "bytes_received": 400}, 1_234)
    assert json.loads(capsys.readouterr().out) == {
        "_aws": {
            "Timestamp": 1_234,
            "CloudWatchMetrics": [
                {
                    "Namespace": "Penstock",
                    "Dimensions": [["service", "topic"]],
                    "Metrics": [
                        {"Name": "records_received", "Unit": "Count"},
                        {"Name": "bytes_received", "Unit": "Bytes"},
                    ],
                }
            ],
        },
        "service": "penstock-dev",
        "topic": "orders",
        "records_received": 3,
        "bytes_received": 400,
    }


def test_line_without_values_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    publish("topic", "orders", {}, 1_234)
    assert capsys.readouterr().out == ""


def test_traffic_is_published_with_the_first_request_and_then_once_a_minute(
    instance: Instance, clock: SteppedClock, lines: Lines
) -> None:
    new_topic(instance)
    rank_topics(instance, 10)
    meter, one = TrafficMeter(), TopicTraffic(records_received=1)
    for wait_ms, published in ((0, [1]), (30_000, []), (29_999, []), (1, [3]), (MINUTE_MS, [1])):
        clock.time_ms += wait_ms
        instance.traffic.add("orders", one)
        meter.end(instance)
        assert [each["records_received"] for each in lines()] == published


def test_topics_without_a_place_share_one_line(instance: Instance, lines: Lines) -> None:
    new_topic(instance, "orders")
    rank_topics(instance, 1)
    for topic in ("orders", "clicks", "views"):
        instance.traffic.add(topic, TopicTraffic(bytes_sent=10))
    TrafficMeter().end(instance)
    assert {each["topic"]: each["bytes_sent"] for each in lines()} == {"orders": 10, OTHER: 20}


def test_last_choice_holds_when_it_cannot_be_read(instance: Instance, clock: SteppedClock, lines: Lines) -> None:
    new_topic(instance)
    rank_topics(instance, 10)
    meter = TrafficMeter()
    instance.traffic.add("orders", TopicTraffic(bytes_sent=10))
    meter.end(instance)
    lines()

    def fail(*_arguments: object) -> object:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "down")

    broken = with_stores(instance, cursors=Intercepted(instance.stores.cursors, get=fail))
    clock.time_ms += MINUTE_MS
    instance.traffic.add("orders", TopicTraffic(bytes_sent=20))
    meter.end(broken)
    assert [(each["topic"], each["bytes_sent"]) for each in lines()] == [("orders", 20)]


def test_function_publishes_the_traffic_of_its_requests(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setattr(lambda_function, "instance", lambda: instance)
    monkeypatch.setattr(lambda_function, "traffic_meter", TrafficMeter())
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")

    def serve(_event: object, to: Instance, _stopwatch: object) -> None:
        to.traffic.add("orders", TopicTraffic(requests_throttled=1, requests_failed=1))

    observed(serve)({}, CONTEXT)
    assert [(each["topic"], each["requests_throttled"]) for each in lines() if "topic" in each] == [(OTHER, 1)]


def test_measure_publishes_lag_and_age_of_a_group(
    instance: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch, lines: Lines
) -> None:
    monkeypatch.setenv("PENSTOCK_METRICS", "all")
    monkeypatch.setenv("PENSTOCK_METRIC_SERIES", "10,20")
    filled_topic(instance, records=5)
    commit_offsets(instance, "billing", [CommitEntry(topic="orders", partition=0, offset=2)])
    clock.sleep_ms(90_000)
    assert measure.run(instance) == {
        "consumers_measured": 1,
        "consumers_published": 1,
        "topics_ranked": 1,
        "measurements_failed": 0,
        "measurement_unfinished": 0,
    }
    [line] = lines()
    assert (line["group"], line["records_waiting"], line["oldest_waited"]) == ("billing", 3, 90_000)
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["service", "group"]]


def test_wish_names_the_consumers_with_alarms() -> None:
    wish = wish_of_environment(
        {
            "PENSTOCK_METRICS": "all",
            "PENSTOCK_METRIC_SERIES": "5,7",
            "PENSTOCK_METRICS_ALWAYS": "group/billing,subscription/packing",
        }
    )
    assert (wish.topics_max, wish.consumers_max, wish.topics_only) == (5, 7, False)
    assert wish.always == [Consumer(ConsumerKind.GROUP, "billing"), Consumer(ConsumerKind.SUBSCRIPTION, "packing")]
