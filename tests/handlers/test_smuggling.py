"""Requests that look like something else: other routes, other numbers, a name twice, values that grow the answer.

Every reader passes a legal record of 2 KB that decodes to megabytes, and gets the record behind it.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from penstock.testing import MemoryPenstock
from penstock_core.limits import JSON_HEADERS_MAX, MIB, OWNED_PARTITIONS_MAX, RESPONSE_BYTES_MAX, TOPIC_PARTITIONS_MAX
from penstock_core.records import frame
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression
from penstock_core.text import escaped
from penstock_handlers import admin, fetch
from penstock_handlers.edge.entry import answer
from penstock_handlers.edge.http import json_result
from tests.handlers.service import Service, gateway_event

READ = "/v1/topics/orders/partitions/0/records"
HEARTBEAT = "/v1/groups/billing/heartbeat"
MEMBER = {"member_id": "m", "sequence": 1, "epoch": 0}


@pytest.mark.parametrize("name", ["orders\n", "orders/partitions/0/records", "orders/", "orders?x", "orders%", "\0"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_name_with_a_slash_or_a_newline_is_no_name_and_no_other_route(orders: Service, method: str, name: str) -> None:
    refused = orders.call(method, f"/v1/topics/{quote(name, safe='')}")
    assert (refused.status, refused.error["code"]) == (400, "INVALID_NAME")
    assert orders.call("GET", "/v1/topics/orders").status == 200


def test_function_goes_by_the_route_that_the_gateway_chose(orders: Service) -> None:
    chosen = {**gateway_event("GET", "/v1/topics/{topic}"), "rawPath": READ, "pathParameters": {"topic": "orders"}}
    assert json.loads(answer(admin.serve, chosen, orders.instance)["body"])["name"] == "orders"
    other = {**gateway_event("GET", READ), "routeKey": "GET /v1/topics/{topic}", "pathParameters": {"topic": "orders"}}
    refused = answer(fetch.serve, other, orders.instance)
    assert json.loads(refused["body"])["error"]["code"] == "UNKNOWN_ROUTE"


@pytest.mark.parametrize("text", ["0.0", "+0", " 0", "0 ", "00", "0\n", "1_0", "٠", "0x0", "-0", "", "9" * 5_000])
@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        (READ, "max_bytes"),
        (READ, "wait_ms"),
        ("/v1/topics", "limit"),
        ("/v1/groups", "limit"),
        ("/v1/topics/orders/offsets", "partition"),
    ],
)
def test_number_in_a_query_has_digits_only(orders: Service, path: str, parameter: str, text: str) -> None:
    refused = orders.call("GET", path, **{parameter: text})
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")
    assert parameter in refused.error["message"]


@pytest.mark.parametrize("text", ["0.0", "+0", " 0", "00", "0\n", "0_0", "٠"])
def test_number_in_a_path_has_digits_only(orders: Service, text: str) -> None:
    refused = orders.call("GET", f"/v1/topics/orders/partitions/{quote(text)}/records")
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", b'{"name": "a", "name": "b"}'),
        ("POST", "/v1/topics", b'{"name": "a", "config": {"retention_ms": 60000, "retention_ms": 70000}}'),
        ("POST", "/v1/topics/orders/truncate", b'{"0": 1, "0": 2}'),
        ("POST", "/v1/fetch", b'{"partitions": [{"topic": "a", "topic": "orders", "partition": 0, "offset": 0}]}'),
        ("POST", "/v1/produce", b"\0\0\0\x1d" + b'{"batches":[],"batches":[{}]}'),
    ],
)
def test_name_that_stands_twice_is_refused(orders: Service, method: str, path: str, body: bytes) -> None:
    refused = orders.call(method, path, body)
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")
    assert "twice" in refused.error["message"]


_LONG = "\x7f" * 300_000
_DEEP_PLACES: list[tuple[str, str, str, str]] = [
    ("POST", "/v1/topics", '{"name": "t", "config": {"retention_ms": ', "}}"),
    ("POST", "/v1/topics", '{"name": "t", "config": {"cleanup_policy": ', "}}"),
    ("PATCH", "/v1/groups/billing", '{"config": {"assignor": ', "}}"),
    ("PATCH", "/v1/groups/billing", '{"config": {"session_timeout_ms": ', "}}"),
    ("POST", "/v1/fetch", '{"partitions": ', "}"),
    ("POST", "/v1/fetch", '{"partitions": [', "]}"),
    ("POST", "/v1/fetch", "", ""),
    ("POST", "/v1/topics/orders/records", '{"records": [{"value": ', "}]}"),
]


@pytest.mark.parametrize(("method", "path", "before", "behind"), _DEEP_PLACES)
def test_nesting_of_any_depth_is_refused_and_no_defect(
    orders: Service, method: str, path: str, before: str, behind: str
) -> None:
    statuses = set()
    for depth in range(sys.getrecursionlimit() - 350, sys.getrecursionlimit() + 10):
        refused = orders.call(method, path, f"{before}{'[' * depth}{']' * depth}{behind}".encode())
        statuses.add((refused.status, refused.error["maybe_applied"]))
    assert statuses == {(400, False)}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics", {"name": "t", "config": {_LONG: 1}}),
        ("POST", "/v1/topics", {"name": "t", "config": {"retention_ms": _LONG}}),
        ("POST", "/v1/topics", {"name": "t", "config": {"cleanup_policy": _LONG}}),
        ("POST", "/v1/topics", {"name": "t", "partitions": 10**4_000}),
        ("POST", "/v1/topics", {"name": "\x7f" * 249}),
        ("POST", "/v1/topics", {"name": "t", _LONG: 1}),
        ("PATCH", "/v1/groups/billing", {"config": {_LONG: 1}}),
        ("PATCH", "/v1/groups/billing", {"config": {"assignor": _LONG}}),
        ("POST", "/v1/groups/billing/offsets", {"offsets": [{"topic": _LONG, "partition": 0, "offset": 1}] * 2}),
        ("POST", "/v1/fetch", {"partitions": [{"topic": "orders", "partition": 10**4_000, "offset": 0}]}),
        ("POST", "/v1/fetch", {_LONG: 1}),
        ("POST", "/v1/producers", {"transactional_id": "\x7f" * 249}),
        ("POST", "/v1/topics/orders/truncate", {_LONG: 1}),
        ("POST", HEARTBEAT, {**MEMBER, "subscription": {"patterns": ["\x7f" * 249]}}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_answer_shows_a_hundred_characters_of_a_value(orders: Service, method: str, path: str, body: object) -> None:
    refused = orders.call(method, path, body)
    assert refused.status == 400
    assert len(refused.error["message"]) < 500


def test_request_is_checked_up_to_its_first_mistake_in_an_array(orders: Service) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        (HEARTBEAT, {**MEMBER, "owned": {"a": ["x"] * TOPIC_PARTITIONS_MAX}}),
        (HEARTBEAT, {**MEMBER, "subscription": {"topics": [1] * 100}}),
        ("/v1/topics/orders/records", {"records": [{"value": "v", "headers": [1] * JSON_HEADERS_MAX}]}),
        ("/v1/groups/billing/offsets", {"offsets": [{"topic": 1, "partition": 0, "offset": 0}] * 1_000}),
    ]
    for path, body in wrong:
        assert orders.call("POST", path, body).error["message"].count("got") == 1, path


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (HEARTBEAT, {**MEMBER, "owned": {"a": [0] * (TOPIC_PARTITIONS_MAX + 1)}}, "at most 1000"),
        (
            HEARTBEAT,
            {**MEMBER, "owned": {f"{number}": [*range(1_000)] for number in range(OWNED_PARTITIONS_MAX // 1_000 + 1)}},
            f"{OWNED_PARTITIONS_MAX} at most",
        ),
        (HEARTBEAT, {**MEMBER, "owned": {f"{number}": [] for number in range(10_001)}}, "10001 names"),
        (HEARTBEAT, {**MEMBER, "owned": {"\x7f" * 21: [0]}}, "at most 20 characters"),
        (HEARTBEAT, {**MEMBER, "subscription": {"topics": ["a"] * 10_001}}, "at most 10000"),
        (
            "/v1/topics/orders/records",
            {"records": [{"value": "v", "headers": [["a", None]] * (JSON_HEADERS_MAX + 1)}]},
            "at most 1000",
        ),
    ],
    ids=["partitions of a topic", "partitions", "topics", "topic id", "names", "headers"],
)
def test_count_over_its_limit_is_refused(orders: Service, path: str, body: object, told: str) -> None:
    refused = orders.call("POST", path, body)
    assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")
    assert told in refused.error["message"]


def test_record_takes_as_many_headers_as_the_limit_says(orders: Service) -> None:
    assert "offset" in orders.send({"value": "v", "headers": [["a", None]] * JSON_HEADERS_MAX})[0]


@pytest.mark.parametrize(("method", "is_write"), [("GET", False), ("POST", True)])
def test_answer_that_lambda_cannot_return_becomes_an_error(orders: Service, method: str, is_write: bool) -> None:
    quotes = '"' * (RESPONSE_BYTES_MAX // 4)
    assert len(quotes) < RESPONSE_BYTES_MAX < len(json.dumps(json.dumps(quotes)))
    result = answer(lambda _event, _to: json_result(quotes), gateway_event(method, "/v1/topics"), orders.instance)
    error = json.loads(result["body"])["error"]
    assert (result["statusCode"], error["code"], error["maybe_applied"]) == (413, "RESPONSE_TOO_LARGE", is_write)
    assert error["limit"] == RESPONSE_BYTES_MAX


def test_produce_of_ten_thousand_refused_records_has_an_answer_that_lambda_returns(service: Service) -> None:
    topic = "t" * 249
    service.create(topic)
    answered = service.send(*[{"value": "v", "partition": 999}] * 10_000, topic=topic)
    assert {each["error"]["code"] for each in answered} == {"UNKNOWN_PARTITION"}


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x9b", "\u202egnp.exe"])
def test_text_that_operators_read_has_no_control_characters(orders: Service, text: str) -> None:
    joining = {**MEMBER, "subscription": {"topics": ["orders"]}, "client_id": text}
    moving = {"state": "taken_out", "reason": text}
    for path, body, name in ((HEARTBEAT, joining, "client_id"), ("/v1/zones/a", moving, "reason")):
        refused = orders.call("POST", path, body)
        assert (refused.status, refused.error["code"]) == (400, "INVALID_REQUEST")
        assert f"{name}=" in refused.error["message"]
    assert orders.call("GET", "/v1/groups").json["groups"] == []
    assert {zone["state"] for zone in orders.call("GET", "/v1/zones").json["zones"]} == {"in_sync"}


def test_json_answer_has_no_character_that_a_terminal_obeys(orders: Service) -> None:
    hostile = "\x9b31m\u202egnp.exe\u2028é"
    offset = {"topic": "orders", "partition": 0, "offset": 0, "metadata": f"\x1b\n{hostile}"}
    orders.call("POST", "/v1/groups/billing/offsets", {"offsets": [offset]})
    orders.send({"value": hostile, "partition": 0, "headers": [["\x1b", hostile]]})
    for path, found in (("/v1/groups/billing/offsets", "metadata"), (READ, "value")):
        body = orders.call("GET", path).body.decode()
        assert escaped(body) == body
        assert "é" in body
        assert hostile in json.dumps(json.loads(body), ensure_ascii=False)
        assert found in body


NOW_MS = 1_790_000_000_000
ARN = "arn:aws:lambda:eu-west-1:111122223333:function:pack"
FILTER = {"type": ["yes"]}
BOMBS = 2
STEPS_MAX = 100

Step = Callable[[], bool]
"""One call of a reader. True once the record behind the bombs has come."""


def by_subscription(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    handled: list[int] = []
    service.add_function(ARN, lambda event, _: handled.extend(each["offset"] for each in event["records"]["orders-0"]))
    service.admin().put_subscription("packing", "orders", {"lambda": ARN}, {"start": "earliest", **settings})

    def step() -> bool:
        service.deliver_pushes()
        return BOMBS in handled

    return step


def by_json(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    service.create_share_group("workers", "orders", {"start": "earliest", **settings})

    def step() -> bool:
        body = json.dumps({"max_records": 100}).encode()
        answer = service.transport.call("POST", "/v1/share-groups/workers/records", {}, {}, body)
        return any(each["key"] == "good" for each in json.loads(answer.body).get("records", ()))

    return step


def by_share_consumer(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    service.create_share_group("workers", "orders", {"start": "earliest", **settings})
    consumer = service.share_consumer(group_id="workers")

    def step() -> bool:
        records = consumer.poll(timeout_ms=1_000)
        for record in records:
            consumer.accept(record)
        return any(record.key == b"good" for record in records)

    return step


def by_fetch(service: MemoryPenstock, settings: Mapping[str, Any]) -> Step:
    consumer = service.consumer("orders", group_id="readers", auto_offset_reset="earliest", **settings)
    return lambda: any(record.key == b"good" for record in consumer.poll(timeout_ms=1_000))


Reader = tuple[Callable[[MemoryPenstock, Mapping[str, Any]], Step], Mapping[str, Any]]
READERS: Mapping[str, Reader] = {
    "ordered subscription": (by_subscription, {"mode": "ordered"}),
    "parallel subscription": (by_subscription, {"mode": "parallel"}),
    "subscription with a filter": (by_subscription, {"filter": FILTER}),
    "share group, JSON": (by_json, {}),
    "share group by key, JSON": (by_json, {"ordering": "key"}),
    "share group with a filter, JSON": (by_json, {"filter": FILTER}),
    "share group, SDK": (by_share_consumer, {}),
    "share group by key, SDK": (by_share_consumer, {"ordering": "key"}),
    "share group with a filter, SDK": (by_share_consumer, {"filter": FILTER}),
    "consumer, SDK": (by_fetch, {}),
    "consumer with a filter, SDK": (by_fetch, {"filter": FILTER}),
}


@pytest.mark.parametrize("reader", READERS)
def test_reader_gets_the_record_behind_bombs(reader: str) -> None:
    start, settings = READERS[reader]
    bomb = encode([NewRecord(NOW_MS, b"bomb", bytes(8 * MIB))], Compression.ZSTD)
    good = encode([NewRecord(NOW_MS, b"good", b"good", [("type", b"yes")])])
    with MemoryPenstock() as service:
        service.create_topic("orders")
        for data in (*[bomb] * BOMBS, good):
            _put(service, data)
        step = start(service, settings)
        assert any(step() for _ in range(STEPS_MAX))


def _put(service: MemoryPenstock, data: bytes) -> None:
    header = {"acks": "quorum", "batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
    body = frame.encode(header, [data])
    answer = service.transport.call("POST", "/v1/produce", {}, {"Content-Type": frame.FRAME_CONTENT_TYPE}, body)
    assert "error" not in json.loads(answer.body)["results"][0], answer.body
