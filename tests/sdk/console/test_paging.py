"""List pages: fresh, or as they were when the service takes long; after an action always fresh."""

import pytest

from penstock.console import paging
from penstock.testing import MemoryPenstock
from tests.sdk.console.conftest import RunningConsole
from tests.sdk.console.test_background import Gated
from tests.support.denying import DenyingTransport

SLOW = "The service takes long."


@pytest.fixture
def gated(service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch) -> Gated:
    monkeypatch.setattr(paging, "CONSOLE_LISTS_MS_MAX", 50)
    return Gated(service.transport)


def test_list_that_takes_long_is_not_known_first_and_later_as_it_was(service: MemoryPenstock, gated: Gated) -> None:
    console = RunningConsole(gated)
    try:
        service.create_topic("orders")
        gated.gate.clear()
        visitor = console.visitor()
        first = visitor.get("/topics")
        assert SLOW in first.text
        assert "This page loads itself again" in first.text
        assert "There is no topic yet" not in first.text
        gated.gate.set()
        console.memory.lists.topics.settled(10_000)
        service.create_topic("payments")
        gated.gate.clear()
        later = visitor.get("/topics")
        assert "orders" in later.text
        assert "The list is as it was" in later.text
        gated.gate.set()
        console.memory.lists.topics.settled(10_000)
        seen = visitor.get("/topics")
        assert "payments" in seen.text
        assert SLOW not in seen.text
    finally:
        gated.gate.set()
        console.stop()


def test_list_after_an_action_is_that_of_now(service: MemoryPenstock) -> None:
    console = RunningConsole(service.transport)
    try:
        service.create_topic("orders")
        visitor = console.visitor()
        assert "orders" in visitor.get("/topics").text
        visitor.get("/topics/orders/settings")
        gone = visitor.post("/topics/orders/delete", confirm="orders")
        assert "Deleted orders." in gone.text
        assert "There is no topic yet" in gone.text
    finally:
        console.stop()


def test_list_that_is_denied_tells_why(service: MemoryPenstock) -> None:
    console = RunningConsole(DenyingTransport(service.transport, "/v1/topics"))
    try:
        seen = console.visitor().get("/topics")
        assert seen.status == 403
        assert "ACCESS_DENIED" in seen.text
    finally:
        console.stop()
