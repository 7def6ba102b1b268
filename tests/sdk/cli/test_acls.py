"""`penstock acls`, against the service in memory. `penstock quotas`: set, list, delete; and a producer that slows down
instead of failing.

`penstock audit list` shows the changes that the service has written.
"""

import pytest

from penstock import AccessDeniedError, Producer
from penstock.testing import MemoryPenstock
from penstock_core.ids import AUDIT_TOPIC
from penstock_handlers.router import LOCAL_PRINCIPAL
from penstock_service.audit.settle_audit import settle_audit
from tests.sdk.cli.command import run, run_json

SESSION = "arn:aws:sts::111122223333:assumed-role/shop/i-0abc"
SHOP = "arn:aws:iam::111122223333:role/shop"
ADD = ("acls", "add", SHOP, "write", "topic:orders")
YEAR_MS = 365 * 24 * 3_600_000


def test_rules_are_added_listed_checked_and_removed(service: MemoryPenstock) -> None:
    transport = service.transport
    added = run_json(transport, *ADD, "group:g*")
    assert [each["resource"] for each in added["added"]] == ["group:g*", "topic:orders"]
    assert "no rule is new" in run(transport, *ADD).stdout
    two = run(transport, "acls", "add", SHOP, "read", "topic:orders", "group:packing").stdout
    assert two.splitlines() == [f"added: allow {SHOP} read group:packing", f"added: allow {SHOP} read topic:orders"]
    assert f"deny {SHOP}" in run(transport, *ADD, "--deny").stdout
    found = run_json(transport, "acls", "list", "--resource", "topic:orders")
    assert [each["permission"] for each in found if each["operation"] == "write"] == ["allow", "deny"]
    assert SHOP in run(transport, "acls", "list").stdout
    denied = run(transport, "acls", "check", SHOP, "write", "topic:orders")
    assert (denied.exit_code, denied.stdout) == (1, f"{SHOP} may not write topic:orders: a deny rule\n")
    assert len(run_json(transport, "acls", "remove", SHOP, "write", "topic:orders", "--deny")["removed"]) == 1
    assert run_json(transport, "acls", "check", SHOP, "write", "topic:orders")["reason"] == "an allow rule"
    assert run_json(transport, "acls", "check", "me", "alter", "service")["is_allowed"]
    assert "there is no such rule" in run(transport, "acls", "remove", SHOP, "read", "topic:x").stdout


def test_bad_resource_is_refused_with_the_way_out(service: MemoryPenstock) -> None:
    result = run(service.transport, "acls", "add", SHOP, "read", "orders")
    assert result.exit_code == 1
    assert "give service, or KIND:NAME" in result.stderr


def test_command_of_a_refusal_grants_what_was_refused() -> None:
    with MemoryPenstock(denies_by_default=True) as service:
        service.create_topic("orders")
        with Producer(transport=service.transport_as(SESSION)) as producer, pytest.raises(AccessDeniedError) as caught:
            producer.send("orders", b"refused").result()
        assert "NOT_AUTHORIZED" in str(caught.value)
        run_json(service.transport, *ADD)
        with Producer(transport=service.transport_as(SESSION)) as producer:
            assert producer.send("orders", b"taken").result().offset == 0


def test_quota_is_set_listed_and_deleted(service: MemoryPenstock) -> None:
    made = run_json(service.transport, "quotas", "set", "principal", "*", "--produce-bytes", "5000000")
    assert made == {"subject": "principal", "name": "*", "limits": {"produce_bytes_per_s": 5_000_000}}
    assert run_json(service.transport, "quotas", "list") == [made]
    shown = run(service.transport, "quotas", "list")
    assert (shown.exit_code, "5,000,000" in shown.output) == (0, True)
    assert run(service.transport, "quotas", "delete", "principal", "*").output == "deleted the quota of principal *\n"
    assert run_json(service.transport, "quotas", "list") == []


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("set", "topic", "orders"), 2, "give at least one limit"),
        (("set", "group", "g", "--fetch-bytes", "1"), 2, "'principal', 'topic'"),
        (("set", "topic", "orders", "--fetch-bytes", "0"), 1, "fetch_bytes_per_s=0"),
        (("set", "topic", "a/b", "--fetch-bytes", "1"), 1, "a/b"),
        (("delete", "topic", "orders"), 1, "has no quota of its own"),
    ],
)
def test_mistake_names_the_value_and_the_way_out(
    service: MemoryPenstock, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    refused = run(service.transport, "quotas", *arguments)
    assert (refused.exit_code, message in refused.output + refused.stderr) == (exit_code, True)


def test_producer_over_its_quota_slows_down_and_loses_nothing(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=1)
    service.admin().set_quota("principal", LOCAL_PRINCIPAL, {"produce_requests_per_s": 20})
    with service.producer(linger_ms=0) as producer:
        for number in range(30):
            producer.send("orders", str(number).encode()).result(timeout=60)
    assert [record.value for record in service.records("orders")] == [str(number).encode() for number in range(30)]


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
