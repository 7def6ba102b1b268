import pytest

from penstock.errors import NotFoundError
from penstock.testing import MemoryPenstock
from tests.sdk.console.visitor import Visitor


@pytest.fixture(autouse=True)
def schedule(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.admin().put_schedule("report", "0 9 * * *", "orders", "<go>", time_zone="Europe/Berlin")


def test_list_shows_times_and_states(visitor: Visitor) -> None:
    assert "report enabled orders 0 9 * * * Europe/Berlin" in visitor.get("/schedules").text
    assert "report enabled" not in visitor.get("/schedules?q=other").text


def test_page_shows_the_last_run_and_the_record(service: MemoryPenstock, visitor: Visitor) -> None:
    assert "none yet" in visitor.get("/schedules/report").text
    service.advance(86_400_000)
    seen = visitor.get("/schedules/report").text
    assert "Records so far 1" in seen
    assert "<go>" in seen


def test_schedule_that_fails_shows_why(service: MemoryPenstock, visitor: Visitor) -> None:
    service.admin().delete_topic("orders")
    service.advance(86_400_000)
    assert "report failing" in visitor.get("/schedules").text
    assert "does not exist" in visitor.get("/schedules/report").text


def test_disable_and_enable_change_the_state(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/schedules/report")
    assert "It rests." in visitor.post("/schedules/report/disable").text
    assert not service.admin().describe_schedule("report").enabled
    assert "It runs at its next time." in visitor.post("/schedules/report/enable").text
    assert service.admin().describe_schedule("report").enabled


def test_deletion_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/schedules/report")
    assert visitor.post("/schedules/report/delete", confirm="other").status == 400
    assert "Deleted report." in visitor.post("/schedules/report/delete", confirm="report").text
    with pytest.raises(NotFoundError):
        service.admin().describe_schedule("report")
