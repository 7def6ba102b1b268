"""`penstock produce --delay` and `penstock scheduled`: records wait, are listed, and are cancelled."""

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


def test_wrong_delay_and_unknown_id_are_refused(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=1)
    assert run(service.transport, "produce", "orders", "--delay", "soon", stdin=b"a").exit_code == 2
    assert run(service.transport, "produce", "orders", "--delay", "366d", stdin=b"a").exit_code == 1
    gone = run(service.transport, "scheduled", "cancel", "orders", f"0-5-{'0' * 32}")
    assert (gone.exit_code, "UNKNOWN_TIMER" in gone.output) == (1, True)
