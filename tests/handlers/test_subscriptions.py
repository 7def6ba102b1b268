"""/v1/subscriptions over HTTP: the form of requests and answers."""

from typing import Any

import pytest

from tests.core.push.push_samples import SECRET
from tests.handlers.service import Service

PATH = "/v1/subscriptions/packing"
FUNCTION = {"lambda": "arn:aws:lambda:eu-west-1:123456789012:function:pack"}
ENDPOINT = {"https": {"url": "https://example.com/hook", "secret": SECRET}}


@pytest.fixture
def service(service: Service) -> Service:
    service.create("orders")
    service.create("dead")
    return service


def put(service: Service, **fields: Any) -> Any:
    answer = service.call("PUT", PATH, fields)
    assert answer.status == 200, answer.body
    return answer.json


def test_answer_has_every_setting_as_the_request_has_it(service: Service) -> None:
    settings = {
        "mode": "ordered",
        "start": "earliest",
        "batch_records": 7,
        "batch_window_ms": 500,
        "concurrency": 20,
        "filter": {"type": ["order"]},
        "retry": {
            "attempts_max": 9,
            "backoff_ms_min": 10,
            "backoff_ms_max": 20,
            "patience_ms": 30,
            "age_ms_max": 40,
        },
        "bisect": False,
        "dead_letter_topic": "dead",
    }
    made = put(service, topics=["orders"], target=FUNCTION, **settings)
    assert {name: made[name] for name in settings} == settings
    assert (made["name"], made["topics"], made["target"], made["state"]) == ("packing", ["orders"], FUNCTION, "active")


def test_age_of_minus_one_is_no_bound_and_null_is_the_default(service: Service) -> None:
    made = put(service, topics=["orders"], target=FUNCTION, dead_letter_topic="dead", retry={"age_ms_max": 40})
    assert (made["retry"]["age_ms_max"], made["retry"]["attempts_max"]) == (40, 5)
    assert put(service, retry={"age_ms_max": -1, "attempts_max": 2})["retry"]["age_ms_max"] == -1
    assert put(service)["retry"]["attempts_max"] == 2
    assert put(service, retry=None)["retry"]["attempts_max"] == 5


def test_no_answer_shows_the_secret(service: Service) -> None:
    texts = [
        service.call("PUT", PATH, {"topics": ["orders"], "target": ENDPOINT}),
        service.call("GET", PATH),
        service.call("GET", "/v1/subscriptions"),
        service.call("POST", f"{PATH}/pause"),
        service.call("PUT", PATH, {"target": {"https": {"secret": SECRET}}}),
        service.call("PUT", PATH, {"target": {"https": {"url": 7, "secret": SECRET}}}),
        service.call("PUT", PATH, {"target": {"https": {"url": "ftp://x", "secret": SECRET}}}),
        service.call("PUT", PATH, {"target": {**ENDPOINT, "topic": "dead"}}),
        service.call("PUT", PATH, {"target": {"https": SECRET}}),
        service.call("PUT", PATH, {"target": {"https": {"secrets": SECRET}}}),
        service.call("PUT", PATH, {"target": [SECRET]}),
    ]
    assert [each.status for each in texts] == [200] * 4 + [400] * 7
    assert not any(SECRET.encode() in each.body for each in texts)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"topics": []}, "topics"),
        ({"batch_size": 7}, "batch_size"),
        ({"batch_records": "7"}, "batch_records"),
        ({"mode": "fast"}, "mode"),
        ({"target": {"ftp": "x"}}, "ftp"),
        ({"target": {}}, "target"),
        ({"target": {**FUNCTION, "topic": "dead"}}, "target"),
        ({"retry": {"attempts": 7}}, "attempts"),
        ({"retry": {"age_ms_max": -2}, "dead_letter_topic": "dead"}, "age_ms_max"),
    ],
)
def test_wrong_field_is_named(service: Service, fields: dict[str, Any], told: str) -> None:
    answer = service.call("PUT", PATH, {"topics": ["orders"], "target": FUNCTION, **fields})
    assert answer.status == 400
    assert told in answer.error["message"]


def test_description_pauses_resumes_and_deletes(service: Service) -> None:
    service.send({"value": "a"}, {"value": "b"})
    put(service, topics=["orders"], target=FUNCTION, start="earliest")
    found = service.call("GET", PATH).json
    assert found["lanes"] == {"working": 0, "resting": 0, "deaths": 0}
    [partition] = found["partitions"]
    assert (partition["offset"], partition["lag"], partition["last_result"]) == (0, 2, "none")
    assert (partition["last_error"], partition["next_try_ms"], found["next_after"]) == (None, None, None)
    assert service.call("POST", f"{PATH}/pause").json["state"] == "paused"
    assert service.call("POST", f"{PATH}/resume").json["state"] == "active"
    assert service.call("DELETE", PATH).status == 204
    for method, path in (("GET", PATH), ("DELETE", PATH), ("POST", f"{PATH}/pause"), ("POST", f"{PATH}/resume")):
        answer = service.call(method, path)
        assert (answer.status, answer.error["code"]) == (404, "UNKNOWN_SUBSCRIPTION")


def test_lists_have_pages(service: Service) -> None:
    for name in ("a", "b", "c"):
        service.call("PUT", f"/v1/subscriptions/{name}", {"topics": ["orders"], "target": FUNCTION})
    first = service.call("GET", "/v1/subscriptions", limit="2").json
    assert ([each["name"] for each in first["subscriptions"]], first["next_after"]) == (["a", "b"], "b")
    last = service.call("GET", "/v1/subscriptions", limit="2", after="b").json
    assert ([each["name"] for each in last["subscriptions"]], last["next_after"]) == (["c"], None)
