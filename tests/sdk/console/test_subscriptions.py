import pytest

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
