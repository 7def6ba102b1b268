"""Records in JSON: in and out unchanged, where keys land, what is too large, and answers that stop short."""

import base64
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.records.codec import NewRecord, Record, encode
from penstock_core.records.partitioner import partition_for_key
from penstock_core.records.record_batch import Compression
from penstock_handlers.routes import records_fetch
from tests.handlers.service import Service, checked_error
from tests.support.deadlines import DEADLINE_S
from tests.support.poison import bomb
from tests.support.service import another_instance, batch

LAMBDA_ANSWER_BYTES_MAX = 6 * 1024 * 1024


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _all(service: Service, **query: str) -> list[dict[str, Any]]:
    """Every record of orders-0, answer after answer; each must go on exactly where the one before ended."""
    records: list[dict[str, Any]] = []
    offset = 0
    while True:
        answer = service.call("GET", "/v1/topics/orders/partitions/0/records", offset=str(offset), **query)
        assert answer.status == 200, answer.body
        in_lambda = json.dumps({"body": answer.body.decode()}, ensure_ascii=False).encode()
        assert len(in_lambda) < LAMBDA_ANSWER_BYTES_MAX
        found = answer.json["records"]
        assert [record["offset"] for record in found] == list(range(offset, answer.json["next_offset"]))
        records += found
        offset = answer.json["next_offset"]
        if offset == answer.json["high_watermark"]:
            return records
        assert found


def test_records_without_a_partition_go_to_the_new_ones_when_the_service_has_an_old_view(service: Service) -> None:
    service.create(partitions=2, ordering_on_change="wait")
    stale = Service(another_instance(service.instance))
    path = "/v1/topics/orders/records"
    assert stale.call("POST", path, {"records": [{"value": "a", "partition": 1}]}).status == 200
    assert service.call("PATCH", "/v1/topics/orders", {"partitions": 3}).status == 200
    records = [{"value": "k", "key": "k"}, {"value": "p", "partition": 1}, {"value": "n"}]
    keyed, pinned, keyless = stale.call("POST", path, {"records": records}).json["offsets"]
    assert (keyed["partition"], keyed["offset"]) == (2 + partition_for_key(b"k", 3), 0)
    assert checked_error(pinned["error"])["code"] == "PARTITION_CLOSED"
    assert keyless["partition"] >= 2
    assert "error" not in keyless


AWKWARD: list[dict[str, Any]] = [
    {"key": "k", "value": "v", "headers": [["name", "text"], ["name", "again"], ["", ""]]},
    {"key": "ключ", "value": "値 🙂", "headers": [["имя", "значение"]]},
    {"key": None, "value": None, "headers": []},
    {"key": "", "value": "", "headers": []},
    {"key": "tombstone", "value": None, "headers": []},
    {"key_base64": _base64(b"\xff\xfe"), "value_base64": _base64(bytes(range(256))), "headers": []},
    {"key": "tab\tnewline\nreturn\r", "value": '"quotes" and \\ \u2028', "headers": []},
    {"key_base64": _base64(b"\x00"), "value_base64": _base64(b"bell\x07"), "headers": [["h", {"base64": "AAE="}]]},
    {"key_base64": _base64(b"del\x7f"), "value": "v", "headers": []},
]


def test_records_come_back_as_they_went(orders: Service) -> None:
    sent = [record | {"partition": 0, "timestamp_ms": index} for index, record in enumerate(AWKWARD)]
    assert orders.send(*sent) == [{"partition": 0, "offset": index} for index in range(len(sent))]
    expected = [{"offset": index, "timestamp_ms": index, **record} for index, record in enumerate(AWKWARD)]
    assert orders.read()["records"] == expected


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=40))
def test_bytes_come_back_as_they_went(orders: Service, key: bytes | None, value: bytes | None) -> None:
    record: dict[str, object] = {"partition": 0, "value": None}
    if key is not None:
        record["key_base64"] = _base64(key)
    if value is not None:
        del record["value"]
        record["value_base64"] = _base64(value)
    [placed] = orders.send(record)
    [shown] = orders.read(offset=str(placed["offset"]))["records"]

    def data(name: str) -> bytes | None:
        if f"{name}_base64" in shown:
            return base64.b64decode(shown[f"{name}_base64"])
        return None if shown[name] is None else str(shown[name]).encode()

    assert (data("key"), data("value")) == (key, value)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({}, "neither value nor value_base64"),
        ({"value": "v", "value_base64": "AA=="}, "both value and value_base64"),
        ({"value": None, "value_base64": "AA=="}, "both value and value_base64"),
        ({"value": "v", "key": "k", "key_base64": "AA=="}, "both key and key_base64"),
        ({"value_base64": "A"}, "value_base64='A'"),
        ({"value_base64": "ä"}, "value_base64='ä'"),
        ({"value": "v", "key_base64": "A A="}, "key_base64='A A='"),
        ({"value": "v", "headers": [["h", {"base64": "?"}]]}, "headers='?'"),
    ],
)
def test_record_is_refused_when_its_bytes_are_not_clear(orders: Service, record: dict[str, object], told: str) -> None:
    answer = orders.call("POST", "/v1/topics/orders/records", {"records": [{"value": "good"}, record]})
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")
    assert "records[1]" in answer.error["message"]
    assert told in answer.error["message"]
    assert [orders.read(partition=number)["records"] for number in range(3)] == [[], [], []]


WRONG = [True, 1, 1.5, "x", [], {}, [1], -1, 2**63, None]
FIELDS: dict[str, tuple[str, str, list[object]]] = {  # field: what is sent around it, and what it may be
    "name": ("POST /v1/topics", "{%}", ["x"]),
    "partitions": ("POST /v1/topics", '{"name":"t",%}', [1]),
    "config": ("POST /v1/topics", '{"name":"t",%}', [{}]),
    "records": ("POST /v1/topics/orders/records", "{%}", []),
    "key": ("POST /v1/topics/orders/records", '{"records":[{"value":"v",%}]}', ["x", None]),
    "key_base64": ("POST /v1/topics/orders/records", '{"records":[{"value":"v",%}]}', [None]),
    "value": ("POST /v1/topics/orders/records", '{"records":[{%}]}', ["x", None]),
    "value_base64": ("POST /v1/topics/orders/records", '{"records":[{%}]}', [None]),
    "headers": ("POST /v1/topics/orders/records", '{"records":[{"value":"v",%}]}', [[]]),
    "partition": ("POST /v1/topics/orders/records", '{"records":[{"value":"v",%}]}', [1, None]),
    "timestamp_ms": ("POST /v1/topics/orders/records", '{"records":[{"value":"v",%}]}', [1, -1, None]),
    "offsets": ("POST /v1/groups/g/offsets", "{%}", []),
    "topic": ("POST /v1/groups/g/offsets", '{"offsets":[{"partition":0,"offset":1,%}]}', ["x"]),
    "offset": ("POST /v1/groups/g/offsets", '{"offsets":[{"topic":"orders","partition":0,%}]}', [1]),
    "metadata": ("POST /v1/groups/g/offsets", '{"offsets":[{"topic":"orders","partition":0,"offset":1,%}]}', ["x"]),
    "0": ("POST /v1/topics/orders/truncate", "{%}", []),
}


@pytest.mark.parametrize("field", FIELDS)
def test_field_is_refused_when_it_has_a_wrong_type(orders: Service, field: str) -> None:
    route, around, allowed = FIELDS[field]
    for value in WRONG:
        if any(type(value) is type(good) and value == good for good in allowed) or (field == "0" and value == 1):
            continue
        body = around.replace("%", f'"{field}":{json.dumps(value)}').encode()
        method, path = route.split(" ", 1)
        answer = orders.call(method, path, body)
        assert answer.status == 400, (value, answer.body)
        assert answer.error["code"] in ("INVALID_REQUEST", "INVALID_NAME", "INVALID_CONFIG")


@pytest.mark.parametrize("header", [["a"], ["a", "b", "c"], [1, "b"], ["a", 1], ["a", {"base65": "AA=="}], "ab"])
def test_header_is_refused_when_it_is_no_pair_of_name_and_text(orders: Service, header: object) -> None:
    answer = orders.call("POST", "/v1/topics/orders/records", {"records": [{"value": "v", "headers": [header]}]})
    assert (answer.status, answer.error["code"]) == (400, "INVALID_REQUEST")


def test_keys_land_where_murmur2_says_and_keyless_records_together(service: Service) -> None:
    service.create("orders", 7)
    keys = [f"key-{number}" for number in range(40)]
    placed = service.send(*({"key": key, "value": "v"} for key in keys), *({"value": "v"} for _ in range(20)))
    assert [item["partition"] for item in placed[:40]] == [partition_for_key(key.encode(), 7) for key in keys]
    assert len({item["partition"] for item in placed[40:]}) == 1
    again = service.send({"key_base64": _base64(b"key-3"), "value": "v"})
    assert again[0]["partition"] == placed[3]["partition"]


def test_partition_that_is_named_goes_before_the_key(orders: Service) -> None:
    assert [
        item["partition"] for item in orders.send(*({"key": "k", "value": "v", "partition": n} for n in range(3)))
    ] == [0, 1, 2]


def test_record_that_is_too_large_fails_alone(service: Service) -> None:
    service.create("orders", max_batch_bytes=1_024)
    values = ["a" * 400, "b" * 2_000, "c" * 900, "d" * 400, "e" * 1_024, "f"]
    placed = service.send(*({"value": value} for value in values))
    for index in (1, 4):
        error = checked_error(placed[index]["error"])
        assert (error["code"], error["limit"]) == ("RECORD_TOO_LARGE", 1_024)
        assert f"records[{index}]" in error["message"]
    assert [item.get("offset") for item in placed] == [0, None, 1, 2, None, 3]
    assert [record["value"][0] for record in _all(service)] == ["a", "c", "d", "f"]


def test_record_without_a_key_fails_alone_when_the_topic_is_compacted(service: Service) -> None:
    service.create("orders", cleanup_policy="compact,delete")
    records: list[dict[str, object]] = [{"key": "k"}, {}, {"delay_ms": 1_000}, {"key": "", "value": "last"}]
    placed = service.send(*({"value": "v", "partition": 0, **each} for each in records))
    assert [item.get("offset") for item in placed] == [0, None, None, 1]
    for index in (1, 2):
        error = checked_error(placed[index]["error"])
        assert (error["code"], error["message"][:10]) == ("INVALID_RECORD", f"records[{index}]")
    assert [record["value"] for record in _all(service)] == ["v", "last"]


def test_record_of_an_unknown_partition_fails_alone(orders: Service) -> None:
    placed = orders.send({"value": "a", "partition": 0}, {"value": "b", "partition": 9}, {"value": "c", "partition": 0})
    assert [item.get("offset") for item in placed] == [0, None, 1]
    assert checked_error(placed[1]["error"])["code"] == "UNKNOWN_PARTITION"


@pytest.mark.slow
def test_as_many_records_as_the_limit_says_go_in_one_request(orders: Service) -> None:
    placed = orders.send(*({"value": str(n), "partition": 0} for n in range(limits.JSON_RECORDS_MAX)))
    assert [item["offset"] for item in placed] == list(range(limits.JSON_RECORDS_MAX))
    assert [record["value"] for record in _all(orders)] == [str(n) for n in range(limits.JSON_RECORDS_MAX)]


@pytest.mark.parametrize("compression", list(Compression))
def test_fetch_shows_stored_batches_of_every_compression_from_the_offset_on(
    orders: Service, compression: Compression
) -> None:
    orders.produce(("orders", 0, batch(*(f"{number} " * 20 for number in range(10)), compression=compression)))
    assert [record["value"] for record in orders.read(offset="7")["records"]] == [f"{n} " * 20 for n in (7, 8, 9)]
    assert orders.read(offset="latest")["records"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["я" * 50, '"' * 60, "\n" * 60, "x" * 200], ids=["letters", "quotes", "newlines", "ascii"]
)
def test_fetch_stops_short_of_what_lambda_can_answer_and_goes_on_exactly(service: Service, text: str) -> None:
    """Highly compressed, so that far more JSON than 4 MiB is within max_bytes."""
    service.create("orders")
    values = [f"{number}:{text * 200}" for number in range(1_200)]
    for start in range(0, 1_200, 300):
        records = [NewRecord(1, None, value.encode()) for value in values[start : start + 300]]
        service.produce(("orders", 0, encode(records, Compression.ZSTD)))
    assert [record["value"] for record in _all(service, max_bytes=str(limits.FETCH_BYTES_MAX))] == values


def test_fetch_refuses_one_record_that_fits_into_no_answer(service: Service) -> None:
    service.create("orders")
    sizes = [1, limits.JSON_RECORD_BYTES_MAX - 1_000, limits.JSON_RECORD_BYTES_MAX, 1]
    for size in sizes:
        service.produce(("orders", 0, encode([NewRecord(1, None, b"x" * size)], Compression.ZSTD)))
    assert [record["offset"] for record in service.read(offset="0")["records"]] == [0]
    assert [record["offset"] for record in service.read(offset="1")["records"]] == [1]
    refused = service.call("GET", "/v1/topics/orders/partitions/0/records", offset="2")
    assert (refused.status, refused.error["code"]) == (413, "RECORD_TOO_LARGE")
    assert "offset 2" in refused.error["message"]
    assert refused.error["limit"] == limits.JSON_RECORD_BYTES_MAX
    assert [record["offset"] for record in service.read(offset="3")["records"]] == [3]


def test_fetch_stops_before_a_batch_that_does_not_decode_and_then_tells(orders: Service) -> None:
    poisoned = _poisoned()
    for data in (batch("a", "b"), poisoned, batch("c")):
        assert "base_offset" in orders.produce(("orders", 0, data)).json["results"][0]
    answer = orders.read(offset="1")
    assert ([record["value"] for record in answer["records"]], answer["next_offset"]) == (["b"], 2)
    refused = orders.call("GET", "/v1/topics/orders/partitions/0/records", offset="2")
    assert (refused.status, refused.error["code"]) == (400, "CORRUPT_BATCH")
    facts = {name: refused.error[name] for name in ("topic", "partition", "base_offset", "next_offset")}
    assert facts == {"topic": "orders", "partition": 0, "base_offset": 2, "next_offset": 3}
    assert "seek to 3 to skip it" in refused.error["message"]
    assert [record["value"] for record in orders.read(offset="3")["records"]] == ["c"]


def test_fetch_makes_no_text_of_a_record_whose_bytes_alone_are_too_many(
    orders: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[int] = []
    to_json = records_fetch._to_json

    def noted(record: Record) -> Any:
        shown.append(record.offset)
        return to_json(record)

    monkeypatch.setattr(records_fetch, "_to_json", noted)
    orders.produce(("orders", 0, batch("small") + bomb(60 * limits.MIB)))

    assert [record["offset"] for record in orders.read(offset="0")["records"]] == [0]
    refused = orders.call("GET", "/v1/topics/orders/partitions/0/records", offset="1")

    assert (refused.status, refused.error["code"]) == (413, "RECORD_TOO_LARGE")
    assert shown == [0]


def _poisoned() -> bytes:
    """A batch whose CRC is right and whose payload is no zstd."""
    data = bytearray(batch("x" * 100, compression=Compression.ZSTD))
    data[61:65] = b"\0\0\0\0"
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


def test_requests_of_many_threads_do_not_meet(orders: Service) -> None:
    """Powertools keeps the current event in a class attribute; each group must still get its own offset."""
    usual_s = sys.getswitchinterval()
    start = threading.Barrier(8, timeout=DEADLINE_S)

    def commit(name: int) -> list[int]:
        start.wait()
        seen = []
        for number in range(25):
            path = f"/v1/groups/group-{name}/offsets"
            entry = {"topic": "orders", "partition": 0, "offset": name * 25 + number}
            assert orders.call("POST", path, {"offsets": [entry]}).status == 200
            seen.append(orders.call("GET", path).json["offsets"][0]["offset"])
        return seen

    for number in range(2):
        records = [{"value": "x", "partition": 0}] * 100
        assert orders.call("POST", "/v1/topics/orders/records", {"records": records}).status == 200, number
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(commit, range(8))) == [[n * 25 + i for i in range(25)] for n in range(8)]
    finally:
        sys.setswitchinterval(usual_s)
