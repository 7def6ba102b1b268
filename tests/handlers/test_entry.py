"""The layers around every function in Lambda: headers, one log line, metrics, and no secrets in either."""

import base64
import itertools
import json
import logging
from typing import Any

import pytest

from penstock_core.records import frame
from penstock_handlers import admin, fetch, produce
from penstock_handlers.edge import entry, lambda_function
from penstock_handlers.edge.http import Event, Result
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance
from tests.handlers.service import CONTEXT, Service, base64_of, gateway_event
from tests.support.service import batch, new_topic

SECRET = "swordfish"


@pytest.fixture
def calls(service: Service, monkeypatch: pytest.MonkeyPatch) -> StorageCalls:
    """Functions that find the service in memory, with storage calls counted by hand."""
    counted = StorageCalls()
    monkeypatch.setattr(lambda_function, "instance", lambda: service.instance)
    monkeypatch.setattr(lambda_function, "STORAGE_CALLS", counted)
    monkeypatch.setattr(entry, "_requests", itertools.count())
    monkeypatch.setattr(lambda_function.meter, "_published_s", None)
    lambda_function.metrics.clear_metrics()
    monkeypatch.setattr(lambda_function.metrics.provider, "namespace", "Penstock")
    monkeypatch.setattr(lambda_function.metrics.provider, "service", "penstock")
    return counted


def _produce_event(value: str) -> dict[str, Any]:
    data = batch(value)
    header = {"batches": [{"topic": "orders", "partition": 0, "length": len(data)}]}
    return gateway_event("POST", "/v1/produce", base64_of(frame.encode(header, [data])), is_base64=True)


def _metrics(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines in embedded metric format."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]


def test_handler_answers_through_every_layer(service: Service, calls: StorageCalls) -> None:
    new_topic(service.instance)
    result = produce.handler(_produce_event("v"), CONTEXT)
    assert (result["statusCode"], json.loads(result["body"])["results"][0]["next_offset"]) == (200, 1)
    body = json.dumps({"partitions": [{"topic": "orders", "partition": 0, "offset": 0}]})
    result = fetch.handler(gateway_event("POST", "/v1/fetch", body), CONTEXT)
    _, data = frame.decode(base64.b64decode(result["body"]))
    assert result["isBase64Encoded"]
    assert bytes(data) == batch("v")
    result = admin.handler(gateway_event("GET", "/v1/topics"), CONTEXT)
    assert [topic["name"] for topic in json.loads(result["body"])["topics"]] == ["orders"]
    json.dumps(result, ensure_ascii=False).encode()  # as Lambda does


def test_handler_tells_time_and_storage_calls_in_headers(service: Service, calls: StorageCalls) -> None:
    def serve(_event: Event, _instance: Instance) -> Result:
        for name in ("s3.PutObject", "s3.PutObject", "dynamodb.UpdateItem"):
            calls._count(f"before-send.{name}")
        return {"statusCode": 200, "headers": {"Content-Type": "x"}, "body": "", "isBase64Encoded": False}

    calls._count("before-send.s3.GetObject")  # an earlier request's
    headers = entry.entry_point(serve)(gateway_event("POST", "/v1/produce"), CONTEXT)["headers"]
    assert headers["Content-Type"] == "x"
    assert headers["Penstock-Storage-Calls"] == "dynamodb.UpdateItem=1,s3.PutObject=2"
    total, cpu = (part.strip().split(";dur=") for part in headers["Server-Timing"].split(","))
    assert (total[0], cpu[0]) == ("total", "cpu")
    assert float(total[1]) >= 0
    assert float(cpu[1]) >= 0


@pytest.mark.parametrize(
    ("module", "event", "status"),
    [
        (admin, gateway_event("GET", "/v1/topics"), 200),
        (admin, gateway_event("GET", "/v1/topics/missing"), 404),
        (produce, gateway_event("POST", "/v1/produce", "broken"), 400),
    ],
)
def test_handler_logs_a_line_and_publishes_metrics(
    calls: StorageCalls,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    module: Any,
    event: Any,
    status: int,
) -> None:
    result = module.handler(event, CONTEXT)
    assert result["statusCode"] == status
    [record] = [record for record in caplog.records if record.getMessage() == "request"]
    assert (record.route, record.path, record.status) == (event["routeKey"], event["rawPath"], status)  # type: ignore[attr-defined]
    [metrics] = _metrics(capsys)
    assert metrics["requests_served"] == [1.0]
    assert metrics.get("requests_refused") == ([1.0] if 400 <= status < 500 else None)
    assert "requests_failed" not in metrics  # a metric costs for each hour with a value, and 0 is one
    assert metrics["bytes_sent"] == [float(len(result["body"]))]
    [described] = metrics["_aws"]["CloudWatchMetrics"]
    assert described["Namespace"] == "Penstock"
    units = {metric["Name"]: metric["Unit"] for metric in described["Metrics"]}
    assert units["request_duration"] == units["request_cpu"] == "Milliseconds"
    assert units["bytes_sent"] == "Bytes"


def test_handler_counts_a_defect_as_failed(calls: StorageCalls, capsys: pytest.CaptureFixture[str]) -> None:
    def serve(_event: Event, _instance: Instance) -> Result:
        raise RuntimeError("a defect")

    result = entry.entry_point(serve)(gateway_event("GET", "/v1/topics"), CONTEXT)
    assert result["statusCode"] == 500
    assert json.loads(result["body"])["error"]["maybe_applied"] is True
    assert {"Server-Timing", "Penstock-Storage-Calls"} <= set(result["headers"])
    [metrics] = _metrics(capsys)
    assert metrics["requests_failed"] == [1.0]
    assert "requests_refused" not in metrics


def _served(statuses: list[int], caplog: pytest.LogCaptureFixture) -> list[str]:
    """The levels of the lines of requests that are answered with these statuses."""
    answers = iter(statuses)

    def serve(_event: Event, _instance: Instance) -> Result:
        return {"statusCode": next(answers), "headers": {}, "body": "", "isBase64Encoded": False}

    handler = entry.entry_point(serve)
    for _ in statuses:
        handler(gateway_event("GET", "/v1/topics"), CONTEXT)
    return [record.levelname for record in caplog.records if record.getMessage() == "request"]


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (logging.DEBUG, ["INFO", "DEBUG", "WARNING", *["DEBUG"] * 97, "INFO", "DEBUG"]),
        (logging.INFO, ["INFO", "WARNING", "INFO"]),
    ],
)
def test_handler_logs_all_failures_and_each_hundredth_request(
    calls: StorageCalls, caplog: pytest.LogCaptureFixture, level: int, expected: list[str]
) -> None:
    caplog.set_level(level, lambda_function.logger.name)
    assert _served([200, 200, 503, *[200] * 99], caplog) == expected


def test_metrics_of_requests_in_one_minute_share_a_line(
    calls: StorageCalls,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(lambda_function.meter, "_clocks", lambda: (now[0], 0.0))  # the wall's clock stands still
    _served([200], caplog)
    now[0] = 59
    _served([200, 404], caplog)
    now[0] = 60
    _served([200], caplog)
    assert [line["requests_served"] for line in _metrics(capsys)] == [[1.0], [1.0, 1.0, 1.0]]


def test_handler_logs_no_secret_and_no_payload(
    service: Service, calls: StorageCalls, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    new_topic(service.instance)
    body = json.dumps({"records": [{"value": SECRET, "key": SECRET}, {"value": SECRET, "partition": 9}]})
    wrong = json.dumps({"records": [{"value": 1, SECRET: SECRET}]})
    for handler, event in [
        (produce.handler, _produce_event(SECRET)),
        (produce.handler, gateway_event("POST", "/v1/topics/orders/records", body)),
        (produce.handler, gateway_event("POST", "/v1/topics/orders/records", wrong)),
    ]:
        handler(event, CONTEXT)
    everything = capsys.readouterr().out + "".join(repr(vars(record)) for record in caplog.records)
    assert "request" in everything
    for hidden in (SECRET, base64_of(SECRET.encode())[:8], "AKIASECRET"):
        assert hidden not in everything
