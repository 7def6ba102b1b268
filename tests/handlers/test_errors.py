"""Every row of the error table in docs/reference/http-api.md that can happen behind API Gateway: request and answer."""

import re
from pathlib import Path
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import REQUEST_BYTES_MAX
from penstock_core.records import frame
from penstock_handlers import admin, produce
from penstock_handlers.edge.entry import answer
from penstock_handlers.router import dispatch
from tests.handlers.service import Service, checked_error, gateway_event
from tests.support.service import LOST_ANSWER, Intercepted, batch, with_stores, zone_of

NAME = "x" * 250
RECORDS = "/v1/topics/orders/records"
READ = "/v1/topics/orders/partitions/0/records"
COMMIT = "/v1/groups/billing/offsets"

# (method, path, query, body), status, code, what the message contains
REFUSED: list[tuple[tuple[str, str, dict[str, str], object], int, str, str]] = [
    (("POST", "/v1/topics", {}, b"{"), 400, "INVALID_REQUEST", "not JSON"),
    (("POST", "/v1/topics", {}, b""), 400, "INVALID_REQUEST", "body"),
    (("POST", "/v1/topics", {}, b"null"), 400, "INVALID_REQUEST", "body"),
    (("POST", "/v1/topics", {}, b"[" * 100_000), 400, "INVALID_REQUEST", "not JSON"),
    (("POST", "/v1/topics", {}, b'{"name":' + b"9" * 5_000 + b"}"), 400, "INVALID_REQUEST", "thousands of digits"),
    (("POST", "/v1/topics", {}, b'{"name":"\xff"}'), 400, "INVALID_REQUEST", "not UTF-8"),
    (("POST", RECORDS, {}, b'{"records":[{"value":"\\ud800"}]}'), 400, "INVALID_REQUEST", "ud800"),
    (("POST", "/v1/topics", {}, {"name": "t", "partition": 1}), 400, "INVALID_REQUEST", "partition"),
    (("POST", "/v1/topics", {}, {"name": "t", "partitions": 0}), 400, "INVALID_REQUEST", "0 partitions"),
    (("POST", "/v1/topics", {}, {"name": "t", "partitions": 1_001}), 400, "INVALID_REQUEST", "1001"),
    (("POST", "/v1/topics", {}, {"name": "a b"}), 400, "INVALID_NAME", "'a b'"),
    (("POST", "/v1/topics", {}, {"name": ".."}), 400, "INVALID_NAME", "'..'"),
    (("POST", "/v1/topics", {}, {"name": NAME}), 400, "INVALID_NAME", "250 characters"),
    (("GET", f"/v1/topics/{NAME}", {}, b""), 400, "INVALID_NAME", "250 characters"),
    (("POST", "/v1/topics", {}, {"name": "t", "config": {"retentions": 1}}), 400, "INVALID_CONFIG", "'retentions'"),
    (("POST", "/v1/topics", {}, {"name": "t", "config": {"retention": "read"}}), 400, "INVALID_CONFIG", "'read'"),
    (("POST", "/v1/topics", {}, {"name": "t", "config": {"max_batch_bytes": 1}}), 400, "INVALID_CONFIG", "=1:"),
    (("PATCH", "/v1/topics/orders", {}, {"config": {"max_batch_bytes": True}}), 400, "INVALID_CONFIG", "True"),
    (("PATCH", "/v1/topics/orders", {}, {"partitions": 0}), 400, "INVALID_REQUEST", "0 partitions"),
    (("POST", "/v1/topics", {}, {"name": "orders"}), 409, "TOPIC_EXISTS", "'orders'"),
    (("GET", "/v1/metadata", {"topics": "orders"}, b""), 400, "INVALID_REQUEST", "'topics'"),
    (("GET", "/v1/metadata", {"topic": "missing"}, b""), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("GET", "/v1/topics/missing", {}, b""), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("PATCH", "/v1/topics/missing", {}, {}), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("DELETE", "/v1/topics/missing", {}, b""), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("GET", "/v1/topics/missing/offsets", {}, b""), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("POST", "/v1/topics/missing/truncate", {}, {"0": 1}), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("POST", "/v1/topics/missing/records", {}, {"records": [{"value": "v"}]}), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("GET", "/v1/topics/missing/partitions/0/records", {}, b""), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("GET", "/v1/topics/orders/partitions/3/records", {}, b""), 404, "UNKNOWN_PARTITION", "partition 3"),
    (("GET", "/v1/topics/orders/offsets", {"partition": "9"}, b""), 404, "UNKNOWN_PARTITION", "partition 9"),
    (("GET", "/v2/topics", {}, b""), 404, "UNKNOWN_ROUTE", "GET /v2/topics"),
    (("PUT", "/v1/topics", {}, b""), 404, "UNKNOWN_ROUTE", "PUT /v1/topics"),
    (("GET", "/v1/topics", {"limits": "5"}, b""), 400, "INVALID_REQUEST", "'limits'"),
    (("GET", "/v1/topics", {"limit": "0"}, b""), 400, "INVALID_REQUEST", "'0'"),
    (("GET", "/v1/topics", {"limit": "1001"}, b""), 400, "INVALID_REQUEST", "'1001'"),
    (("GET", "/v1/topics", {"limit": "9" * 5_000}, b""), 400, "INVALID_REQUEST", "limit"),
    (("GET", "/v1/topics/orders/offsets", {"timestamp": "-1"}, b""), 400, "INVALID_REQUEST", "'-1'"),
    (("GET", "/v1/topics/orders/offsets", {"timestamp": "now"}, b""), 400, "INVALID_REQUEST", "'now'"),
    (("GET", "/v1/topics/orders/offsets", {"timestamp": "9" * 5_000}, b""), 400, "INVALID_REQUEST", "timestamp"),
    (("GET", "/v1/topics/orders/offsets", {"partition": "-1"}, b""), 400, "INVALID_REQUEST", "'-1'"),
    (("GET", READ, {"offset": "-1"}, b""), 400, "INVALID_REQUEST", "'-1'"),
    (("GET", READ, {"offset": "1.0"}, b""), 400, "INVALID_REQUEST", "'1.0'"),
    (("GET", READ, {"offset": "²"}, b""), 400, "INVALID_REQUEST", "'²'"),
    (("GET", READ, {"offset": "9" * 5_000}, b""), 400, "INVALID_REQUEST", "offset"),
    (("GET", READ, {"offset": str(2**63)}, b""), 400, "INVALID_REQUEST", str(2**63)),
    (("GET", READ, {"offset": "1"}, b""), 416, "OFFSET_OUT_OF_RANGE", "offset 1"),
    (("GET", READ, {"max_bytes": "0"}, b""), 400, "INVALID_REQUEST", "'0'"),
    (("GET", READ, {"max_bytes": "4194305"}, b""), 400, "INVALID_REQUEST", "'4194305'"),
    (("GET", READ, {"wait_ms": "20001"}, b""), 400, "INVALID_REQUEST", "'20001'"),
    (("GET", READ, {"wait": "1"}, b""), 400, "INVALID_REQUEST", "'wait'"),
    (("GET", "/v1/topics/orders/partitions/x/records", {}, b""), 400, "INVALID_REQUEST", "'x'"),
    (("GET", "/v1/topics/orders/partitions/-1/records", {}, b""), 400, "INVALID_REQUEST", "'-1'"),
    (("POST", RECORDS, {"acks": "most"}, {"records": [{"value": "v"}]}), 400, "INVALID_REQUEST", "'most'"),
    (("POST", RECORDS, {}, {"records": []}), 400, "INVALID_REQUEST", "records"),
    (("POST", RECORDS, {}, {"records": [{"value": "v"}] * 10_001}), 400, "INVALID_REQUEST", "10001"),
    (("POST", RECORDS, {}, {"records": [{"key": "k"}]}), 400, "INVALID_REQUEST", "records[0]"),
    (("POST", RECORDS, {}, {"records": [{"value": "v", "val": 1}]}), 400, "INVALID_REQUEST", "val"),
    (("POST", RECORDS, {}, b"x" * (REQUEST_BYTES_MAX + 1)), 413, "REQUEST_TOO_LARGE", str(REQUEST_BYTES_MAX + 1)),
    (("POST", "/v1/produce", {}, b"x" * (REQUEST_BYTES_MAX + 1)), 413, "REQUEST_TOO_LARGE", str(REQUEST_BYTES_MAX)),
    (("POST", "/v1/fetch", {}, b"x" * (REQUEST_BYTES_MAX + 1)), 413, "REQUEST_TOO_LARGE", str(REQUEST_BYTES_MAX)),
    (("POST", "/v1/topics/orders/truncate", {}, {"0": -1}), 400, "INVALID_REQUEST", "-1"),
    (("POST", "/v1/topics/orders/truncate", {}, {"0": 2**63}), 400, "INVALID_REQUEST", str(2**63)),
    (("POST", "/v1/topics/orders/truncate", {}, {"0": True}), 400, "INVALID_REQUEST", "True"),
    (("POST", "/v1/topics/orders/truncate", {}, {"0": "1"}), 400, "INVALID_REQUEST", "'1'"),
    (("POST", "/v1/topics/orders/truncate", {}, {"x": 1}), 400, "INVALID_REQUEST", "'x'"),
    (("POST", "/v1/topics/orders/truncate", {}, {"00": 1}), 400, "INVALID_REQUEST", "'00'"),
    (("POST", "/v1/topics/orders/truncate", {}, {"9" * 5_000: 1}), 400, "INVALID_REQUEST", "'999"),
    (("POST", "/v1/topics/orders/truncate", {}, {str(n): 0 for n in range(1_001)}), 400, "INVALID_REQUEST", "1000"),
    (("POST", "/v1/groups/a b/offsets", {}, {"offsets": [{}]}), 400, "INVALID_REQUEST", "topic"),
    (("GET", "/v1/groups/a b/offsets", {}, b""), 400, "INVALID_NAME", "'a b'"),
    (("GET", COMMIT, {"topic": "missing"}, b""), 404, "UNKNOWN_TOPIC", "'missing'"),
    (("GET", COMMIT, {"topics": "orders"}, b""), 400, "INVALID_REQUEST", "'topics'"),
    (("POST", COMMIT, {}, {"offsets": []}), 400, "INVALID_REQUEST", "offsets"),
    (
        ("POST", COMMIT, {}, {"offsets": [{"topic": "orders", "partition": 0, "offset": -1}]}),
        400,
        "INVALID_REQUEST",
        "-1",
    ),
    (
        ("POST", COMMIT, {}, {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}] * 2}),
        400,
        "INVALID_REQUEST",
        "stands 2 times",
    ),
    (
        ("POST", COMMIT, {}, {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}] * 1_001}),
        400,
        "INVALID_REQUEST",
        "1001",
    ),
]


@pytest.mark.parametrize(("request_", "status", "code", "told"), REFUSED, ids=lambda value: str(value)[:60])
def test_request_is_refused_with_status_code_and_value(
    orders: Service, request_: tuple[str, str, dict[str, str], object], status: int, code: str, told: str
) -> None:
    method, path, query, body = request_
    answer = orders.call(method, path, body, **query)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert told in answer.error["message"]
    assert not answer.error["maybe_applied"]
    assert "Retry-After" not in answer.headers
    assert len(answer.body) < 10_000, "an answer does not grow with what was wrong"


def test_error_table_names_every_code_with_its_status() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "http-api.md").read_text()
    rows = re.findall(r"^\| ([A-Z_, ]+) \| (\d{3}) \|.*\| (yes|no) \|$", text, re.MULTILINE)
    table = {code: (int(status), again) for codes, status, again in rows for code in codes.split(", ")}
    assert table == {code.name: (code.http_status, "yes" if code.is_retriable else "no") for code in ErrorCode}


def test_explanation_is_bounded_when_everything_is_wrong(orders: Service) -> None:
    wrong = {"x" * 300 + str(number): number for number in range(4_000)}
    answer = orders.call("POST", RECORDS, {"records": [{"value": 1, "key": 2, **wrong}] * 2})
    assert answer.error["code"] == "INVALID_REQUEST"
    assert "and 3982 more" in answer.error["message"]
    assert len(answer.body) < 20_000


def test_explanation_stops_at_the_first_wrong_record_when_all_are_wrong(orders: Service) -> None:
    answer = orders.call("POST", RECORDS, {"records": [{"value": "v"}, *[{"value": 1, "x": 3}] * 9_999]})
    message = answer.error["message"]
    assert message == (
        "body.records.1.value: Input should be a valid string, got 1; "
        "body.records.1.x: Extra inputs are not permitted, got 3"
    )


def test_offset_out_of_range_tells_the_bounds(orders: Service) -> None:
    orders.send(*[{"value": str(number), "partition": 0} for number in range(5)])
    orders.call("POST", "/v1/topics/orders/truncate", {"0": 2})
    for offset in ("1", "6"):
        error = orders.call("GET", READ, offset=offset).error
        assert (error["log_start_offset"], error["high_watermark"]) == (2, 5)


@pytest.mark.parametrize("path", [RECORDS, "/v1/produce"])
def test_request_may_be_tried_again_when_zones_are_down(orders: Service, path: str) -> None:
    for zone in range(2):
        zone_of(orders.instance, zone).is_down = True
    data = batch("v")
    header = {"batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
    body: object = {"records": [{"value": "v"}]} if path == RECORDS else frame.encode(header, [data])
    answer = orders.call("POST", path, body)
    assert (answer.status, answer.error["code"], answer.error["maybe_applied"]) == (503, "NOT_ENOUGH_ZONES", False)
    assert int(answer.headers["Retry-After"]) >= 1


def _raising(service: Service, error: Exception) -> Service:
    def fail(*_: Any) -> Any:
        raise error

    port = Intercepted(service.instance.stores.log, heads=fail, append=fail)
    return Service(with_stores(service.instance, log=port))


@pytest.mark.parametrize("code", [ErrorCode.THROTTLED, ErrorCode.STORAGE_UNAVAILABLE])
def test_answer_says_when_to_try_again_when_storage_is_busy(orders: Service, code: ErrorCode) -> None:
    faulty = _raising(orders, PenstockError(code, "not now, try again later"))
    for call in [
        ("GET", READ, b""),
        ("POST", "/v1/fetch", {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}),
    ]:
        answer = faulty.call(*call)
        assert (answer.status, answer.error["code"]) == (code.http_status, code.name)
        assert answer.headers["Retry-After"] == "1"


def test_result_is_maybe_applied_when_the_answer_of_an_append_is_lost(orders: Service) -> None:
    faulty = _raising(orders, LOST_ANSWER)
    [result] = faulty.produce(("orders", 0, batch("v"))).json["results"]
    assert checked_error(result["error"])["maybe_applied"] is True
    [offset] = faulty.send({"value": "v"})
    assert checked_error(offset["error"])["maybe_applied"] is True


@pytest.mark.parametrize("path", ["/v1/topics/orders", READ, "/v1/fetch"])
def test_defect_becomes_internal_maybe_applied_and_one_log_line(
    orders: Service, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = _raising(orders, ZeroDivisionError("a defect"))
    fetch = {"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]}
    answer = faulty.call("POST", path, fetch) if path == "/v1/fetch" else faulty.call("GET", path)
    assert (answer.status, answer.error["code"], answer.error["maybe_applied"]) == (500, "INTERNAL", True)
    assert "ZeroDivisionError" not in answer.error["message"]
    assert "Retry-After" not in answer.headers
    [logged] = [record for record in caplog.records if record.getMessage() == "unexpected error"]
    assert logged.exc_info is not None
    assert isinstance(logged.exc_info[1], ZeroDivisionError)


def test_body_is_refused_when_it_is_not_base64_as_announced(orders: Service) -> None:
    for serve, path in ((produce.serve, "/v1/produce"), (admin.serve, "/v1/topics")):
        for body in ("no base64!", "YQ", "ä"):
            result = answer(serve, gateway_event("POST", path, body, is_base64=True), orders.instance)
            assert result["statusCode"] == 400
            assert "base64" in result["body"]


def test_unknown_route_answers_whatever_the_path(service: Service) -> None:
    for path in ("", "/", "/v1/topics/", "/v1//topics", "/v1/topics/a/b", "/v1/topics/orders/offsets/"):
        status, _, _ = dispatch("GET", path, {}, {}, b"", service.instance)
        assert status == 404
