"""`penstock produce --delay` and `penstock scheduled`: records wait, are listed, and are cancelled. `penstock topics
rebalance`: what is hot now, by which key.
"""

from datetime import UTC, datetime, timedelta

import pytest

from penstock.testing import MemoryPenstock
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.cli.command import run, run_json

KEYS = [b"%d" % number for number in range(400)]


def test_delayed_lines_are_listed_and_cancelled(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=1)
    assert run(service.transport, "produce", "orders", "--delay", "10m", stdin=b"a\n").exit_code == 0
    assert service.records("orders") == []
    [found] = run_json(service.transport, "scheduled", "list", "orders")
    assert (found["partition"], found["records"]) == (0, 1)
    assert run_json(service.transport, "scheduled", "list", "orders", "--partition", "0") == [found]
    name = found["scheduled_id"]
    shown = run(service.transport, "scheduled", "list", "orders")
    assert (shown.exit_code, "orders: scheduled" in shown.output) == (0, True)
    assert run_json(service.transport, "scheduled", "cancel", "orders", name) == found
    assert run(service.transport, "scheduled", "cancel", "orders", name).output == "cancelled in orders[0]: 1 record\n"
    assert run_json(service.transport, "scheduled", "list", "orders") == []


@pytest.mark.parametrize(
    ("delay", "way_out"),
    [
        ("soon", "write a number with ms, s, m, h or d\n"),
        ("-5m", "write a number with ms, s, m, h or d\n"),
        ("forever", "write a number with ms, s, m, h or d\n"),
        ("366d", "give 365d at most\n"),
    ],
)
def test_wrong_delay_is_refused_with_the_value_and_the_way_out(
    service: MemoryPenstock, delay: str, way_out: str
) -> None:
    service.create_topic("orders", partitions=1)
    refused = run(service.transport, "produce", "orders", "--delay", delay, stdin=b"a\n")
    assert refused.exit_code == 2
    assert f"Invalid value for '--delay': '{delay}' is " in refused.stderr
    assert refused.stderr.endswith(way_out)
    assert run_json(service.transport, "scheduled", "list", "orders") == []
    assert run(service.transport, "produce", "orders", "--delay", "365d", stdin=b"a\n").exit_code == 0


def test_unknown_timer_is_refused(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=1)
    gone = run(service.transport, "scheduled", "cancel", "orders", f"0-5-{'0' * 32}")
    assert (gone.exit_code, "UNKNOWN_TIMER" in gone.output) == (1, True)


def test_lines_wait_until_a_time(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    assert run(service.transport, "produce", "orders", "--deliver-at", due.isoformat(), stdin=b"a\n").exit_code == 0
    [waiting] = run_json(service.transport, "scheduled", "list", "orders")
    assert waiting["deliver_at_ms"] == due.timestamp() * 1_000


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        (["--deliver-at", "soon"], "'soon' is not a time (it has another form): give an ISO 8601 time such as"),
        (["--deliver-at", "10m"], "'10m' is a duration: give it to --delay"),
        (["--deliver-at", "2026-01-01T00:00:00Z"], "s ago"),
        (["--deliver-at", "2026-01-01", "--delay", "1m"], "give --delay or --deliver-at, not both"),
    ],
)
def test_wrong_time_is_refused_with_the_way_out(service: MemoryPenstock, arguments: list[str], way_out: str) -> None:
    service.create_topic("orders")
    refused = run(service.transport, "produce", "orders", *arguments, stdin=b"a\n")
    assert refused.exit_code != 0
    assert way_out in refused.stderr


def test_hot_key_is_found_among_the_newest_records(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=4)
    with service.producer() as producer:
        for key in KEYS:
            producer.send("orders", b"v", key=key)
            producer.send("orders", b"v", key=b"whale")
            producer.send("orders", b"v", key=b"whale")
    found = run_json(service.transport, "topics", "rebalance", "orders")
    hot_number = partition_for_key(b"whale", 4)
    assert sum(each["records"] for each in found["partitions"]) == 3 * len(KEYS)
    [hot] = found["hot"]
    assert (hot["partition"], hot["key"], hot["sampled"] <= 1_000) == (hot_number, "whale", True)
    assert "More partitions do not help" in found["advice"]
    shown = run(service.transport, "topics", "rebalance", "orders").output
    assert "whale" in shown


def test_nothing_is_hot_when_records_are_old_or_even(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(300):
            producer.send("orders", b"v", partition=0, timestamp_ms=1_000 + number)
        producer.flush()
        for key in KEYS:
            producer.send("orders", b"v", key=key)
    found = run_json(service.transport, "topics", "rebalance", "orders", "--since", "1h")
    assert found["hot"] == []
    assert "Nothing to do" in found["advice"]
