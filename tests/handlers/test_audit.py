"""Every route that changes something leaves a trail: who, what, and the state before and after."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.acls.rule import parse_rule
from penstock_core.audit.audit_entry import AuditEntry, AuditResult
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import AUDIT_TOPIC, Partition, TimerId
from penstock_core.log.timer import TimerPlace, scheduled_id
from penstock_core.routes import ROUTES, Route
from penstock_core.schedules.schedule import ScheduledRecord
from penstock_core.zones.zone_state import Acks
from penstock_handlers.edge.access.audited_changes import change_of, kind_of
from penstock_handlers.router import LOCAL_ADDRESS, LOCAL_PRINCIPAL
from penstock_handlers.upkeep import run_audit
from penstock_service.acls.change_acls import change_acls
from penstock_service.groups.commit_offsets import CommitEntry, commit_offsets
from penstock_service.groups.group_document import alter_group
from penstock_service.instance.instance import Instance
from penstock_service.mirror.append_push import append_push
from penstock_service.push.admin.put_subscription import SubscriptionWish, put_subscription
from penstock_service.quotas.admin.set_quota import put_quota
from penstock_service.records.produce import ProduceEntry
from penstock_service.records.produce_within_quotas import produce_or_schedule
from penstock_service.records.schedule import ScheduledRecords
from penstock_service.schedules.put_schedule import ScheduleWish, put_schedule
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.transactions.begin_transactions import begin_transactions
from tests.core.push.push_samples import SECRET
from tests.handlers.service import Service
from tests.service.push.admin.setting import FUNCTION, create
from tests.support.mirrors import MIRRORED, a_push
from tests.support.service import Intercepted, batch, filled_topic, with_stores

AUDITED = [route for route in ROUTES if route.audit]
# what each route gets, where its path is not all of it
BODIES: dict[str, Any] = {
    "POST /v1/topics": {"name": "fresh", "partitions": 2},
    "PATCH /v1/topics/{topic}": {"config": {"retention_ms": 60_000}},
    "POST /v1/topics/{topic}/truncate": {"0": 2},
    "POST /v1/topics/{topic}/redrive": {"to": "orders"},
    "PATCH /v1/groups/{group}": {"config": {"assignor": "range"}},
    "POST /v1/groups/{group}/reset": {"topic": "orders", "to": "earliest"},
    "POST /v1/groups/{group}/offsets/delete": {"topic": "orders"},
    "PUT /v1/share-groups/{group}": {"config": {"lock_ms": 5_000}},
    "POST /v1/share-groups/{group}/reset": {"topic": "orders", "to": "latest"},
    "PUT /v1/subscriptions/{name}": {"batch_records": 7},
    "PUT /v1/schedules/{name}": {"cron": "1 * * * *"},
    "POST /v1/acls": {"add": [{"principal": "*", "operation": "read", "resource": "topic:orders"}]},
    "PUT /v1/quotas": {"subject": "topic", "name": "fresh", "limits": {"fetch_bytes_per_s": 5}},
    "POST /v1/zones/{zone}": {"state": "taken_out", "reason": "a test"},
}
BODIES["POST /v1/topics/{topic}/move"] = {"mirror": "leaving"}
_LEAVES = {"start": "earliest", "mode": "ordered"}
QUERIES: dict[str, dict[str, str]] = {
    "DELETE /v1/quotas": {"subject": "topic", "name": "fresh"},
    "DELETE /v1/acls": {"principal": "*", "operation": "write", "resource": "topic:orders", "permission": "allow"},
}
NAMES = {
    "topic": "orders",
    "group": "billing",
    "name": "packing",
    "zone": "b",
    "transactional_id": "ledger",
}


@pytest.fixture
def service() -> Service:
    """A service with one resource of each kind."""
    found = Service()
    instance = found.instance
    filled_topic(instance, records=5)
    commit_offsets(instance, "billing", [CommitEntry(topic="orders", partition=0, offset=3)])
    alter_group(instance, "billing", {"assignor": "sticky"})
    put_share_group(instance, "billing", ["orders"], {"start": "earliest"})
    create(instance, "orders", target={"lambda": FUNCTION})
    wish = SubscriptionWish(topics=["orders"], target={"stage": {"url": "https://b.example"}}, settings=_LEAVES)
    put_subscription(instance, "leaving", wish)
    record = ScheduledRecord(key=None, value=b"go")
    put_schedule(instance, "packing", ScheduleWish(cron="0 * * * *", topic="orders", record=record))
    put_quota(instance, "topic", "fresh", {"fetch_bytes_per_s": 9})
    append_push(instance, a_push())
    return found


def path_of(service: Service, route: str) -> str:
    path = route.partition(" ")[2]
    other = {"redrive": "dead", "promote": MIRRORED, "resync": MIRRORED}.get(route.rpartition("/")[2])
    names = NAMES if other is None else {**NAMES, "topic": other}
    if "{timer}" in path:
        names = {**names, "timer": _scheduled(service.instance)}
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def _scheduled(instance: Instance) -> str:
    place = TimerPlace(instance.clock.now_ms() + 3_600_000, TimerId(bytes(16)))
    delayed = ProduceEntry(topic="orders", partition=0, data=batch("later"), timer=place)
    [done] = produce_or_schedule(instance, [delayed], Acks.QUORUM)
    assert isinstance(done, ScheduledRecords)
    return scheduled_id(Partition(0), place)


def notes_of(service: Service) -> list[AuditEntry]:
    return [*service.instance.stores.audit.entries(100)]


def test_every_route_that_is_no_get_and_no_work_of_clients_leaves_a_trail() -> None:
    without = {route.key for route in ROUTES if route.method != "GET" and not route.policies and not route.audit}
    assert without == {"POST /v1/acls/check", "POST /v1/mirrors/{name}/append"}  # whose log is the trail
    assert {route.key for route in AUDITED if route.policies} == {"DELETE /v1/topics/{topic}/scheduled/{timer}"}
    assert len({route.audit for route in AUDITED}) == len(AUDITED) == 28


@pytest.mark.parametrize("audited", AUDITED, ids=lambda route: route.key)
def test_route_leaves_who_what_and_both_states(service: Service, audited: Route) -> None:
    route = audited.key
    if "{transactional_id}" in route:
        begin_transactions(service.instance, "ledger")
    if route.endswith("/redrive"):
        filled_topic(service.instance, "dead", records=1)
    method = audited.method
    query = QUERIES.get(route, {})
    answer = service.call(method, path_of(service, route), BODIES.get(route, b""), **query)
    assert answer.status < 300, answer.body
    [note] = notes_of(service)
    assert (note.result, note.action, note.kind) == (AuditResult.DONE, audited.audit, kind_of(audited))
    named = "" if kind_of(audited) == "service" else "fresh"
    assert note.name == (path_of(service, route).split("/")[3] if audited.parameter else named)
    assert (note.caller.principal, note.caller.address) == (LOCAL_PRINCIPAL, LOCAL_ADDRESS)
    assert note.after == (answer.json if answer.body else None)
    assert (note.before is not None) == (change_of(audited).read is not None)


def test_state_before_is_that_before_the_change(service: Service) -> None:
    service.call("PATCH", "/v1/topics/orders", {"config": {"retention_ms": 60_000}})
    service.call("PATCH", "/v1/topics/orders", {"config": {"retention_ms": 70_000}})
    first, second = sorted(notes_of(service), key=lambda note: note.after["config"]["retention_ms"])
    assert first.after["config"]["retention_ms"] == second.before["config"]["retention_ms"] == 60_000
    assert second.after["config"]["retention_ms"] == 70_000


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("DELETE", "/v1/topics/missing", b"", 404),
        ("PATCH", "/v1/topics/orders", {"config": {"retention_ms": -5}}, 400),
        ("PATCH", "/v1/topics/orders", b"no JSON", 400),
        ("POST", "/v1/topics", {"name": "orders"}, 409),
        ("POST", "/v1/topics/orders/redrive", b"[1]", 400),
        ("POST", "/v1/topics", [1], 400),
    ],
)
def test_refused_change_leaves_nothing(service: Service, method: str, path: str, body: object, status: int) -> None:
    assert service.call(method, path, body).status == status
    assert notes_of(service) == []


@pytest.mark.parametrize("kind", ["groups", "share-groups"])
def test_dry_run_leaves_nothing(service: Service, kind: str) -> None:
    answer = service.call("POST", f"/v1/{kind}/billing/reset", {"topic": "orders", "to": "earliest", "dry_run": True})
    assert answer.status == 200
    assert notes_of(service) == []


@pytest.mark.parametrize(
    "route", [each for each in AUDITED if each.method == "DELETE" or "/pause" in each.path], ids=lambda route: route.key
)
def test_body_that_asks_for_a_dry_run_hides_no_change(service: Service, route: Route) -> None:
    answer = service.call(route.method, path_of(service, route.key), {"dry_run": True}, **QUERIES.get(route.key, {}))
    assert answer.status < 300, answer.body
    assert [note.action for note in notes_of(service)] == [route.audit]


@pytest.mark.parametrize("name", ["x" * 500_000, "\ud800"])
def test_name_that_is_none_is_refused_for_itself_and_not_for_its_note(service: Service, name: str) -> None:
    assert service.call("POST", "/v1/topics", {"name": name}).status == 400


def test_reads_and_records_leave_nothing(service: Service) -> None:
    service.call("GET", "/v1/topics/orders")
    service.call("POST", "/v1/topics/orders/records", {"records": [{"value": "a"}]})
    assert notes_of(service) == []


def failing(instance: Instance, error: PenstockError) -> Callable[..., object]:
    def fail(*_arguments: object) -> object:
        raise error

    return fail


def test_change_is_refused_when_the_trail_cannot_be_written(service: Service) -> None:
    down = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the table is away")
    put = failing(service.instance, down)
    broken = Service(with_stores(service.instance, audit=Intercepted(service.instance.stores.audit, put=put)))
    answer = broken.call("DELETE", "/v1/topics/orders")
    assert (answer.status, answer.error["maybe_applied"]) == (503, False)
    assert service.call("GET", "/v1/topics/orders").status == 200


def test_defect_in_a_change_leaves_it_as_unknown(service: Service) -> None:
    lost = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the answer was lost", maybe_applied=True)
    replace = failing(service.instance, lost)
    broken = Service(with_stores(service.instance, topics=Intercepted(service.instance.stores.topics, delete=replace)))
    assert broken.call("DELETE", "/v1/topics/orders").status == 503
    [note] = notes_of(service)
    assert (note.result, note.after) == (AuditResult.UNKNOWN, None)


def name_the_trail(service: Service) -> None:
    change_acls(service.instance, [parse_rule(LOCAL_PRINCIPAL, "read", f"topic:{AUDIT_TOPIC}")], [])


def test_trail_shows_the_host_of_an_endpoint_only(service: Service) -> None:
    hook = {"https": {"url": "https://hooks.example:8443/services/T0/s3cret?key=1", "secret": SECRET}}
    for pause in (False, True):  # the state after a change, and the one before the next
        body = {"topics": ["orders"], "target": hook, "batch_records": 3 + pause}
        answer = service.call("PUT", "/v1/subscriptions/hook", body)
        assert answer.status < 300, answer.body
    told = [note.after for note in notes_of(service)] + [note.before for note in notes_of(service)]
    assert "s3cret" not in json.dumps(told)
    assert json.dumps(told).count('{"url": "https://hooks.example:8443"}') == 3


def test_function_moves_the_notes_into_the_topic(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_AUDIT_RETENTION_MS", "86400000")
    service.call("DELETE", "/v1/share-groups/billing")
    assert run_audit(service.instance) == {"changes_settled": 1, "changes_begun": 0, "audit_unfinished": 0}
    path = f"/v1/topics/{AUDIT_TOPIC}/partitions/0/records"
    refused = service.call("GET", path, offset="0")
    assert refused.error["code"] == "NOT_AUTHORIZED"
    assert f"`penstock acls add '{LOCAL_PRINCIPAL}' read 'topic:_audit'` grants it" in refused.error["message"]
    name_the_trail(service)
    answer = service.call("GET", path, offset="0")
    [record] = answer.json["records"]
    assert json.loads(record["value"])["action"] == "delete_share_group"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/v1/topics/_audit", b""),
        ("PATCH", "/v1/topics/_audit", {"config": {"retention_ms": 60_000}}),
        ("POST", "/v1/topics/_audit/truncate", {"0": 1}),
        ("POST", "/v1/topics/_audit/redrive", {}),
        ("POST", "/v1/topics", {"name": "_penstock.mine"}),
    ],
)
def test_topic_of_the_trail_cannot_be_changed_by_callers(
    service: Service, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object
) -> None:
    monkeypatch.setenv("PENSTOCK_AUDIT_RETENTION_MS", "86400000")
    service.call("DELETE", "/v1/share-groups/billing")
    run_audit(service.instance)
    name_the_trail(service)
    answer = service.call(method, path, body)
    assert answer.error["code"] == "INVALID_NAME"


def test_records_of_callers_do_not_reach_the_trail(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_AUDIT_RETENTION_MS", "86400000")
    service.call("DELETE", "/v1/share-groups/billing")
    run_audit(service.instance)
    answer = service.call("POST", "/v1/topics/_audit/records", {"records": [{"value": "forged"}]})
    assert [each["error"]["code"] for each in answer.json["offsets"]] == ["INVALID_NAME"]
