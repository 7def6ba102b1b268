import pytest

from penstock.console.background import Look
from penstock.console.figures import Snapshot, TopicFigure
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.test_background import DEADLINE_MS
from tests.sdk.console.visitor import Visitor
from tests.support.denying import DenyingTransport


def test_overview_shows_zones_counts_and_who_is_behind(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor
) -> None:
    service.create_topic("orders", partitions=4)
    service.admin().create_share_group("workers", "orders", {"start": "earliest"})
    with service.producer() as producer:
        producer.send("orders", "x")
    console.memory.figures.look(DEADLINE_MS)
    console.memory.lists.look(DEADLINE_MS)
    seen = visitor.get("/")
    assert "Partitions 4" in seen.text
    assert "Share groups 1" in seen.text
    assert seen.text.count("in sync") >= 3
    assert "AWS has no alarms and no costs for it" in seen.text


def test_hot_partition_is_told_with_a_link(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = TopicFigure(name="orders", held=1, rate=9.0, hot=(3, 1))
    found = Snapshot(topics=[hot], consumers=[], is_complete=True)
    look = Look(value=found, age_ms=0, error=None, is_reading=False)
    monkeypatch.setattr(console.memory.figures, "look", lambda _: look)
    seen = visitor.get("/")
    assert "orders : partition 3 gets far more records than the others." in seen.text
    assert 'href="/topics/orders/hot"' in seen.html


def test_list_that_is_denied_leaves_the_rest_of_the_page(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=4)
    console = RunningConsole(DenyingTransport(service.transport, "/v1/zones"))
    try:
        console.memory.lists.look(DEADLINE_MS)
        seen = console.visitor().get("/")
        assert seen.status == 200
        assert "ACCESS_DENIED" in seen.text
        assert "Partitions 4" in seen.text
    finally:
        console.stop()


def test_zone_that_is_out_is_told_first(service: MemoryPenstock, console: RunningConsole, visitor: Visitor) -> None:
    service.admin().take_zone_out("b", "a <b>drill")
    console.memory.lists.look(DEADLINE_MS)
    seen = visitor.get("/")
    assert "b: not in sync" in seen.text
    assert "<b>drill" not in seen.html
