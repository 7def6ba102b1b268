"""The page of one topic, and what destroys it."""

import pytest

from penstock.console.background import Look
from penstock.console.figures import Point, Snapshot, TopicFigure
from penstock.errors import UnknownTopicError
from penstock.metrics.collector import CountedTransport
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole, read_console
from tests.sdk.console.test_background import DEADLINE_MS
from tests.sdk.console.visitor import Visitor


@pytest.fixture(autouse=True)
def topic(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=3)
    with service.producer() as producer:
        for number in range(9):
            producer.send("orders", str(number), partition=1)


def test_page_shows_partitions_offsets_and_stored_bytes(service: MemoryPenstock, visitor: Visitor) -> None:
    seen = visitor.get("/topics/orders")
    stored = sum(each.stored_bytes or 0 for each in service.admin().describe_topic("orders").offsets)
    assert f"Stored {stored} B" in seen.text
    assert "3 partitions" in seen.text
    assert f"1 active 0 9 9 {stored} B newest · oldest" in seen.text


def test_page_shows_who_reads_the_topic_and_how_far_behind(service: MemoryPenstock) -> None:
    service.create_topic("other")
    admin = service.admin()
    admin.commit_group_offsets("billing", {TopicPartition("orders", 1): 4, TopicPartition("other", 0): 0})
    admin.commit_group_offsets("elsewhere", {TopicPartition("other", 0): 0})
    admin.create_share_group("workers", "orders", {"start": "earliest"})
    admin.put_subscription("copy", "orders", {"topic": "other"}, {"start": "earliest"})
    admin.pause_subscription("copy")
    with (
        service.share_consumer("orders", group_id="workers", acknowledge="explicit") as sharer,
        service.consumer("orders", group_id="live", auto_offset_reset="earliest") as consumer,
    ):
        assert sharer.poll(timeout_ms=1_000)
        assert consumer.poll(timeout_ms=1_000)
        consumer.commit()
        with read_console(service.transport) as visitor:
            text = visitor.get("/topics/orders").text
    assert "billing group 0 members 5 – " in text
    assert "live group 1 member 0 – none" in text
    assert "workers share group – 9 9 " in text
    assert "copy subscription paused 9 – " in text
    assert "4 consumers" in text
    assert "elsewhere" not in text
    assert "Figures read" in text


def test_page_draws_what_the_console_has_read(
    console: RunningConsole, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [Point(1_000, 2.0, 30), Point(61_000, 0.5, 1_200)]
    for count in (1, 2):
        known = [TopicFigure(name="orders", held=9, rate=0.5, series=points[:count])]
        found = Snapshot(topics=known, consumers=[], is_complete=True)
        look = Look(value=found, age_ms=0, error=None, is_reading=False)
        monkeypatch.setattr(console.memory.figures, "look", lambda _, look=look: look)
        seen = visitor.get("/topics/orders")
        assert seen.html.count("<polyline") == (2 if count == 2 else 0)
    assert "Records a second: 0.5 now, 2.0 at most in 1 min" in seen.text
    assert "Records behind, of all consumers: 1,200 now, 1,200 at most in 1 min" in seen.text


def test_page_without_consumers_says_so(console: RunningConsole, visitor: Visitor) -> None:
    console.memory.figures.look(DEADLINE_MS)
    assert "No group, share group or subscription reads this topic." in visitor.get("/topics/orders").text


def test_page_of_a_topic_asks_once_more_than_the_reading(service: MemoryPenstock) -> None:
    transport = CountedTransport(service.transport)
    with read_console(transport) as visitor:
        before = transport.requests
        visitor.get("/topics/orders")
        assert transport.requests == before + 1


def test_partitions_come_in_pages(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("wide", partitions=130)
    assert "1–100 of 130 partitions" in visitor.get("/topics/wide").text
    assert "101–130 of 130 partitions" in visitor.get("/topics/wide?page=2").text


def test_settings_that_were_changed_are_altered(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/topics/orders/settings")
    seen = visitor.post("/topics/orders/settings", set_retention_ms="3d", set_cleanup_policy="delete")
    assert "Changed retention_ms." in seen.text
    assert service.admin().describe_topic("orders").topic.config["retention_ms"] == 3 * 86_400_000
    assert "Nothing to change." in visitor.post("/topics/orders/settings", set_retention_ms="3d").text


def test_setting_that_the_service_refuses_is_told(visitor: Visitor) -> None:
    visitor.get("/topics/orders/settings")
    seen = visitor.post("/topics/orders/settings", set_cleanup_policy="<b>never")
    assert (seen.status, "INVALID_CONFIG" in seen.text) == (400, True)
    assert "<b>never" not in seen.html


def test_change_of_partitions_is_shown_before_it_is_made(service: MemoryPenstock, visitor: Visitor) -> None:
    seen = visitor.get("/topics/orders/partitions?partitions=1")
    assert "take no new records. 9 records stay readable there" in seen.text.replace("takes", "take")
    assert service.admin().describe_topic("orders").topic.writable_partitions == 3
    assert visitor.post("/topics/orders/partitions", partitions=1, confirm="order").status == 400
    assert service.admin().describe_topic("orders").topic.writable_partitions == 3
    assert visitor.post("/topics/orders/partitions", partitions=1, confirm="orders").status == 200
    assert service.admin().describe_topic("orders").topic.writable_partitions == 1
    assert visitor.get("/topics/orders/partitions?partitions=1").status == 400


def test_truncation_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/topics/orders/settings")
    assert visitor.post("/topics/orders/truncate", partition=1, before=4, confirm="").status == 400
    assert visitor.post("/topics/orders/truncate", partition=1, before="", confirm="orders").status == 400
    assert service.admin().list_offsets("orders", "earliest")[1] == 0
    seen = visitor.post("/topics/orders/truncate", partition=1, before=4, confirm="orders")
    assert "Partition 1 starts at offset 4 now." in seen.text
    assert service.admin().list_offsets("orders", "earliest")[1] == 4


def test_deletion_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/topics/orders/settings")
    refused = visitor.post("/topics/orders/delete", confirm="ORDERS")
    assert "nothing was changed" in refused.text
    assert service.admin().describe_topic("orders")
    assert "Deleted orders." in visitor.post("/topics/orders/delete", confirm=" orders ").text
    with pytest.raises(UnknownTopicError):
        service.admin().describe_topic("orders")
    assert visitor.post("/topics/orders/delete", confirm="orders").status == 404


@pytest.mark.parametrize("path", ["settings", "partitions", "truncate", "delete", "produce"])
def test_action_without_its_form_is_refused(service: MemoryPenstock, visitor: Visitor, path: str) -> None:
    before = service.admin().describe_topic("orders")
    visitor.form_token = "x"  # a form of another session
    assert visitor.post(f"/topics/orders/{path}", confirm="orders", partitions=1, partition=1, before=2).status == 403
    assert service.admin().describe_topic("orders") == before
