"""The console of `penstock dev`, on the server itself: produce, look on, find why a function fails, and redrive."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin
from penstock.dev.functions import FunctionPlace
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.test_live import Events
from tests.sdk.dev.conftest import RunningServer, Server
from tests.support.deadlines import until

PACK = "arn:aws:lambda:us-east-1:000000000000:function:pack"
AT_ONCE = {"attempts_max": 1, "backoff_ms_min": 100, "backoff_ms_max": 100, "patience_ms": 0}


@pytest.fixture
def failing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose function `pack` refuses each record."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("handlers.py").write_text("def pack(event, context): raise ValueError('no box')")
    running = RunningServer(functions=[FunctionPlace(name="pack", place="handlers.py", handler="pack")])
    admin = Admin(transport=running.server.transport())
    for topic in ("orders", "orders.dead"):
        admin.create_topic(topic)
    config = {"dead_letter_topic": "orders.dead", "retry": AT_ONCE}
    admin.put_subscription("packing", "orders", {"lambda": PACK}, config)
    yield running.server
    running.stop()


@pytest.fixture
def console(failing: Server) -> Iterator[RunningConsole]:
    running = RunningConsole(failing.transport())
    yield running
    running.stop()


def test_record_of_the_form_is_seen_live_dies_with_its_reason_and_comes_back_by_a_redrive(
    failing: Server, console: RunningConsole
) -> None:
    visitor = console.visitor()
    events = Events(visitor, "/topics/orders/live/events")
    coming = iter(events)
    next(coming)
    visitor.get("/topics/orders/produce")
    seen = visitor.post("/topics/orders/produce", key="", value="first", headers="", partition="", value_form="text")
    assert "Stored in partition 0 at offset 0." in seen.text
    assert [each["value"] for each in next(coming)[1]["records"]] == ["first"]
    events.close()

    admin = Admin(transport=failing.transport())
    until(lambda: admin.describe_subscription("packing").dead_lettered == 1)
    page = visitor.get("/subscriptions/packing")
    assert PACK in page.text
    assert 'href="/dead-letters/orders.dead"' in page.html
    letters = visitor.get("/dead-letters/orders.dead").text
    assert "orders [0] 0 packing" in letters
    assert "ValueError: no box" in letters

    Path("handlers.py").write_text("def pack(event, context): open('packed', 'w').close()")
    assert "Moved 1 record;" in visitor.post("/dead-letters/orders.dead/redrive", confirm="orders.dead").text
    until(Path("packed").exists)
    until(lambda: admin.describe_subscription("packing").lag == 0)
    assert "ok" in visitor.get("/subscriptions/packing").text
