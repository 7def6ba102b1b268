"""Idempotent producers in JSON: a repeat stores nothing twice, whatever it meets, and a sequence goes whole or not.

A client that reads a producer's numbers from the log, and writes other bytes under them.
"""

import json
from typing import Any

import pytest

from penstock.testing import MemoryTransport
from penstock_core.limits import PRODUCER_EPOCH_MAX
from penstock_core.records import frame
from penstock_core.records.codec import BatchBuilder, decode
from penstock_core.records.producer_state import SEQUENCE_MAX
from penstock_core.records.record_batch import parse_header, walk
from tests.handlers.service import Answer, Service, checked_error
from tests.support.service import key_of

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


MINE = {"producer_id": 77, "producer_epoch": 3}


def _batch(value: str, **numbers: int) -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, value.encode())
    return builder.build(**numbers)


def _send(orders: Service, data: bytes) -> dict[str, Any]:
    answer = orders.produce(("orders", 0, data))
    assert answer.status == 200
    [result] = answer.json["results"]
    assert isinstance(result, dict)
    return result


def _log(orders: Service) -> bytes:
    _, [data] = orders.fetch({"topic": "orders", "partition": 0, "offset": 0})
    return data


def _values(orders: Service) -> list[bytes | None]:
    return [record.value for record in decode(_log(orders))]


def _refusal(result: dict[str, Any]) -> dict[str, Any]:
    assert "base_offset" not in result
    return checked_error(result["error"])


FORGER = "arn:aws:iam::000000000000:role/forger"


def _send_as(orders: Service, principal: str, data: bytes) -> dict[str, Any]:
    header = {"batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
    answer = MemoryTransport(orders.instance, principal).call(
        "POST", "/v1/produce", {}, {}, frame.encode(header, [data])
    )
    [result] = json.loads(answer.body)["results"]
    return dict(result)


def test_forger_with_rights_of_its_own_neither_fences_nor_follows_its_victim(orders: Service) -> None:
    assert _send(orders, _batch("mine 0", base_sequence=0, **MINE))["base_offset"] == 0
    seen = parse_header(_log(orders))
    for epoch, base in ((32_767, 0), (seen.producer_epoch, 1), (seen.producer_epoch, 0)):
        numbers = {"producer_id": seen.producer_id, "producer_epoch": epoch, "base_sequence": base}
        error = _refusal(_send_as(orders, FORGER, _batch("forged", **numbers)))
        assert (error["code"], error["maybe_applied"]) == ("ACCESS_DENIED", False)
    assert _send(orders, _batch("mine 1", base_sequence=1, **MINE))["base_offset"] == 1
    assert _values(orders) == [b"mine 0", b"mine 1"]


def test_victim_that_has_left_the_head_is_not_fenced_either(orders: Service) -> None:
    _send(orders, _batch("mine 0", base_sequence=0, **MINE))
    for producer_id in range(1_000, 1_080):
        _send_as(orders, FORGER, _batch("x", producer_id=producer_id, producer_epoch=0, base_sequence=0))
    [head] = orders.instance.stores.log.heads([key_of(orders.instance, "orders")]).values()
    assert MINE["producer_id"] not in head.producers
    forged = _batch("forged", producer_id=MINE["producer_id"], producer_epoch=32_767, base_sequence=0)
    assert _refusal(_send_as(orders, FORGER, forged))["code"] == "ACCESS_DENIED"
    assert _send(orders, _batch("mine 1", base_sequence=1, **MINE))["base_offset"] == 81


@pytest.mark.parametrize("forged_records", [1, 2])
def test_append_whose_sequence_was_forged_is_refused_and_not_acknowledged(orders: Service, forged_records: int) -> None:
    assert _send(orders, _batch("mine 0", base_sequence=0, **MINE))["base_offset"] == 0
    *_, (_, seen) = walk(_log(orders))
    forger = {"producer_id": seen.producer_id, "producer_epoch": seen.producer_epoch}
    for number in range(1, 1 + forged_records):
        assert _send(orders, _batch(f"forged {number}", base_sequence=number, **forger))["base_offset"] == number

    error = _refusal(_send(orders, _batch("mine 1", base_sequence=1, **MINE)))
    assert (error["code"], error["maybe_applied"]) == ("OUT_OF_ORDER_SEQUENCE", False)
    assert error["expected_sequence"] == 1 + forged_records
    assert "with other bytes" in error["message"]
    again = _send(orders, _batch("mine 1", base_sequence=0, producer_id=78, producer_epoch=0))
    assert again["base_offset"] == 1 + forged_records
    assert [value for value in _values(orders) if value == b"mine 1"] == [b"mine 1"]


def test_forger_is_not_acknowledged_at_the_offset_of_the_victim(orders: Service) -> None:
    mine = _batch("mine 0", base_sequence=0, **MINE)
    first = _send(orders, mine)
    seen = parse_header(_log(orders))
    error = _refusal(_send(orders, _batch("forged", producer_id=seen.producer_id, producer_epoch=3, base_sequence=0)))
    assert (error["code"], error["maybe_applied"]) == ("OUT_OF_ORDER_SEQUENCE", False)
    assert _send(orders, mine) == first
    assert _values(orders) == [b"mine 0"]
