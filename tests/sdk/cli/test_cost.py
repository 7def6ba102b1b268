"""`penstock cost` estimates without a service, and prices a day with one. `penstock metrics` prints the figures once.
tests/sdk/metrics/test_endpoint.py has the endpoint.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json

TEAM = ("--rate", "50", "--topics", "3", "--members", "10", "--producers", "5", "--hours", "10")


@pytest.mark.parametrize(
    "arguments", [TEAM, ("--rate", "1e6", "--size", "4KiB"), ("--rate", "1", "--retention", "30d")]
)
def test_estimate_shows_levers_bill_and_others_in_80_columns_and_needs_no_service(arguments: tuple[str, ...]) -> None:
    result = run(None, "cost", *arguments)
    assert result.exit_code == 0, result.output
    order = [result.stdout.index(text) for text in ("About $", "levers, the largest", "the bill,", "next to others")]
    assert order == sorted(order)
    assert "Kinesis Advantage" in result.stdout
    assert "  unverified" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stderr == ""


def test_system_that_takes_no_such_workload_says_why() -> None:
    result = run(None, "cost", "--rate", "1", "--retention", "30d")
    assert "SQS standard takes no such workload: a queue keeps messages for 14 days at most." in result.stdout


def test_consumers_are_groups_for_one_release_and_say_so() -> None:
    old, new = (run(None, "cost", "--rate", "10", option, "3") for option in ("--consumers", "--groups"))
    assert old.stdout == new.stdout
    assert "--consumers is --groups now" in old.stderr
    assert all(option in old.stderr for option in ("--members", "--share-workers", "--subscriptions"))
    both = run(None, "cost", "--rate", "10", "--consumers", "3", "--groups", "2")
    assert both.exit_code == 2
    assert "--consumers is the old name of --groups" in both.output


def test_latency_finds_the_settings_and_takes_none_beside_it() -> None:
    result = run(None, "cost", "--rate", "50", "--max-latency", "2s", "--json")
    found = json.loads(result.stdout)["workload"]
    assert 500 < found["linger_ms"] + 1.1 * found["fetch_interval_ms"] <= 1_900
    shown = run(None, "cost", "--rate", "50", "--max-latency", "2s").stdout
    assert f"linger_ms={found['linger_ms']:g}, fetch_interval_ms={found['fetch_interval_ms']:g}." in shown
    for option in ("--linger", "--fetch-interval"):
        both = run(None, "cost", "--rate", "50", "--max-latency", "2s", option, "5")
        assert both.exit_code == 2
        assert f"leave {option} out" in both.output
    short = run(None, "cost", "--rate", "50", "--max-latency", "50ms")
    assert short.exit_code == 1
    assert "--max-latency is 50 ms" in short.output


def test_setting_of_the_stage_is_auto_or_nothing() -> None:
    assert "DynamoDB GB-months" in run(None, "cost", *TEAM).stdout
    without = run(None, "cost", *TEAM, "--inline-bytes-max", "0").stdout
    assert "DynamoDB GB-months" not in without
    assert "-c inline_bytes_max=auto" in without
    assert "'4096' is not one of '0', 'auto'" in run(None, "cost", *TEAM, "--inline-bytes-max", "4096").output


def test_estimate_as_json_has_the_same_parts(service: MemoryPenstock) -> None:
    found = run_json(service.transport, "cost", "--rate", "1000", "--profile", "standard1", "--request", "64KiB")
    assert found["system"] == "Penstock standard1"
    assert found["usd_per_month"] == pytest.approx(sum(line["usd"] for line in found["lines"]))
    assert len(found["systems"]) == 12
    assert found["workload"]["bytes_per_request"] == 65_536


@pytest.mark.parametrize("chosen", ["option", "variable"])
def test_estimate_is_by_the_transport_that_is_chosen(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TRANSPORT", "lambda" if chosen == "variable" else "http")
    option = ("--transport", "lambda") if chosen == "option" else ()
    result = run(None, "cost", "--rate", "1000", "--profile", "standard1", *option)
    assert result.exit_code == 0, result.output
    assert "a month on standard1 by lambda" in result.stdout
    assert "API Gateway requests" not in result.stdout
    assert "Penstock standard1 by embedded" in result.stdout


@pytest.mark.slow
def test_plot_is_drawn_beside_the_estimate(tmp_path: Path) -> None:
    result = run(None, "cost", "--rate", "10", "--plot", str(tmp_path / "month.png"))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "month.png").read_bytes().startswith(b"\x89PNG")


def test_day_of_a_service_is_priced_by_topic_and_says_what_is_missing(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        producer.send("orders", b"x").result()
    today = datetime.now(UTC).date().isoformat()
    found = run_json(service.transport, "cost", "--from-usage", "--day", "today")
    assert found["day"] == today
    assert [(topic["topic"], topic["records_received"]) for topic in found["topics"]] == [("orders", 1)]
    assert found["usd"] > 0
    assert any(text.startswith("bytes:") for text in found["missing"])
    shown = run(service.transport, "cost", "--from-usage")
    assert "not counted: reads" in shown.stdout


@pytest.mark.parametrize("arguments", [(), ("--rate", "1", "--from-usage")])
def test_rate_or_usage_is_wanted_and_not_both(arguments: tuple[str, ...]) -> None:
    result = run(None, "cost", *arguments)
    assert result.exit_code == 2
    assert "give --rate" in result.output


def test_number_without_sense_is_refused() -> None:
    result = run(None, "cost", "--rate", "1", "--partitions", "0")
    assert result.exit_code == 1
    assert "--partitions is 0: use a number from 1" in result.output


def test_figures_are_printed_in_prometheus_text_format(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=3)
    result = run(service.transport, "metrics")
    assert result.exit_code == 0
    assert "# TYPE penstock_topic_partitions gauge\npenstock_topic_partitions" in result.stdout
    assert 'penstock_topic_partitions{topic="orders"} 3' in run_json(service.transport, "metrics")["metrics"]


@pytest.mark.parametrize("place", ["9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", ":9464"])
def test_place_that_is_no_address_is_refused(service: MemoryPenstock, place: str) -> None:
    result = run(service.transport, "metrics", "--serve", place)
    assert result.exit_code == 2
    assert "give an address and a port" in result.output


def test_place_that_cannot_be_taken_is_told(service: MemoryPenstock) -> None:
    result = run(service.transport, "metrics", "--serve", "192.0.2.1:9464")
    assert result.exit_code == 2
    assert "cannot be taken" in result.output
