import pytest

from penstock.testing import MemoryPenstock
from penstock_core.records.partitioner import partition_for_key
from tests.sdk.console.visitor import Visitor

WHALE = "<b>whale"


@pytest.fixture(autouse=True)
def topic(service: MemoryPenstock) -> None:
    service.create_topic("orders", partitions=4)


def test_hot_key_is_named_as_text_with_its_share(service: MemoryPenstock, visitor: Visitor) -> None:
    with service.producer() as producer:
        for number in range(400):
            producer.send("orders", b"v", key=b"%d" % number)
            producer.send("orders", b"v", key=WHALE)
            producer.send("orders", b"v", key=WHALE)
    seen = visitor.get("/topics/orders/hot")
    assert f"hot {WHALE}" in seen.text
    assert f"of partition {partition_for_key(WHALE.encode(), 4)}. More partitions do not help" in seen.text
    assert "<b>whale" not in seen.html


def test_even_topic_has_no_hot_partition(visitor: Visitor) -> None:
    assert "Nothing to do" in visitor.get("/topics/orders/hot?since=1h").text
    assert visitor.get("/topics/orders/hot?since=<b>").status == 400
