"""`penstock acls`, against the service in memory."""

import pytest

from penstock import AccessDeniedError, Producer
from penstock.testing import MemoryPenstock
from tests.sdk.cli.command import run, run_json

SESSION = "arn:aws:sts::111122223333:assumed-role/shop/i-0abc"
SHOP = "arn:aws:iam::111122223333:role/shop"
ADD = ("acls", "add", SHOP, "write", "topic:orders")


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
