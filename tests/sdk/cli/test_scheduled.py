"""`penstock produce --delay` and `penstock scheduled`: records wait, are listed, and are cancelled."""

import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json


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
    assert run(service.transport, "scheduled", "cancel", "orders", name).output == "cancelled in orders[0]: 1 records\n"
    assert run_json(service.transport, "scheduled", "list", "orders") == []


@pytest.mark.parametrize(
    ("delay", "way_out"),
    [
        ("soon", "write a number with s, m, h or d\n"),
        ("-5m", "write a number with s, m, h or d\n"),
        ("forever", "write a number with s, m, h or d\n"),
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
