import json

import pytest

from penstock.console.background import Look
from penstock.console.figures import Snapshot, TopicFigure
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.visitor import Visitor


def test_list_shows_topics_and_their_changed_settings(service: MemoryPenstock, visitor: Visitor) -> None:
    service.admin().create_topic("orders", 3, {"retention_ms": 3_600_000})
    service.admin().create_topic("payments", 2)
    seen = visitor.get("/topics")
    assert "retention_ms=1h" in seen.text
    assert "2 topics, 5 partitions" in seen.text
    assert "payments" not in visitor.get("/topics?q=ORD").text


def test_list_shows_what_topics_hold_and_get(
    service: MemoryPenstock, console: RunningConsole, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "payments", "new"):
        service.create_topic(name)
    known = [TopicFigure(name="orders", held=1_234, rate=9.0), TopicFigure(name="payments", held=5, rate=None)]
    found = Snapshot(topics=known, consumers=[], is_complete=False)
    look = Look(value=found, age_ms=2_000, error=None, is_reading=False)
    monkeypatch.setattr(console.memory.figures, "look", lambda _: look)
    text = visitor.get("/topics").text
    assert "orders 1 1,234 9.0" in text
    assert "payments 1 5 –" in text
    assert "new 1 – –" in text
    assert "Figures read 2 s ago, as far as 500 requests reach" in text


def test_long_list_comes_in_pages(service: MemoryPenstock, visitor: Visitor) -> None:
    for number in range(101):
        service.create_topic(f"topic-{number:03d}")
    first = visitor.get("/topics?q=topic")
    assert "1–100 of 101 topics" in first.text
    assert "/topics?q=topic&amp;page=2" in first.html
    second = visitor.get("/topics?q=topic&page=2")
    assert "topic-100" in second.text
    assert "topic-099" not in second.text
    assert "topic-100" in visitor.get("/topics?page=99").text


def test_search_text_is_text(visitor: Visitor) -> None:
    seen = visitor.get("/topics?q=%22%3E%3Cscript%3E")
    assert seen.status == 200
    assert "<script>alert" not in seen.html
    assert "&#34;&gt;&lt;script&gt;" in seen.html


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "a b"}, "a b"),
        ({"name": "<b>x"}, "<b>x"),
        ({"name": "orders", "partitions": "x"}, "give a whole number"),
        ({"name": "orders", "set_retention_ms": "soon"}, "90m"),
    ],
)
def test_refused_topic_is_told_with_the_reason(visitor: Visitor, fields: dict[str, object], said: str) -> None:
    visitor.get("/new/topic")
    seen = visitor.post("/new/topic", **fields)
    assert seen.status == 400
    assert said in seen.text
    assert "<b>x" not in seen.html


def test_settings_of_the_form_are_those_of_the_topic(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/new/topic")
    visitor.post("/new/topic", name="orders", set_retention_ms="forever", set_cleanup_policy="compact,delete")
    config = service.admin().describe_topic("orders").topic.config
    assert config["retention_ms"] == -1
    assert sorted(config["cleanup_policy"].split(",")) == ["compact", "delete"]
    assert json.dumps(dict(config))
