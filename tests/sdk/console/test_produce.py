import pytest

from penstock.testing import MemoryPenstock
from tests.sdk.console.hostile import HOSTILE, forbidden_in
from tests.sdk.console.visitor import Visitor


@pytest.fixture(autouse=True)
def topic(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=3)


def test_record_of_the_form_is_stored_and_shown(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/topics/orders/produce")
    seen = visitor.post(
        "/topics/orders/produce",
        key="k",
        value='{"a": 1}',
        headers="type: order\nnone",
        partition="2",
        value_form="text",
    )
    assert "Stored in partition 2 at offset 0." in seen.text
    assert "JSON, formatted" in seen.text
    [record] = service.records("orders")
    assert (record.key, record.value, record.partition) == (b"k", b'{"a": 1}', 2)
    assert record.headers == (("type", b"order"), ("none", None))


def test_record_may_be_hexadecimal_or_null(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/topics/orders/produce")
    visitor.post("/topics/orders/produce", key="ff", key_form="hex", value="00 01", value_form="hex", partition="0")
    visitor.post("/topics/orders/produce", key="k", value="ignored", is_null="yes", partition="0")
    assert [(each.key, each.value) for each in service.records("orders")] == [(b"\xff", b"\x00\x01"), (b"k", None)]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"value": "x", "value_form": "hex"}, 400),
        ({"value": "x", "partition": "9"}, 404),
        ({"value": "x", "partition": "-1"}, 400),
        ({"value": "x" * 2_000_000}, 413),
    ],
)
def test_refused_record_is_told(service: MemoryPenstock, visitor: Visitor, fields: dict[str, str], status: int) -> None:
    visitor.get("/topics/orders/produce")
    assert visitor.post("/topics/orders/produce", **fields).status in (status, 400)
    assert service.records("orders") == []


def test_form_that_is_too_large_is_refused(visitor: Visitor) -> None:
    visitor.get("/topics/orders/produce")
    seen = visitor.post("/topics/orders/produce", value="x" * 15 * 1024 * 1024)
    assert (seen.status, "over" in seen.text) == (413, True)


def test_hostile_record_from_the_form_is_stored_as_it_is(service: MemoryPenstock, visitor: Visitor) -> None:
    visitor.get("/topics/orders/produce")
    for text in HOSTILE:
        seen = visitor.post("/topics/orders/produce", key=text, value=text, partition="0")
        assert forbidden_in(seen.html) == []
    assert [each.value for each in service.records("orders")] == [text.encode() for text in HOSTILE]
