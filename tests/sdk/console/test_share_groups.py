import pytest

from penstock.errors import NotFoundError
from penstock.testing import MemoryPenstock
from tests.sdk.console.visitor import Visitor


@pytest.fixture(autouse=True)
def group(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    service.admin().create_share_group("workers", "orders", {"start": "earliest"})
    with service.producer() as producer:
        for number in range(8):
            producer.send("orders", str(number), partition=number % 2)


def test_list_shows_share_groups(visitor: Visitor) -> None:
    assert "workers orders none" in visitor.get("/share-groups").text
    assert "workers orders" not in visitor.get("/share-groups?q=other").text


def test_page_shows_what_is_not_finished(visitor: Visitor) -> None:
    seen = visitor.get("/share-groups/workers")
    assert "Not finished 8" in seen.text
    assert "deliveries_max" in seen.text


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
