"""Delayed records, access rules, quotas and the audit trail."""

from penstock.model.access import AccessRule
from penstock.testing import MemoryPenstock
from tests.sdk.cli.test_acls import settle
from tests.sdk.console.visitor import Visitor

ARN = "arn:aws:iam::111122223333:role/ledger"


def test_delayed_records_are_shown_and_cancelled(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("orders")
    with service.producer() as producer:
        sent = producer.send("orders", "later", delay_ms=3_600_000, cancellable=True)
        producer.flush()
    scheduled_id = sent.result().scheduled_id
    seen = visitor.get("/topics/orders/scheduled")
    assert str(scheduled_id) in seen.text
    assert visitor.post("/topics/orders/scheduled", scheduled_id=scheduled_id, confirm="x").status == 400
    done = visitor.post("/topics/orders/scheduled", scheduled_id=scheduled_id, confirm="orders")
    assert "Cancelled 1 record." in done.text
    assert service.admin().list_scheduled("orders") == []


def test_access_rules_are_added_checked_and_removed(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/acls")
    fields = {"principal": ARN, "operation": "read", "resource": "topic:orders", "permission": "deny"}
    assert "Added: deny" in visitor.post("/acls/add", **fields).text
    rule = AccessRule(principal=ARN, operation="read", resource="topic:orders", permission="deny")
    assert service.admin().list_acls() == [rule]
    seen = visitor.get(f"/acls?principal={ARN}&operation=read&resource=topic:orders")
    assert "may not read topic:orders: a deny rule." in seen.text
    assert visitor.post("/acls/remove", **fields, confirm="topic:other").status == 400
    assert "Removed: deny" in visitor.post("/acls/remove", **fields, confirm="topic:orders").text
    assert service.admin().list_acls() == []
    assert visitor.post("/acls/add", **{**fields, "resource": "<b>x"}).status == 400


def test_quotas_are_set_and_deleted(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/quotas")
    seen = visitor.post("/quotas/set", subject="principal", name="*", produce_bytes_per_s=1048576)
    assert "* all others principal 1.0 MiB/s no bound" in seen.text
    assert service.admin().list_quotas()[0].limits == {"produce_bytes_per_s": 1_048_576}
    seen = visitor.post("/quotas/set", subject="principal", name="*", produce_bytes_per_s=1048576, topics_max=7)
    assert "1.0 MiB/s no bound no bound no bound 7 no bound" in seen.text
    assert service.admin().list_quotas()[0].limits == {"produce_bytes_per_s": 1_048_576, "topics_max": 7}
    seen = visitor.post("/quotas/set", subject="topic", name="orders", stored_bytes_max=1048576)
    assert "orders topic no bound no bound no bound no bound no bound no bound no bound no bound 1.0 MiB" in seen.text
    service.admin().delete_quota("topic", "orders")
    seen = visitor.post("/quotas/set", subject="topic", name="shop.*", fetch_bytes_per_s=1, shared="yes")
    assert "shop.* shared topic" in seen.text
    assert [each.shared for each in service.admin().list_quotas()] == [False, True]
    service.admin().delete_quota("topic", "shop.*")
    assert visitor.post("/quotas/delete", subject="principal", name="*", confirm="").status == 400
    assert "Deleted the quota" in visitor.post("/quotas/delete", subject="principal", name="*", confirm="*").text
    assert service.admin().list_quotas() == []


def test_audit_trail_shows_changes_the_newest_first(service: MemoryPenstock, visitor: Visitor) -> None:
    assert "No change is in the trail yet." in visitor.get("/audit").text
    service.create_topic("orders")
    service.admin().take_zone_out("b", "<b>drill")
    settle(service)
    seen = visitor.get("/audit")
    assert "create_topic topic orders" in seen.text
    assert seen.text.index("<b>drill") < seen.text.index("create_topic")
    assert "<b>drill" not in seen.html


def test_unknown_names_are_told(visitor: Visitor) -> None:
    for path in ("/share-groups/x", "/subscriptions/x", "/groups/x", "/dead-letters/x", "/topics/x/scheduled"):
        assert visitor.get(path).status == 404, path
