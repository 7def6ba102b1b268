"""/v1/schedules over HTTP: the form of requests and answers."""

from typing import Any

import pytest

from tests.handlers.service import Service

PATH = "/v1/schedules/report"
WISH: dict[str, Any] = {"cron": "0 9 * * MON-FRI", "topic": "orders", "record": {"value": "go"}}


@pytest.fixture
def service(service: Service) -> Service:
    service.create("orders")
    return service


def put(service: Service, **fields: Any) -> Any:
    answer = service.call("PUT", PATH, {**WISH, **fields})
    assert answer.status == 200, answer.body
    return answer.json


def test_answer_has_every_field_as_the_request_has_it(service: Service) -> None:
    record = {"key": "k", "value_base64": "/w==", "headers": [["a", "b"], ["c", {"base64": "/w=="}], ["d", None]]}
    made = put(service, time_zone="Europe/Berlin", record=record, enabled=False)
    assert made == service.call("GET", PATH).json
    assert {name: made[name] for name in ("name", "cron", "time_zone", "topic", "record", "enabled")} == {
        "name": "report",
        "cron": "0 9 * * MON-FRI",
        "time_zone": "Europe/Berlin",
        "topic": "orders",
        "record": record,
        "enabled": False,
    }
    nothing = ("next_ms", "last_due_ms", "last_run_ms", "last_error", "last_error_ms")
    assert [made[name] for name in nothing] == [None] * 5
    assert made["runs"] == 0
    assert put(service, enabled=True)["next_ms"] > made["created_at_ms"]


def test_tombstone_and_empty_value_differ(service: Service) -> None:
    assert put(service, record={"key": "k", "value": None})["record"]["value"] is None
    assert put(service, record={"key": "k", "value": ""})["record"]["value"] == ""


def test_list_has_pages(service: Service) -> None:
    for number in range(3):
        service.call("PUT", f"/v1/schedules/s{number}", WISH)
    first = service.call("GET", "/v1/schedules", limit="2").json
    assert [each["name"] for each in first["schedules"]] == ["s0", "s1"]
    rest = service.call("GET", "/v1/schedules", after=first["next_after"]).json
    assert ([each["name"] for each in rest["schedules"]], rest["next_after"]) == (["s2"], None)


def test_deletion_answers_nothing_and_then_it_is_unknown(service: Service) -> None:
    put(service)
    assert service.call("DELETE", PATH).status == 204
    for method in ("GET", "DELETE"):
        answer = service.call(method, PATH)
        assert (answer.status, answer.json["error"]["code"]) == (404, "UNKNOWN_SCHEDULE")


@pytest.mark.parametrize(
    ("fields", "status", "told"),
    [
        ({"cron": "* * * *"}, 400, "has 4 fields"),
        ({"cron": 5}, 400, "cron"),
        ({"time_zone": "Berlin"}, 400, "Europe/Berlin"),
        ({"topic": "missing"}, 404, "missing"),
        ({"topic": "_audit"}, 400, "_audit"),
        ({"record": {}}, 400, "neither value nor value_base64"),
        ({"record": {"value": "a", "value_base64": "YQ=="}}, 400, "both"),
        ({"record": {"value_base64": "?"}}, 400, "not base64"),
        ({"record": {"value": "a", "partition": 1}}, 400, "partition"),
        ({"record": {"value": "v" * 8_193}}, 413, "8192"),
        ({"enabled": "yes"}, 400, "enabled"),
        ({"next_ms": 1}, 400, "next_ms"),
    ],
)
def test_bad_input_is_refused_with_its_value(service: Service, fields: dict[str, Any], status: int, told: str) -> None:
    answer = service.call("PUT", PATH, {**WISH, **fields})
    assert (answer.status, told in answer.json["error"]["message"]) == (status, True), answer.body
    assert service.call("GET", PATH).status == 404


def test_new_schedule_needs_all_its_parts(service: Service) -> None:
    answer = service.call("PUT", PATH, {"enabled": True})
    assert "give cron, topic and record" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "headers", [[["penstock-expires-at", "1790000000"]], [["penstock-expires-at", "1790000000000"]] * 2]
)
def test_header_of_an_expiry_that_would_be_passed_over_is_refused(service: Service, headers: list[list[str]]) -> None:
    answer = service.call("PUT", PATH, {**WISH, "record": {"value": "go", "headers": headers}})
    assert (answer.status, answer.json["error"]["code"]) == (400, "INVALID_REQUEST")
    assert "penstock-expires-at" in answer.json["error"]["message"]
    put(service, record={"value": "go", "headers": [["penstock-expires-at", "1790000000000"]]})
