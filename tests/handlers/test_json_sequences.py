"""Idempotent producers in JSON: a repeat stores nothing twice, whatever it meets, and a sequence goes whole or not."""

import json
from typing import Any

import pytest

from penstock.testing import MemoryTransport
from penstock_core.limits import PRODUCER_EPOCH_MAX
from penstock_core.records.producer_state import SEQUENCE_MAX
from tests.handlers.service import Answer, Service, checked_error

STRANGER = "arn:aws:iam::000000000000:role/stranger"
ME = 4711


def record(value: str = "v", **fields: object) -> dict[str, object]:
    return {"value": value, "partition": 0, "timestamp_ms": 1_000, **fields}


def send(orders: Service, *records: dict[str, object], first: int, **sequence: object) -> Answer:
    body = {"records": records, "sequence": {"producer_id": ME, "first_sequence": first, **sequence}}
    return orders.call("POST", "/v1/topics/orders/records", body)


def offsets(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.body
    return [each["offset"] for each in answer.json["offsets"]]


def refusal(answer: Answer) -> dict[str, Any]:
    [first, *others] = answer.json["offsets"]
    assert all(each["error"] == first["error"] for each in others)
    return checked_error(first["error"])


def values(orders: Service) -> list[str]:
    return [each["value"] for each in orders.read()["records"]]


def test_repeat_gets_the_offsets_of_the_first_and_stores_nothing(orders: Service) -> None:
    first = send(orders, record("a"), record("b", key="k", headers=[["h", "x"]]), first=0)
    following = send(orders, record("c"), first=2)
    again = send(orders, record("a"), record("b", key="k", headers=[["h", "x"]]), first=0)
    assert (offsets(first), offsets(following), offsets(again)) == ([0, 1], [2], [0, 1])
    assert values(orders) == ["a", "b", "c"]


def test_gap_and_other_bytes_under_a_number_are_refused(orders: Service) -> None:
    offsets(send(orders, record("a"), first=0))
    gap = refusal(send(orders, record("c"), record("d"), first=2))
    assert (gap["code"], gap["expected_sequence"]) == ("OUT_OF_ORDER_SEQUENCE", 1)
    assert refusal(send(orders, record("other"), first=0))["code"] == "OUT_OF_ORDER_SEQUENCE"
    assert values(orders) == ["a"]


def test_newer_epoch_fences_the_older_one(orders: Service) -> None:
    offsets(send(orders, record("a"), first=0))
    offsets(send(orders, record("b"), first=0, epoch=1))
    fenced = refusal(send(orders, record("c"), first=1))
    assert (fenced["code"], fenced["epoch"]) == ("PRODUCER_FENCED", 1)


def test_producer_id_belongs_to_the_principal_that_wrote_first(orders: Service) -> None:
    offsets(send(orders, record("a"), first=0))
    body = {"records": [record("b")], "sequence": {"producer_id": ME, "first_sequence": 1}}
    answer = MemoryTransport(orders.instance, STRANGER).call(
        "POST", "/v1/topics/orders/records", {}, {}, json.dumps(body).encode()
    )
    assert checked_error(json.loads(answer.body)["offsets"][0]["error"])["code"] == "ACCESS_DENIED"
    assert values(orders) == ["a"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"partition": None}, "records[1] of a request with a sequence has partition=None next to 0"),
        ({"partition": 1}, "records[1] of a request with a sequence has partition=1 next to 0"),
        ({"timestamp_ms": None}, "records[1] of a request with a sequence has no timestamp_ms"),
        ({"delay_ms": 1_000}, "records[1] of a request with a sequence is delayed"),
        ({"deliver_at_ms": 2**41}, "records[1] of a request with a sequence is delayed"),
    ],
)
def test_record_that_a_repeat_could_place_otherwise_refuses_the_request(
    orders: Service, wrong: dict[str, object], said: str
) -> None:
    answer = send(orders, record(), {**record(), **wrong}, first=0)
    error = checked_error(answer.json["error"])
    assert (answer.status, error["code"]) == (400, "INVALID_REQUEST")
    assert error["message"].startswith(said)
    assert values(orders) == []


@pytest.mark.parametrize(
    "sequence",
    [
        {"producer_id": -1},
        {"producer_id": 2**63},
        {"producer_id": "4711"},
        {"epoch": PRODUCER_EPOCH_MAX + 1},
        {"first_sequence": -1},
        {"first_sequence": SEQUENCE_MAX + 1},
        {"first_sequence": SEQUENCE_MAX},  # the second record would be above
        {"last_sequence": 1},
    ],
)
def test_number_out_of_its_bounds_is_refused(orders: Service, sequence: dict[str, object]) -> None:
    answer = send(orders, record(), record(), **{"first": 0, **sequence})  # type: ignore[arg-type]
    assert (answer.status, checked_error(answer.json["error"])["code"]) == (400, "INVALID_REQUEST")


def test_largest_numbers_are_taken(orders: Service) -> None:
    answer = send(orders, record(), first=SEQUENCE_MAX, producer_id=2**63 - 1, epoch=PRODUCER_EPOCH_MAX)
    assert refusal(answer)["expected_sequence"] == 0, "it has no predecessor, and nothing else is wrong"
    assert offsets(send(orders, record(), first=0, producer_id=2**63 - 1, epoch=PRODUCER_EPOCH_MAX)) == [0]


def test_records_go_together_or_not_at_all(service: Service) -> None:
    service.create(max_batch_bytes=1_024)
    service.create("keyed", cleanup_policy="compact")
    large, half = record("x" * 1_100), record("x" * 600)
    for records, status, code in (
        ([large], 413, "RECORD_TOO_LARGE"),
        ([half, half], 413, "REQUEST_TOO_LARGE"),
        ([half, large], 413, "REQUEST_TOO_LARGE"),
    ):
        answer = send(service, *records, first=0)
        error = checked_error(answer.json["error"])
        assert (answer.status, error["code"], error["limit"]) == (status, code, 1_024)
    body = {"records": [record(key="k"), record()], "sequence": {"producer_id": ME, "first_sequence": 0}}
    answer = service.call("POST", "/v1/topics/keyed/records", body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_RECORD")
    assert values(service) == []
    assert offsets(send(service, half, first=0)) == [0], "nothing of the refused requests has used a number"
