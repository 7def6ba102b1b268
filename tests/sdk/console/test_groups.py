from collections.abc import Mapping

import pytest

from penstock.errors import NotFoundError
from penstock.model import TopicPartition
from penstock.testing import MemoryPenstock
from tests.sdk.console.hostile import forbidden_in
from tests.sdk.console.visitor import Visitor

PLACES = [TopicPartition("orders", partition) for partition in range(2)]


@pytest.fixture(autouse=True)
def group(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=2)
    with service.producer() as producer:
        for number in range(20):
            producer.send("orders", str(number), partition=number % 2)
    service.admin().commit_group_offsets("billing", dict.fromkeys(PLACES, 4), metadata="<b>by hand")


def offsets(service: MemoryPenstock) -> Mapping[int, int]:
    return {each.partition: each.offset for each in service.admin().group_offsets("billing")}


def test_list_shows_groups(visitor: Visitor) -> None:
    assert "billing 0" in visitor.get("/groups").text
    assert "billing 0" not in visitor.get("/groups?q=other").text


def test_page_shows_lag_of_each_partition_and_hostile_metadata_as_text(visitor: Visitor) -> None:
    seen = visitor.get("/groups/billing")
    assert "Records behind 12" in seen.text
    assert "<b>by hand" in seen.text
    assert "<b>by hand" not in seen.html


def test_members_are_shown_by_their_names(service: MemoryPenstock, visitor: Visitor) -> None:
    with service.consumer(
        "orders", group_id="billing", client_id="worker-\u00e9", auto_offset_reset="earliest"
    ) as consumer:
        consumer.poll()
        seen = visitor.get("/groups/billing")
        assert "worker-é" in seen.text
        assert "Members 1" in seen.text
        assert visitor.post("/groups/billing/delete", confirm="billing").status == 409
    assert forbidden_in(seen.html) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"to": "earliest"}, {0: 0, 1: 0}),
        ({"to": "latest"}, {0: 10, 1: 10}),
        ({"to": "shift", "shift": "-3"}, {0: 1, 1: 1}),
        ({"to": "time", "time": "1h ago"}, {0: 0, 1: 0}),
    ],
)
def test_reset_is_shown_first_and_asks_for_the_name(
    service: MemoryPenstock, visitor: Visitor, query: dict[str, str], expected: Mapping[int, int]
) -> None:
    fields = "&".join(f"{name}={value}" for name, value in query.items()).replace(" ", "+")
    seen = visitor.get(f"/groups/billing/reset?topic=orders&{fields}")
    assert f"0 4 {expected[0]} {expected[0] - 4:+d}" in seen.text
    assert offsets(service) == {0: 4, 1: 4}
    assert visitor.post("/groups/billing/reset", topic="orders", confirm="bill", **query).status == 400
    assert offsets(service) == {0: 4, 1: 4}
    assert (
        "Set 2 offsets of orders."
        in visitor.post("/groups/billing/reset", topic="orders", confirm="billing", **query).text
    )
    assert offsets(service) == expected


@pytest.mark.parametrize(
    "query", ["", "topic=orders", "topic=orders&to=x", "topic=orders&to=shift&shift=x", "topic=x&to=latest"]
)
def test_reset_that_says_not_enough_is_refused(visitor: Visitor, query: str) -> None:
    assert visitor.get(f"/groups/billing/reset?{query}").status in (400, 404)


def test_settings_are_altered(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/groups/billing")
    seen = visitor.post("/groups/billing/settings", set_session_timeout_ms="20s")
    assert "Changed session_timeout_ms." in seen.text
    assert service.admin().describe_group("billing").group.config["session_timeout_ms"] == 20_000


def test_deletion_asks_for_the_name(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/groups/billing")
    assert visitor.post("/groups/billing/delete", confirm="").status == 400
    assert "Deleted billing." in visitor.post("/groups/billing/delete", confirm="billing").text
    with pytest.raises(NotFoundError):
        service.admin().describe_group("billing")
    assert visitor.get("/groups/billing").status == 404
