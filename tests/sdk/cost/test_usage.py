"""A day's real counts: from CloudWatch's metrics, and from offsets where there are none."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.cost.plot import curves, write_plot
from penstock.cost.usage import DayUsage, TopicDay, hourly_sum, price_day, usage_from_metrics, usage_from_offsets
from penstock.cost.workload import Workload
from penstock.system import wall_clock_ms
from penstock.testing import MemoryPenstock
from penstock_core.errors import PenstockError

DAY_MS = 86_400_000
ASSUMED = Workload(records_per_s=0)
SUMS = {
    ("orders", "records_received"): [600.0, 400.0],
    ("orders", "bytes_received"): [1_000_000.0],
    ("orders", "records_sent"): [2_000.0],
    ("orders", "bytes_sent"): [2_000_000.0],
    ("clicks", "records_received"): [9_000.0],
    ("clicks", "bytes_received"): [9_000_000.0],
    ("penstock-produce", "Invocations"): [500.0],
    ("penstock-fetch", "Invocations"): [300.0],
}
WORKLOAD = Workload(records_per_s=100)


class CloudWatch:
    """Answers as CloudWatch does, from `SUMS`."""

    def __init__(self, topics: tuple[str, ...] = ("orders", "clicks")) -> None:
        self._topics = topics

    def list_metrics(self, **asked: Any) -> Mapping[str, Any]:
        first, *others = self._topics or ("",)
        left = others if "NextToken" in asked else [first]
        metrics = [
            {"Dimensions": [{"Name": "service", "Value": "penstock"}, {"Name": "topic", "Value": topic}]}
            for topic in left
            if topic
        ]
        return {"Metrics": metrics} | ({"NextToken": "1"} if others and "NextToken" not in asked else {})

    def get_metric_data(self, **asked: Any) -> Mapping[str, Any]:
        assert asked["EndTime"] - asked["StartTime"] == 86_400
        return {
            "MetricDataResults": [
                {"Id": each["Id"], "Values": SUMS.get(_named(each["MetricStat"]["Metric"]), [])}
                for each in asked["MetricDataQueries"]
            ]
        }


def _named(metric: Mapping[str, Any]) -> tuple[str, str]:
    return metric["Dimensions"][-1]["Value"], metric["MetricName"]


def test_metrics_of_a_day_are_summed_by_topic() -> None:
    usage = usage_from_metrics(CloudWatch(), "penstock", 0.0)
    assert usage is not None
    assert usage.topics == [
        TopicDay(topic="clicks", records_received=9_000, bytes_received=9_000_000, records_sent=0.0, bytes_sent=0.0),
        TopicDay(
            topic="orders", records_received=1_000, bytes_received=1_000_000, records_sent=2_000, bytes_sent=2_000_000
        ),
    ]
    assert (usage.produce_requests, usage.fetch_requests) == (500, 300)


def test_stage_without_metrics_of_topics_has_no_usage() -> None:
    assert usage_from_metrics(CloudWatch(topics=()), "penstock", 0.0) is None


def test_counted_requests_are_split_by_records_and_priced() -> None:
    usage = usage_from_metrics(CloudWatch(), "penstock", 0.0)
    assert usage is not None
    clicks, orders = price_day("express3", usage, ASSUMED)
    puts = {
        price.day.topic: line.quantity
        for price in (clicks, orders)
        for line in price.lines
        if line.what == "S3 Express puts"
    }
    assert puts == pytest.approx({"clicks": 450 * 3, "orders": 50 * 3})
    assert [line.part for line in clicks.lines].count("consume") == 0  # nothing was read
    assert any(line.part == "consume" for line in orders.lines)


def test_day_without_records_costs_nothing() -> None:
    usage = DayUsage(source="offsets", topics=[TopicDay(topic="idle", records_received=0)])
    [price] = price_day("express3", usage, ASSUMED)
    assert price.usd == 0


def test_offsets_tell_the_records_of_a_day(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(10):
            producer.send("orders", b"x", partition=number % 2)
    today_ms = wall_clock_ms() - DAY_MS // 2
    with service.admin() as admin:
        [today] = usage_from_offsets(admin, today_ms).topics
        [earlier] = usage_from_offsets(admin, today_ms - 2 * DAY_MS).topics
    assert (today.topic, today.records_received, today.bytes_received) == ("orders", 10, None)
    assert earlier.records_received == 0
    [price] = price_day("express3", usage_from_offsets(service.admin(), today_ms), ASSUMED)
    assert price.usd > 0


def test_hourly_sum_asks_for_the_sums_of_hours_of_one_metric() -> None:
    asked = hourly_sum(3, "AWS/Lambda", "Invocations", {"FunctionName": "produce"})
    assert asked["Id"] == "m3"
    assert asked["MetricStat"]["Metric"] == {
        "Namespace": "AWS/Lambda",
        "MetricName": "Invocations",
        "Dimensions": [{"Name": "FunctionName", "Value": "produce"}],
    }
    assert (asked["MetricStat"]["Period"], asked["MetricStat"]["Stat"]) == (3_600, "Sum")


def test_plot_has_a_curve_for_each_system_around_the_rate() -> None:
    found = curves(WORKLOAD)
    assert len(found) == 10
    assert {len(points) for points in found.values()} == {17}
    assert found["Penstock express3"][8][0] == pytest.approx(100)


@pytest.mark.slow
def test_plot_is_written_in_the_format_of_its_name(tmp_path: Path) -> None:
    write_plot(tmp_path / "month.svg", WORKLOAD)
    assert "<svg" in (tmp_path / "month.svg").read_text()


def test_format_that_nothing_writes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot be written"):
        write_plot(tmp_path / "month.doc", WORKLOAD)


def test_missing_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PenstockError, match=r"penstock\[plot\]"):
        write_plot(tmp_path / "month.png", WORKLOAD)
