import base64

import pytest

from penstock.console.rendering import time_text
from penstock.errors import NotFoundError
from penstock.testing import MemoryPenstock
from tests.sdk.console.visitor import Visitor


@pytest.fixture(autouse=True)
def subscription(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.create_topic("mirror")
    service.admin().put_subscription("copy", "orders", {"topic": "mirror"}, {"start": "earliest"})
    with service.producer() as producer:
        producer.send("orders", "x")


def test_list_shows_targets_and_states(visitor: Visitor) -> None:
    assert "copy active orders topic mirror" in visitor.get("/subscriptions").text
    assert "copy active" not in visitor.get("/subscriptions?q=other").text


def test_page_shows_deliveries_of_each_partition(service: MemoryPenstock, visitor: Visitor) -> None:
    assert "Records behind 1" in visitor.get("/subscriptions/copy").text
    service.deliver_pushes()
    seen = visitor.get("/subscriptions/copy")
    assert "Records behind 0" in seen.text
    assert "orders 0 1 0 – ok" in seen.text


def test_pause_and_resume_change_the_state(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/subscriptions/copy")
    assert "Paused." in visitor.post("/subscriptions/copy/pause").text
    assert service.admin().describe_subscription("copy").subscription.state == "paused"
    assert "It goes on where it was." in visitor.post("/subscriptions/copy/resume").text
    assert service.admin().describe_subscription("copy").subscription.state == "active"


def test_deletion_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/subscriptions/copy")
    assert visitor.post("/subscriptions/copy/delete", confirm="Copy").status == 400
    assert "Deleted copy." in visitor.post("/subscriptions/copy/delete", confirm="copy").text
    with pytest.raises(NotFoundError):
        service.admin().describe_subscription("copy")


def test_subscription_is_made_by_a_form_and_delivers(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("dead")
    service.create_topic("second")
    assert 'href="/new/subscription"' in visitor.get("/subscriptions").html
    assert 'type="password"' in visitor.get("/new/subscription").html
    fields = {"topics": "orders", "kind": "topic", "place": "second", "dead_letter_topic": "dead"}
    seen = visitor.post(
        "/new/subscription", name="twice", start="earliest", batch_records=5, attempts_max=2, mode="ordered", **fields
    )
    assert "Created twice." in seen.text
    made = service.admin().describe_subscription("twice").subscription
    assert (made.target, made.config["batch_records"], made.config["retry"]["attempts_max"]) == (
        {"topic": "second"},
        5,
        2,
    )
    service.deliver_pushes()
    assert [each.value for each in service.records("second")] == [b"x"]


def test_secret_of_an_endpoint_is_sent_and_never_shown(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/new/subscription")
    fields = {
        "kind": "https",
        "place": "https://hooks.example.com/in",
        "secret": f"whsec_{base64.b64encode(b's3cret of 24 bytes or more').decode()}",
    }
    seen = visitor.post("/new/subscription", name="hook", topics="orders", start="latest", **fields)
    assert "Created hook." in seen.text
    assert "https://hooks.example.com/in" in seen.text
    assert fields["secret"] not in seen.html


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "copy"}, "there is a subscription 'copy' already"),
        ({"name": "<b>x"}, "<b>x"),
        ({"name": "new", "kind": "https", "place": "https://hooks.example.com/in"}, "secret"),
        ({"name": "new", "kind": "lambda", "place": "pack"}, "pack"),
        ({"name": "new", "topics": "nowhere"}, "nowhere"),
        ({"name": "new", "attempts_max": "2"}, "dead_letter_topic"),
    ],
)
def test_refused_subscription_is_told_with_the_reason_and_changes_nothing(
    service: MemoryPenstock, visitor: Visitor, fields: dict[str, str], said: str
) -> None:
    before = service.admin().list_subscriptions()
    visitor.get("/new/subscription")
    given = {"topics": "orders", "kind": "topic", "place": "mirror", **fields}
    seen = visitor.post("/new/subscription", **given)
    assert (seen.status in (400, 404), said in seen.text) == (True, True), seen.text
    assert "<b>x" not in seen.html
    assert service.admin().list_subscriptions() == before


def test_mirrors_have_state_lag_last_success_and_epoch(service: MemoryPenstock, visitor: Visitor) -> None:
    assert "There is no mirror yet." in visitor.get("/mirrors").text
    with MemoryPenstock() as other:
        service.add_stage("https://b.example", other)
        service.admin().create_mirror("dr", "orders", "https://b.example", prefix="eu.")
        assert "orders mirroring dr 1" in visitor.get("/mirrors").text
        service.deliver_pushes()
        [state] = [each for each in service.admin().describe_subscription("dr").partitions if each.succeeded_ms]
        assert state.succeeded_ms
        told = f"orders mirroring dr 0 none {time_text(state.succeeded_ms)[:19]} 0 eu.orders https://b.example"
        assert told in visitor.get("/mirrors").text
        service.admin().pause_subscription("dr")
        assert "orders paused dr" in visitor.get("/mirrors").text
        service.admin().resume_subscription("dr")
        service.admin().move_topic("orders", "dr")
        seen = visitor.get("/mirrors").text
        assert "orders moved dr 0" in seen
        assert "orders moved 1 eu.orders https://b.example" in seen
