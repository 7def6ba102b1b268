import re

import pytest

from penstock.console.background import Look
from penstock.console.figures import Snapshot
from penstock.errors import NotFoundError
from penstock.testing import MemoryPenstock
from tests.sdk.cli.test_acls import settle
from tests.sdk.console.conftest import RunningConsole, read_console
from tests.sdk.console.visitor import Visitor


@pytest.fixture(autouse=True)
def group(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    service.admin().create_share_group("workers", "orders", {"start": "earliest"})
    with service.producer() as producer:
        for number in range(8):
            producer.send("orders", str(number), partition=number % 2)


def test_list_shows_share_groups_and_what_waits_in_them(service: MemoryPenstock) -> None:
    with service.share_consumer("orders", group_id="workers", acknowledge="explicit") as consumer:
        assert consumer.poll(timeout_ms=1_000)
        with service.producer() as producer:
            producer.send("orders", "later")
        with read_console(service.transport) as visitor:
            text = visitor.get("/share-groups").text
            assert "workers 9" not in visitor.get("/share-groups?q=other").text
    assert re.search(r"workers 9 8 \d+ \w+ orders none", text), text


def test_list_has_groups_that_no_reading_has_come_to(
    console: RunningConsole, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    look: Look[Snapshot] = Look(value=None, age_ms=None, error="ACCESS_DENIED: <b>no", is_reading=False)
    monkeypatch.setattr(console.memory.figures, "look", lambda _: look)
    seen = visitor.get("/share-groups")
    assert "workers – – – orders none" in seen.text
    assert "The last reading of figures failed: ACCESS_DENIED: <b>no" in seen.text
    assert "<b>no" not in seen.html


def test_page_shows_what_is_not_finished(visitor: Visitor) -> None:
    seen = visitor.get("/share-groups/workers")
    assert "Not finished 8" in seen.text
    assert "deliveries_max" in seen.text


def test_page_of_listed_topics_shows_how_long_each_waits(service: MemoryPenstock, visitor: Visitor) -> None:
    service.create_topic("bulk")
    assert "orders waits" not in visitor.get("/share-groups/workers").text
    service.admin().alter_share_group("workers", {"topic_order": "listed"}, ["bulk", "orders"])
    assert "1. bulk waits no 2. orders waits" in " ".join(visitor.get("/share-groups/workers").text.split())


def test_page_names_the_consumers_with_locks(service: MemoryPenstock, visitor: Visitor) -> None:
    assert "No consumer holds a lock." in visitor.get("/share-groups/workers").text
    with service.share_consumer("orders", group_id="workers", client_id="packer", acknowledge="explicit") as consumer:
        assert consumer.poll(timeout_ms=1_000)
        assert "packer" in visitor.get("/share-groups/workers").text


def test_reset_shows_first_what_it_would_do(service: MemoryPenstock, visitor: Visitor) -> None:
    seen = visitor.get("/share-groups/workers/reset?topic=orders&to=latest")
    assert "Nothing has changed yet." in seen.text
    assert "0 – 4 – 1 – 4 –" in seen.text
    seen = visitor.get("/share-groups/workers/reset?topic=orders&to=offset&offset=2&partition=1")
    assert "1 – 2 –" in seen.text
    assert visitor.get("/share-groups/workers/reset?topic=orders&to=offset&offset=9").status == 416
    assert visitor.get("/share-groups/workers/reset?to=latest").status == 400
    assert [each.position for each in service.admin().describe_share_group("workers").partitions] == [0, 0]
    with service.share_consumer("orders", group_id="workers", acknowledge="explicit") as consumer:
        assert consumer.poll(timeout_ms=1_000)
        assert (
            "Their consumers lose these locks."
            in visitor.get("/share-groups/workers/reset?topic=orders&to=earliest").text
        )


def test_reset_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/share-groups/workers")
    assert visitor.post("/share-groups/workers/reset", topic="orders", to="latest", confirm="x").status == 400
    assert visitor.post("/share-groups/workers/reset", topic="orders", to="x", confirm="workers").status == 400
    seen = visitor.post("/share-groups/workers/reset", topic="orders", to="latest", confirm="workers")
    assert "orders goes on at 0: 4, 1: 4." in seen.text
    assert sum(each.lag for each in service.admin().describe_share_group("workers").partitions) == 0


def test_deletion_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/share-groups/workers")
    assert visitor.post("/share-groups/workers/delete").status == 400
    assert "Deleted workers." in visitor.post("/share-groups/workers/delete", confirm="workers").text
    with pytest.raises(NotFoundError):
        service.admin().describe_share_group("workers")
    assert visitor.get("/share-groups/workers").status == 404


def test_share_group_is_made_by_a_form_and_noted_in_the_trail(service: MemoryPenstock, visitor: Visitor) -> None:
    for name in ("bills", "dead"):
        service.create_topic(name)
    assert 'href="/new/share-group"' in visitor.get("/share-groups").html
    assert "Create a share group" in visitor.get("/new/share-group").text
    fields = {"topics": "orders, bills", "dead_letter_topic": "dead", "deliveries_max": 3, "lock_ms": "2m"}
    seen = visitor.post("/new/share-group", name="packers", ordering="key", start="latest", **fields)
    assert "Created packers." in seen.text
    made = service.admin().describe_share_group("packers").group
    assert sorted(made.topics) == ["bills", "orders"]
    wanted = {
        "dead_letter_topic": "dead",
        "deliveries_max": 3,
        "lock_ms": 120_000,
        "ordering": "key",
        "start": "latest",
    }
    assert {name: made.config[name] for name in wanted} == wanted
    fair = visitor.post("/new/share-group", name="tenants", topics="orders", sharing="fair", fair_by="tenant")
    assert "sharing fair" in " ".join(visitor.get("/share-groups/tenants").text.split()), fair.text
    settle(service)
    assert "put_share_group share_group packers" in visitor.get("/audit").text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "workers", "topics": "orders"}, "there is a share group 'workers' already"),
        ({"name": "<b>x", "topics": "orders"}, "<b>x"),
        ({"name": "new", "topics": ""}, "topics"),
        ({"name": "new", "topics": "nowhere"}, "nowhere"),
        ({"name": "new", "topics": "orders", "lock_ms": "soon"}, "give one such as 5m"),
        ({"name": "new", "topics": "orders", "deliveries_max": "x"}, "give a whole number"),
        ({"name": "new", "topics": "orders", "deliveries_max": "3"}, "dead_letter_topic"),
    ],
)
def test_refused_share_group_is_told_with_the_reason_and_changes_nothing(
    service: MemoryPenstock, visitor: Visitor, fields: dict[str, str], said: str
) -> None:
    before = service.admin().list_share_groups()
    visitor.get("/new/share-group")
    seen = visitor.post("/new/share-group", **fields)
    assert (seen.status in (400, 404), said in seen.text) == (True, True), seen.text
    assert "<b>x" not in seen.html
    assert service.admin().list_share_groups() == before
