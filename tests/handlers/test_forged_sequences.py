"""A client that reads a producer's numbers from the log, and writes other bytes under them."""

import json
from typing import Any

import pytest

from penstock.testing import MemoryTransport
from penstock_core.records import frame
from penstock_core.records.codec import BatchBuilder, decode
from penstock_core.records.record_batch import parse_header, walk
from tests.handlers.service import Service, checked_error
from tests.support.service import key_of

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
