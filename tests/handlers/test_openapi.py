"""docs/openapi.json is what the handlers are, and every successful answer conforms to it."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from penstock_core.routes import ROUTE_BY_KEY
from penstock_handlers.edge.models import acl_models as acls
from penstock_handlers.edge.models import acl_models as quotas
from penstock_handlers.edge.models import answer_models as answers
from penstock_handlers.edge.models import schedule_models as schedules
from penstock_handlers.edge.models import share_answers as shares
from penstock_handlers.edge.models import subscription_models as pushes
from penstock_handlers.edge.models.reset_answer import DeletedOffsets, ResetResults
from penstock_handlers.openapi.document import document
from tests.core.push.push_samples import SECRET
from tests.handlers.service import Service
from tests.support.json_schema import mistakes
from tests.support.service import batch

CHECKOUT = Path(__file__).parents[2]
DOCUMENT = CHECKOUT / "docs" / "openapi.json"
BY_HAND = (
    "POST /v1/fetch",
    "POST /v1/producers",
    "POST /v1/share-groups/{group}/records",
    "POST /v1/share-groups/{group}/acquire",
    "POST /v1/share-groups/{group}/acknowledge",
    "POST /v1/topics/{topic}/redrive",
)


def _operations() -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in json.loads(DOCUMENT.read_text())["paths"].items()
        for method, operation in methods.items()
    }


def test_document_is_what_the_handlers_generate() -> None:
    assert DOCUMENT.read_text() == json.dumps(document(), indent=1, sort_keys=True) + "\n", "make openapi"


def test_document_has_the_operations_of_the_router() -> None:
    assert set(_operations()) == set(ROUTE_BY_KEY)


def test_operation_ids_are_short_and_unique() -> None:
    ids = [operation["operationId"] for operation in _operations().values()]
    assert len(set(ids)) == len(ids)
    assert all(name.isalpha() and name[0].islower() and len(name) <= 20 for name in ids)


def test_document_has_every_schema_that_it_names_and_no_other() -> None:
    text = DOCUMENT.read_text()
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named == set(json.loads(text)["components"]["schemas"])


def test_every_operation_describes_its_errors_and_no_422() -> None:
    for operation in _operations().values():
        assert "default" in operation["responses"]
        assert "422" not in operation["responses"]


# One call of each route in this order, what it answers, and the type of the answer.
LED: dict[str, object] = {"version": None, "protocol_type": "connect", "member_count": 1, "document": "AAEC"}
COMMITS = {
    "offsets": [{"topic": "orders", "partition": 0, "offset": 1}, {"topic": "none", "partition": 0, "offset": 1}]
}
LOST = {"topic": "orders", "partition": 0, "lock_id": "nobodys0.0", "offsets": [[0, 1]], "type": "accept"}
PACKING = "/v1/subscriptions/packing"
QUOTA = {"subject": "topic", "name": "orders", "limits": {"fetch_bytes_per_s": 1_000_000}}
SUBSCRIPTION = {"topics": ["orders"], "target": {"https": {"url": "https://example.com/", "secret": SECRET}}}
REPORT = "/v1/schedules/report"
SCHEDULE = {"cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin", "topic": "orders", "record": {"value": "go"}}
RULE = {"principal": "arn:aws:iam::1:user/ada", "operation": "read", "resource": "topic:a*"}
CALLS: list[tuple[str, str, object, dict[str, str], int, Any]] = [
    ("POST /v1/topics", "/v1/topics", {"name": "orders", "partitions": 2}, {}, 201, answers.TopicAnswer),
    ("GET /v1/topics", "/v1/topics", b"", {"limit": "1"}, 200, answers.TopicList),
    ("GET /v1/metadata", "/v1/metadata", b"", {"topic": "orders"}, 200, answers.TopicMetadata),
    ("GET /v1/metadata", "/v1/metadata", b"", {}, 200, answers.StageMetadata),
    ("PATCH /v1/topics/{topic}", "/v1/topics/orders", {"partitions": 3}, {}, 200, answers.TopicAnswer),
    (
        "POST /v1/topics/{topic}/records",
        "/v1/topics/orders/records",
        {
            "records": [{"value": "v", "partition": n, "headers": [["h", "x"], ["null", None]]} for n in (0, 9)]
            + [{"value_base64": "/w=="}]
        },
        {},
        200,
        answers.ProducedOffsets,
    ),
    (
        "GET /v1/topics/{topic}/partitions/{partition}/records",
        "/v1/topics/orders/partitions/0/records",
        b"",
        {},
        200,
        answers.FetchedRecords,
    ),
    ("GET /v1/wake-ups", "/v1/wake-ups", b"", {}, 200, answers.WakeUpPlaceAnswer),
    ("GET /v1/topics/{topic}", "/v1/topics/orders", b"", {}, 200, answers.TopicDescription),
    ("GET /v1/topics/{topic}/users", "/v1/topics/orders/users", b"", {}, 200, answers.TopicUserCounts),
    ("GET /v1/topics/{topic}/offsets", "/v1/topics/orders/offsets", b"", {"timestamp": "5"}, 200, answers.OffsetList),
    ("GET /v1/topics/{topic}/offsets", "/v1/topics/orders/offsets", b"", {}, 200, answers.OffsetList),
    (
        "POST /v1/topics/{topic}/truncate",
        "/v1/topics/orders/truncate",
        {"0": 1, "1": 99},
        {},
        200,
        answers.TruncatedPartitions,
    ),
    (
        "POST /v1/groups/{group}/heartbeat",
        "/v1/groups/sharing/heartbeat",
        {"member_id": "m", "sequence": 1, "epoch": 0, "subscription": {"topics": ["orders"]}},
        {},
        200,
        answers.HeartbeatAnswerJson,
    ),
    ("POST /v1/groups/{group}/offsets", "/v1/groups/billing/offsets", COMMITS, {}, 200, answers.CommitResults),
    ("GET /v1/groups/{group}/offsets", "/v1/groups/billing/offsets", b"", {}, 200, answers.CommittedOffsets),
    ("PUT /v1/groups/{group}/document", "/v1/groups/led/document", LED, {}, 200, answers.GroupDocumentAnswer),
    ("GET /v1/groups/{group}/document", "/v1/groups/led/document", b"", {}, 200, answers.GroupDocumentAnswer),
    ("GET /v1/groups", "/v1/groups", b"", {"limit": "1"}, 200, answers.GroupList),
    ("GET /v1/groups/{group}", "/v1/groups/sharing", b"", {}, 200, answers.GroupDescriptionAnswer),
    ("GET /v1/groups/{group}", "/v1/groups/billing", b"", {}, 200, answers.GroupDescriptionAnswer),
    ("PATCH /v1/groups/{group}", "/v1/groups/other", {"config": {"assignor": "range"}}, {}, 200, answers.GroupAnswer),
    (
        "POST /v1/groups/{group}/reset",
        "/v1/groups/billing/reset",
        {"topic": "orders", "offsets": {"0": 1, "1": 99}},
        {},
        200,
        ResetResults,
    ),
    (
        "POST /v1/groups/{group}/offsets/delete",
        "/v1/groups/billing/offsets/delete",
        {"topic": "orders", "partitions": [1, 99]},
        {},
        200,
        DeletedOffsets,
    ),
    (
        "PUT /v1/share-groups/{group}",
        "/v1/share-groups/workers",
        {"topics": ["orders"], "config": {"lock_ms": 5_000}},
        {},
        200,
        shares.ShareGroupAnswer,
    ),
    ("GET /v1/share-groups", "/v1/share-groups", b"", {"limit": "1"}, 200, shares.ShareGroupList),
    ("GET /v1/share-groups/{group}", "/v1/share-groups/workers", b"", {}, 200, shares.ShareGroupDescriptionAnswer),
    (
        "POST /v1/share-groups/{group}/records",
        "/v1/share-groups/workers/records",
        {"consumer_id": "w1", "acknowledge": [LOST]},
        {},
        200,
        shares.AcquiredRecords,
    ),
    (
        "POST /v1/share-groups/{group}/acknowledge",
        "/v1/share-groups/workers/acknowledge",
        {"acknowledge": [LOST]},
        {},
        200,
        shares.AcknowledgedAnswer,
    ),
    (
        "POST /v1/share-groups/{group}/reset",
        "/v1/share-groups/workers/reset",
        {"topic": "orders", "to": {"offset": 1}},
        {},
        200,
        ResetResults,
    ),
    ("GET /v1/topics/{topic}/dead-letters", "/v1/topics/orders/dead-letters", b"", {}, 200, answers.DeadLettersAnswer),
    ("POST /v1/topics/{topic}/redrive", "/v1/topics/orders/redrive", {}, {}, 200, shares.RedriveAnswer),
    ("DELETE /v1/share-groups/{group}", "/v1/share-groups/workers", b"", {}, 204, None),
    ("PUT /v1/subscriptions/{name}", PACKING, SUBSCRIPTION, {}, 200, pushes.SubscriptionAnswer),
    ("GET /v1/subscriptions", "/v1/subscriptions", b"", {"limit": "1"}, 200, pushes.SubscriptionList),
    ("POST /v1/subscriptions/{name}/pause", f"{PACKING}/pause", b"", {}, 200, pushes.SubscriptionAnswer),
    ("POST /v1/subscriptions/{name}/resume", f"{PACKING}/resume", b"", {}, 200, pushes.SubscriptionAnswer),
    ("GET /v1/subscriptions/{name}", PACKING, b"", {}, 200, pushes.SubscriptionDescriptionAnswer),
    ("DELETE /v1/subscriptions/{name}", PACKING, b"", {}, 204, None),
    ("PUT /v1/schedules/{name}", REPORT, SCHEDULE, {}, 200, schedules.ScheduleAnswer),
    ("GET /v1/schedules/{name}", REPORT, b"", {}, 200, schedules.ScheduleAnswer),
    ("GET /v1/schedules", "/v1/schedules", b"", {"limit": "1"}, 200, schedules.ScheduleList),
    ("DELETE /v1/schedules/{name}", REPORT, b"", {}, 204, None),
    ("DELETE /v1/groups/{group}", "/v1/groups/billing", b"", {}, 204, None),
    ("PUT /v1/quotas", "/v1/quotas", QUOTA, {}, 200, quotas.QuotaAnswer),
    ("GET /v1/quotas", "/v1/quotas", b"", {"limit": "1"}, 200, quotas.QuotaList),
    ("DELETE /v1/quotas", "/v1/quotas", b"", {"subject": "topic", "name": "orders"}, 204, None),
    ("POST /v1/acls", "/v1/acls", {"add": [RULE]}, {}, 200, acls.AclChanges),
    ("GET /v1/acls", "/v1/acls", b"", {"limit": "1"}, 200, acls.AclList),
    ("POST /v1/acls/check", "/v1/acls/check", {"operation": "read", "resource": "topic:a"}, {}, 200, acls.AclDecision),
    ("DELETE /v1/acls", "/v1/acls", b"", RULE, 200, acls.AclChanges),
    ("GET /v1/zones", "/v1/zones", b"", {}, 200, answers.ZoneList),
    ("POST /v1/zones/{zone}", "/v1/zones/b", {"state": "taken_out", "reason": "work"}, {}, 200, answers.ZoneAnswer),
    (
        "POST /v1/topics/{topic}/records",
        "/v1/topics/orders/records",
        {"records": [{"value": "later", "delay_ms": 60_000, "cancellable": True}]},
        {},
        200,
        answers.ProducedOffsets,
    ),
    (
        "GET /v1/topics/{topic}/scheduled",
        "/v1/topics/orders/scheduled",
        b"",
        {"limit": "1"},
        200,
        answers.ScheduledList,
    ),
    (
        "DELETE /v1/topics/{topic}/scheduled/{timer}",
        "/v1/topics/orders/scheduled/{timer}",
        b"",
        {},
        200,
        answers.ScheduledTimer,
    ),
    ("DELETE /v1/topics/{topic}", "/v1/topics/orders", b"", {}, 204, None),
]


def test_every_json_answer_conforms_to_its_type(service: Service) -> None:
    called, waiting = set(), ""
    operations, whole = _operations(), document()
    for route, path, body, query, status, form in CALLS:
        called.add(route)
        answer = service.call(route.split()[0], path.replace("{timer}", waiting), body, **query)
        assert answer.status == status, (route, answer.body)
        if path.endswith("/scheduled"):
            waiting = answer.json["scheduled"][0]["scheduled_id"]
        if form is None:
            assert answer.body == b""
        else:
            assert answer.headers["Content-Type"] == "application/json"
            TypeAdapter(form).validate_json(answer.body, strict=True, extra="forbid")
            [content] = operations[route]["responses"][str(status)]["content"].values()
            assert not mistakes(content["schema"], answer.json, whole), route
        assert str(status) in operations[route]["responses"], route
    by_hand = {
        "POST /v1/share-groups/{group}/acquire",
        "POST /v1/produce",
        "POST /v1/fetch",
        "POST /v1/producers",
        "POST /v1/producers/{transactional_id}/release",
        "POST /v1/transactions",
        "POST /v1/mirrors/{name}/append",
        "POST /v1/topics/{topic}/move",
        "POST /v1/topics/{topic}/promote",
        "POST /v1/topics/{topic}/resync",
    }
    assert called == set(ROUTE_BY_KEY) - by_hand


def test_every_answer_that_is_no_success_conforms_to_its_type(service: Service) -> None:
    answer = service.call("GET", "/v1/topics/missing")
    TypeAdapter(answers.ErrorAnswer).validate_json(answer.body, strict=True, extra="forbid")
    refusal = document()["components"]["responses"]["Refusal"]["content"]["application/json"]["schema"]
    assert not mistakes(refusal, answer.json, document())
    assert not mistakes(refusal, {"message": "Forbidden"}, document()), "API Gateway's own"
    assert mistakes(refusal, {"error": {"code": "NOVEL", "message": "", "maybe_applied": False}}, document())


def test_every_fact_that_an_error_may_carry_is_in_the_document() -> None:
    """A typed client reads `error.retry_after_ms` without a cast, so each fact has its name and type there."""
    raised: set[str] = set()
    for module in (CHECKOUT / "functions").rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PenstockError":
                raised |= {keyword.arg for keyword in node.keywords if keyword.arg}
            if isinstance(node, ast.AugAssign) and getattr(node.target, "attr", "") == "facts":
                assert isinstance(node.value, ast.Dict)
                raised |= {ast.literal_eval(name) for name in node.value.keys if name}
    raised |= {"topic", "partition"}  # of a batch that readers cannot decode: undecodable.py
    inside = {"is_missing", "is_expired"}  # of storage, between functions of the service
    assert raised - inside == set(answers.Error.__annotations__) - {"code", "message"}


@pytest.mark.parametrize(
    ("route", "request_body", "within"),
    [
        *((route, {"nonsense": 1}, None) for route in BY_HAND),
        ("POST /v1/fetch", {"partitions": [{"nonsense": 1}]}, "partitions"),
        (
            "POST /v1/share-groups/{group}/acknowledge",
            {"acknowledge": [{"type": "accept", "nonsense": 1}]},
            "acknowledge",
        ),
    ],
)
def test_requests_that_are_checked_by_hand_have_the_fields_of_the_document(
    service: Service, route: str, request_body: dict[str, Any], within: str | None
) -> None:
    service.create("orders")
    [content] = _operations()[route]["requestBody"]["content"].values()
    schema = _resolved(content["schema"])
    if within:
        schema = _resolved(schema["properties"][within]["items"])
    method, path = route.replace("{group}", "g").replace("{topic}", "orders").split()
    answer = service.call(method, path, request_body)
    assert answer.json["error"]["code"] == "INVALID_REQUEST"
    known = answer.json["error"]["message"].partition("known are ")[2]
    assert set(known.split(", ")) == set(schema["properties"])


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return document()["components"]["schemas"][name] if name else schema


def test_binary_answers_have_the_fields_of_the_document(service: Service) -> None:
    service.create("orders")
    produced = service.produce(("orders", 0, batch("v")), ("orders", 5, batch("v"))).json
    schema = _operations()["POST /v1/produce"]["responses"]["200"]["content"]["application/json"]["schema"]
    item = schema["properties"]["results"]["items"]
    for result in produced["results"]:
        assert set(item["required"]) <= set(result) <= set(item["properties"])
