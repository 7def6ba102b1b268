"""Dead letters, delayed records, access rules, quotas and the audit trail."""

import pytest

from penstock.model.access import AccessRule
from penstock.testing import MemoryPenstock
from tests.sdk.cli.test_acls import settle
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.hostile import HOSTILE, forbidden_in
from tests.sdk.console.visitor import Visitor
from tests.support.denying import DenyingTransport

ARN = "arn:aws:iam::111122223333:role/ledger"
DEAD = "penstock.dead-letter."


@pytest.fixture
def dead(service: MemoryPenstock) -> None:
    """A dead letter of a share group, and hostile ones that claim all kinds of deaths."""
    service.create_topic("orders")
    service.create_topic("orders.dead")
    service.admin().create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead", "start": "earliest"})
    with service.producer() as producer:
        told = {"topic": b"orders", "partition": b"0", "offset": b"7", "group": b"workers", "reason": b"<b>boom"}
        told |= {"deliveries": b"5", "time_ms": b"1700000000000"}
        producer.send("orders.dead", "x", headers=[(f"{DEAD}{name}", value) for name, value in told.items()])
        for text in HOSTILE:
            headers = [(f"{DEAD}{name}", text.encode()) for name in (*told, "subscription")]
            producer.send("orders.dead", text, key=text, headers=headers)


@pytest.mark.usefixtures("dead")
def test_dead_letters_tell_why_they_are_there(visitor: Visitor) -> None:
    assert "orders.dead workers" in visitor.get("/dead-letters").text
    seen = visitor.get("/dead-letters/orders.dead")
    assert "orders [0] 7 workers 5 <b>boom" in seen.text
    assert "<b>boom" not in seen.html
    assert forbidden_in(seen.html) == []


@pytest.mark.usefixtures("dead")
def test_dead_letters_go_back_or_away_by_name_only(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/dead-letters/orders.dead")
    assert visitor.post("/dead-letters/orders.dead/redrive", confirm="orders").status == 400
    assert service.records("orders") == []
    assert "Moved 1 records" in visitor.post("/dead-letters/orders.dead/redrive", confirm="orders.dead").text
    assert [each.value for each in service.records("orders")] == [b"x"]
    assert visitor.post("/dead-letters/orders.dead/purge", confirm="").status == 400
    assert len(service.records("orders.dead")) > 1
    assert "Removed all" in visitor.post("/dead-letters/orders.dead/purge", confirm="orders.dead").text
    assert service.records("orders.dead") == []


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
    assert "Cancelled 1 records." in done.text
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


def test_dead_letters_of_share_groups_are_listed_to_a_caller_without_subscriptions(service: MemoryPenstock) -> None:
    for topic in ("orders", "orders.dead"):
        service.create_topic(topic)
    service.admin().create_share_group("workers", "orders", {"dead_letter_topic": "orders.dead"})
    running = RunningConsole(DenyingTransport(service.transport, "/v1/subscriptions", status=404))
    try:
        seen = running.visitor().get("/dead-letters")
    finally:
        running.stop()
    assert "orders.dead workers" in seen.text
    assert "HTTP 404 from the gateway" in seen.text
