"""examples/fastapi_producer.py, with the application's own start and end."""

import json

from fastapi.testclient import TestClient

from examples.fastapi_producer import create_app
from penstock.testing import MemoryPenstock

ORDER = {"order_id": "o1", "customer": "c7", "cents": 250}


def test_order_is_stored_when_it_is_answered(penstock: MemoryPenstock) -> None:
    penstock.create_topic("orders", partitions=3)

    with TestClient(create_app(penstock.async_producer)) as client:
        answers = [client.post("/orders", json=ORDER | {"order_id": f"o{number}"}) for number in range(3)]

    assert [answer.status_code for answer in answers] == [201, 201, 201]
    records = penstock.records("orders")
    assert [json.loads(record.value or b"")["order_id"] for record in records] == ["o0", "o1", "o2"]
    assert [answer.json() for answer in answers] == [
        {"partition": record.partition, "offset": record.offset} for record in records
    ]


def test_order_is_answered_with_503_when_it_cannot_be_stored(penstock: MemoryPenstock) -> None:
    with TestClient(create_app(penstock.async_producer)) as client:
        answer = client.post("/orders", json=ORDER)

    assert answer.status_code == 503
    assert "orders" in answer.json()["detail"]
