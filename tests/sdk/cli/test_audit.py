"""`penstock audit list` shows the changes that the service has written."""

from penstock.testing import MemoryPenstock
from penstock_core.ids import AUDIT_TOPIC
from penstock_service.audit.settle_audit import settle_audit
from tests.sdk.cli.command import run, run_json

YEAR_MS = 365 * 24 * 3_600_000


def settle(service: MemoryPenstock) -> None:
    assert settle_audit(service._instance, YEAR_MS, budget_ms=60_000).is_finished


def test_changes_are_listed_the_newest_first(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    assert run(service.transport, "topics", "delete", "orders", "--yes").exit_code == 0
    settle(service)
    found = run_json(service.transport, "audit", "list")
    assert [(each["action"], each["resource"]["name"]) for each in found] == [
        ("delete_topic", "orders"),
        ("create_topic", "orders"),
    ]
    assert found[0]["before"]["partitions"] == 1
    assert "delete_topic" in run(service.transport, "audit", "list", "--last", "1").stdout
    assert run_json(service.transport, "audit", "list", "--name", "other") == []


def test_nothing_is_listed_where_nothing_was_changed(service: MemoryPenstock) -> None:
    assert run_json(service.transport, "audit", "list") == []


def test_trail_is_no_topic_of_the_list(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    settle(service)
    assert AUDIT_TOPIC not in str(run_json(service.transport, "topics", "list"))
