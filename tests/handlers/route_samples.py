"""One call of each route, or several, with exactly the rights that it needs, on a service that has all it names."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from penstock_core.acls.rule import Kind, Operation, Right, parse_rule
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode
from penstock_core.records import frame
from penstock_core.routes import Where
from penstock_handlers.router import Caller, dispatch
from penstock_service.acls.change_acls import change_acls
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.handlers.service import Answer, Service
from tests.handlers.test_transactions import next_number
from tests.support.mirrors import a_push, push_frame
from tests.support.service import SteppedClock, batch
from tests.support.tables import copy_stored

ADA = "arn:aws:sts::111122223333:assumed-role/ada/session-1"
ADA_ROLE = "arn:aws:iam::111122223333:role/ada"
FUNCTION = {"lambda": "arn:aws:lambda:eu-west-1:123456789012:function:pack"}


REFUSED = ErrorCode.NOT_AUTHORIZED.name.encode()
EITHER = (Where.NEW, Where.CHANGED)
RECORDS_TELL_THE_TOPICS = "to where they came from"

Facts = dict[str, str]
"""The ids in a world that a sample needs: `timer`, `lock`, and where they are not 0 `epoch` and `transaction`."""


@dataclass(frozen=True)
class Needed:
    """A right that the sample needs. Only with it, `shown` is in the answer; None: without it the call is refused."""

    right: Right
    where: Where
    shown: str | None = None


@dataclass(frozen=True)
class Sample:
    """A call. `path` may name facts, and `body` may be made of them."""

    route: str
    needed: tuple[Needed, ...]
    body: Any = None
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.route} {self.note}".strip()

    def filled(self, path: str, facts: Facts) -> str:
        """The path with its parameters."""
        for name, value in self.path.items():
            path = path.replace(f"{{{name}}}", facts.get(value, value))
        return path

    def sent(self, facts: Facts) -> bytes:
        """The body. One that is not bytes goes as JSON."""
        body = self.body(facts) if callable(self.body) else self.body
        return b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()


@dataclass
class World:
    """A service with default deny, prepared before its rules counted."""

    instance: Instance
    facts: Facts
    caller: Caller = ADA
    principal: str = ADA_ROLE

    def grant(self, *rights: Right, denied: Right | None = None) -> None:
        rules = [parse_rule(self.principal, each.operation.value, each.resource) for each in rights]
        if denied is not None:
            rules.append(parse_rule(self.principal, denied.operation.value, denied.resource, "deny"))
        change_acls(self.instance, rules, [])

    def call(self, sample: Sample) -> Answer:
        method, _, path = sample.route.partition(" ")
        path, body = sample.filled(path, self.facts), sample.sent(self.facts)
        return Answer(*dispatch(method, path, sample.query, {}, body, self.instance, self.caller))

    def send(self, method: str, path: str, body: Any = None, **query: str) -> Answer:
        """A call of the caller, with a body of JSON."""
        data = b"" if body is None else json.dumps(body).encode()
        return Answer(*dispatch(method, path, query, {}, data, self.instance, self.caller))


def is_served(answer: Answer, needed: Sequence[Needed]) -> bool:
    """The call did what it is for, with all that its rights show."""
    is_whole = 200 <= answer.status < 300 and REFUSED not in answer.body
    return is_whole and all(each.shown is None or each.shown.encode() in answer.body for each in needed)


def is_refused(answer: Answer, needed: Needed) -> bool:
    """The answer names the right that is missing, or leaves out what the right would show."""
    if needed.shown is not None:
        return answer.status == 200 and needed.shown.encode() not in answer.body
    # Without both of them, the call does not look whether it would create or alter.
    operations = ("create", "alter") if needed.where in EITHER else (needed.right.operation.value,)
    told = [f"may not {operation} '{needed.right.resource}'".encode() for operation in operations]
    return REFUSED in answer.body and any(each in answer.body for each in told) and answer.status in (200, 403)


DOCUMENT: Mapping[str, Any] = {"version": None, "protocol_type": "connect", "member_count": 1, "document": "AAEC"}


def as_ada(instance: Instance, method: str, path: str, body: Any = None, **query: str) -> Answer:
    """A call of the role `ada`. A body that is not bytes goes as JSON."""
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(*dispatch(method, path, query, {}, data, instance, ADA))


_LEAVING = {
    "topics": ["shared"],
    "target": {"stage": {"url": "https://b.example"}},
    "start": "earliest",
    "mode": "ordered",
}


def world() -> World:
    """A world of its own, in memory, at the time at which all of them were made."""
    made = _made()
    service = memory_instance(clock=SteppedClock())
    copy_stored(made.instance, service)
    return World(denying(service), dict(made.facts))


@cache
def _made() -> World:
    return make_world(Service(memory_instance(clock=SteppedClock())))


def denying(instance: Instance) -> Instance:
    """An instance on the same stores that denies what no rule allows, and remembers nothing."""
    return Instance.new(instance.stores, instance.runtime, acl_settings=AclSettings(allows_by_default=False))


def make_world(open_service: Service) -> World:
    """Let the service have all that the samples name."""
    for topic in ("orders", "shared", "out", "dead", "mirror"):
        open_service.create(topic)
    open_service.send({"value": "first"})
    open_service.send({"value": "shared"}, topic="shared")
    origin = [["penstock.dead-letter.topic", "orders"], ["penstock.dead-letter.partition", "0"]]
    open_service.send({"value": "letter", "headers": origin}, topic="dead")
    [later] = open_service.send({"value": "later", "delay_ms": 3_600_000, "cancellable": True})
    instance = open_service.instance
    commit = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
    shared: Mapping[str, Any] = {"topics": ["shared"], "config": {"start": "earliest"}}
    subscription = {"topics": ["orders"], "target": FUNCTION}
    for method, path, body in (
        ("POST", "/v1/groups/billing/offsets", commit),
        ("PUT", "/v1/groups/led/document", DOCUMENT),
        ("PUT", "/v1/share-groups/workers", shared),
        ("PUT", "/v1/subscriptions/packing", subscription),
        ("PUT", "/v1/subscriptions/leaving", _LEAVING),
        ("PUT", "/v1/schedules/report", _SCHEDULE),
        ("POST", "/v1/producers", {"transactional_id": "ledger"}),
        ("PUT", "/v1/quotas", {**_QUOTA, "limits": {"fetch_bytes_per_s": 2_000_000}}),
        ("POST", "/v1/mirrors/dr/append", push_frame(a_push())),
    ):
        answer = as_ada(instance, method, path, body)
        assert answer.status == 200, answer.body
    change_acls(instance, [parse_rule("arn:aws:iam::111122223333:role/eve", "read", "topic:orders")], [])
    [record] = open_service.call("POST", "/v1/share-groups/workers/records", {"max_records": 1}).json["records"]
    open_service.send({"value": "shared too"}, topic="shared")
    number = str(next_number(open_service))
    return World(denying(instance), {"timer": later["scheduled_id"], "lock": record["lock_id"], "transaction": number})


def _needed(where: Where, operation: str, resource: str, shown: str | None = None) -> Needed:
    kind, _, name = resource.partition(":")
    return Needed(Right(operation=Operation(operation), kind=Kind(kind), name=name), where, shown)


def _path(operation: str, resource: str) -> Needed:
    return _needed(Where.PATH, operation, resource)


def _body(operation: str, resource: str, hidden: str | None = None) -> Needed:
    return _needed(Where.BODY, operation, resource, hidden)


def _shown(operation: str, resource: str, text: str) -> Needed:
    return _needed(Where.SHOWN, operation, resource, text)


def _produce(_: Facts) -> bytes:
    data = batch("binary")
    return frame.encode({"batches": [{"topic": "out", "partition": 0, "length": len(data)}]}, [data])


def _accept(facts: Facts, **more: str) -> dict[str, Any]:
    return {"topic": "shared", "partition": 0, "lock_id": facts["lock"], **more}


def _transact(facts: Facts) -> bytes:
    data = batch("transacted")
    header = {
        "transactional_id": "ledger",
        "epoch": int(facts.get("epoch", "0")),
        "transaction": int(facts.get("transaction", "0")),
        "batches": [{"topic": "out", "partition": 0, "length": len(data)}],
        "offsets": [{"group": "billing", "topic": "orders", "partition": 0, "offset": 1}],
        "acknowledgements": [{**_accept(facts), "group": "workers"}],
    }
    return frame.encode(header, [data])


def _stage(facts: Facts) -> bytes:
    data = batch("staged")
    header = {
        "transactional_id": "ledger",
        "epoch": int(facts.get("epoch", "0")),
        "transaction": int(facts.get("transaction", "0")),
        "stage": 0,
        "batches": [{"topic": "out", "partition": 0, "length": len(data)}],
    }
    return frame.encode(header, [data])


_ORDERS, _BILLING, _WORKERS, _PACKING = (
    {"topic": "orders"},
    {"group": "billing"},
    {"group": "workers"},
    {"name": "packing"},
)
_SCHEDULE = {"cron": "0 * * * *", "topic": "orders", "record": {"value": "go"}}
_REPORT = {"name": "report"}
_JOIN = {"member_id": "m", "sequence": 1, "epoch": 0, "subscription": {"topics": ["orders"]}}
_QUOTA = {"subject": "topic", "name": "orders"}
_RECORDS, _TIMER = {"records": [{"value": "v"}]}, {**_ORDERS, "timer": "timer"}
_RULE = {"principal": "*", "operation": "read", "resource": "topic:a"}
_READ_ORDERS, _SHOWS_ORDERS = _body("read", "topic:orders"), _shown("describe", "topic:orders", '"orders"')
_ACQUIRED = (_path("read", "share_group:workers"), _body("read", "topic:shared"))

SAMPLES = (
    Sample("POST /v1/produce", (_body("write", "topic:out"),), _produce),
    Sample(
        "POST /v1/fetch",
        (_body("read", "topic:orders"),),
        {"partitions": [{**_ORDERS, "partition": 0, "offset": 0}]},
    ),
    Sample("POST /v1/producers", (_body("write", "transactional_id:other"),), {"transactional_id": "other"}),
    Sample(
        "POST /v1/producers/{transactional_id}/release",
        (_path("alter", "transactional_id:ledger"),),
        path={"transactional_id": "ledger"},
    ),
    Sample(
        "POST /v1/transactions",
        (
            _body("write", "transactional_id:ledger"),
            _body("write", "topic:out"),
            _body("read", "group:billing"),
            _body("read", "topic:orders"),
            _body("read", "share_group:workers"),
            _body("read", "topic:shared"),
        ),
        _transact,
    ),
    Sample(
        "POST /v1/transactions",
        (_body("write", "transactional_id:ledger"), _body("write", "topic:out")),
        _stage,
        note="stage",
    ),
    Sample(
        "POST /v1/topics/{topic}/records", (_path("write", "topic:orders"),), {"records": [{"value": "v"}]}, _ORDERS
    ),
    Sample(
        "GET /v1/topics/{topic}/partitions/{partition}/records",
        (_path("read", "topic:orders"),),
        path={**_ORDERS, "partition": "0"},
    ),
    Sample("POST /v1/topics", (_body("create", "topic:new"),), {"name": "new"}),
    Sample(
        "GET /v1/topics", (_shown("describe", "topic:orders", '"orders"'), _shown("describe", "topic:dead", '"dead"'))
    ),
    Sample("GET /v1/metadata", (_body("describe", "topic:orders"),), query=_ORDERS),
    Sample("GET /v1/wake-ups", ()),
    Sample("GET /v1/topics/{topic}", (_path("describe", "topic:orders"),), path=_ORDERS),
    Sample("PATCH /v1/topics/{topic}", (_path("alter", "topic:orders"),), {"partitions": 2}, _ORDERS),
    Sample("DELETE /v1/topics/{topic}", (_path("delete", "topic:orders"),), path=_ORDERS),
    Sample("GET /v1/topics/{topic}/users", (_path("delete", "topic:orders"),), path=_ORDERS),
    Sample("GET /v1/topics/{topic}/offsets", (_path("describe", "topic:orders"),), path=_ORDERS),
    Sample("POST /v1/topics/{topic}/truncate", (_path("delete", "topic:orders"),), {"0": 1}, _ORDERS),
    Sample("GET /v1/topics/{topic}/scheduled", (_path("describe", "topic:orders"),), path=_ORDERS),
    Sample(
        "DELETE /v1/topics/{topic}/scheduled/{timer}",
        (_path("write", "topic:orders"),),
        path={**_ORDERS, "timer": "timer"},
    ),
    Sample(
        "POST /v1/mirrors/{name}/append",
        (_body("alter", "topic:copied"), _body("write", "topic:copied")),
        push_frame(a_push("x")),
        {"name": "dr"},
    ),
    Sample(
        "POST /v1/topics/{topic}/move", (_path("alter", "topic:shared"),), {"mirror": "leaving"}, {"topic": "shared"}
    ),
    Sample("POST /v1/topics/{topic}/promote", (_path("alter", "topic:copied"),), path={"topic": "copied"}),
    Sample("POST /v1/topics/{topic}/resync", (_path("delete", "topic:copied"),), path={"topic": "copied"}),
    Sample("GET /v1/topics/{topic}/dead-letters", (_path("describe", "topic:dead"),), path={"topic": "dead"}),
    Sample(
        "POST /v1/topics/{topic}/redrive",
        (_path("read", "topic:dead"), _body("delete", "topic:dead")),
        {"drop": True},
        {"topic": "dead"},
    ),
    Sample(
        "POST /v1/topics/{topic}/redrive",
        (_path("read", "topic:dead"), _body("write", "topic:orders", '"moved":1')),
        {},
        {"topic": "dead"},
        note=RECORDS_TELL_THE_TOPICS,
    ),
    Sample(
        "POST /v1/topics/{topic}/redrive",
        (_path("read", "topic:dead"), _body("write", "topic:out")),
        {"to": "out"},
        {"topic": "dead"},
    ),
    Sample("GET /v1/groups", (_shown("describe", "group:billing", '"billing"'),)),
    Sample(
        "GET /v1/groups/{group}",
        (_path("describe", "group:billing"), _shown("describe", "topic:orders", '"orders"')),
        path=_BILLING,
    ),
    Sample("PATCH /v1/groups/{group}", (_path("alter", "group:billing"),), {"config": {}}, _BILLING),
    Sample("DELETE /v1/groups/{group}", (_path("delete", "group:billing"),), path=_BILLING),
    Sample(
        "POST /v1/groups/{group}/reset",
        (_path("alter", "group:billing"), _body("read", "topic:orders")),
        {"topic": "orders", "to": "earliest"},
        _BILLING,
    ),
    Sample(
        "POST /v1/groups/{group}/reset",
        (_path("alter", "group:billing"), _body("read", "topic:orders")),
        {"topic": "orders", "to": "earliest", "dry_run": True},
        _BILLING,
        note="dry run",
    ),
    Sample(
        "POST /v1/groups/{group}/offsets/delete",
        (_path("delete", "group:billing"), _body("read", "topic:orders")),
        {"topic": "orders"},
        _BILLING,
    ),
    Sample(
        "POST /v1/groups/{group}/heartbeat",
        (_path("read", "group:billing"), _body("read", "topic:orders")),
        _JOIN,
        _BILLING,
    ),
    Sample(
        "POST /v1/groups/{group}/offsets",
        (_path("read", "group:billing"), _body("read", "topic:orders")),
        {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]},
        _BILLING,
    ),
    Sample("GET /v1/groups/{group}/document", (_path("read", "group:led"),), path={"group": "led"}),
    Sample(
        "PUT /v1/groups/{group}/document",
        (_path("read", "group:fresh"),),
        DOCUMENT,
        {"group": "fresh"},
    ),
    Sample(
        "GET /v1/groups/{group}/offsets",
        (_path("describe", "group:billing"), _shown("describe", "topic:orders", '"orders"')),
        path=_BILLING,
    ),
    Sample(
        "GET /v1/groups/{group}/offsets",
        (_path("describe", "group:billing"), _body("describe", "topic:orders")),
        path=_BILLING,
        query=_ORDERS,
        note="of a topic",
    ),
    Sample("GET /v1/share-groups", (_shown("describe", "share_group:workers", '"workers"'),)),
    Sample(
        "PUT /v1/share-groups/{group}",
        (
            _needed(Where.NEW, "create", "share_group:new"),
            _body("read", "topic:orders"),
            _body("write", "topic:dead"),
        ),
        {"topics": ["orders"], "config": {"dead_letter_topic": "dead"}},
        {"group": "new"},
        note="new",
    ),
    Sample(
        "PUT /v1/share-groups/{group}",
        (_needed(Where.CHANGED, "alter", "share_group:workers"),),
        {"config": {"lock_ms": 20_000}},
        _WORKERS,
        note="setting",
    ),
    Sample(
        "PUT /v1/share-groups/{group}",
        (
            _needed(Where.CHANGED, "alter", "share_group:workers"),
            _body("read", "topic:shared"),
            _body("write", "topic:dead"),
        ),
        {"config": {"dead_letter_topic": "dead"}},
        _WORKERS,
        note="dead letters",
    ),
    Sample(
        "GET /v1/share-groups/{group}",
        (_path("describe", "share_group:workers"), _shown("describe", "topic:shared", '"topic":"shared"')),
        path=_WORKERS,
    ),
    Sample(
        "GET /v1/share-groups/{group}",
        (_path("describe", "share_group:workers"), _body("describe", "topic:shared")),
        path=_WORKERS,
        query={"topic": "shared", "partition": "0", "offset": "0"},
        note="record",
    ),
    Sample("DELETE /v1/share-groups/{group}", (_path("delete", "share_group:workers"),), path=_WORKERS),
    Sample(
        "POST /v1/share-groups/{group}/reset",
        (_path("alter", "share_group:workers"), _body("read", "topic:shared")),
        {"topic": "shared", "to": "earliest"},
        _WORKERS,
    ),
    Sample(
        "POST /v1/share-groups/{group}/reset",
        (_path("alter", "share_group:workers"), _body("read", "topic:shared")),
        {"topic": "shared", "to": "earliest", "dry_run": True},
        _WORKERS,
        note="dry run",
    ),
    Sample("POST /v1/share-groups/{group}/records", _ACQUIRED, {}, _WORKERS),
    Sample("POST /v1/share-groups/{group}/records", _ACQUIRED, {"topics": ["shared"]}, _WORKERS, note="topics"),
    Sample(
        "POST /v1/share-groups/{group}/acquire",
        _ACQUIRED,
        lambda facts: {"acknowledge": [_accept(facts, type="accept")]},
        _WORKERS,
    ),
    Sample(
        "POST /v1/share-groups/{group}/acknowledge",
        _ACQUIRED,
        lambda facts: {"acknowledge": [_accept(facts, type="accept")]},
        _WORKERS,
    ),
    Sample("GET /v1/subscriptions", (_shown("describe", "subscription:packing", '"packing"'),)),
    Sample(
        "PUT /v1/subscriptions/{name}",
        (
            _needed(Where.NEW, "create", "subscription:new"),
            _body("read", "topic:orders"),
            _body("write", "topic:mirror"),
            _body("write", "topic:dead"),
        ),
        {"topics": ["orders"], "target": {"topic": "mirror"}, "dead_letter_topic": "dead"},
        {"name": "new"},
        note="new",
    ),
    Sample(
        "PUT /v1/subscriptions/{name}",
        (_needed(Where.CHANGED, "alter", "subscription:packing"),),
        {"batch_records": 7},
        _PACKING,
        note="setting",
    ),
    Sample(
        "PUT /v1/subscriptions/{name}",
        (
            _needed(Where.CHANGED, "alter", "subscription:packing"),
            _body("read", "topic:orders"),
            _body("write", "topic:mirror"),
        ),
        {"target": {"topic": "mirror"}},
        _PACKING,
        note="target",
    ),
    *(
        Sample(
            "PUT /v1/subscriptions/{name}",
            (_needed(Where.CHANGED, "alter", "subscription:packing"), _body("read", "topic:orders")),
            setting,
            _PACKING,
            note=note,
        )
        for note, setting in (("filter", {"filter": {"type": ["order"]}}), ("lanes", {"concurrency": 1_000}))
    ),
    Sample(
        "GET /v1/subscriptions/{name}",
        (_path("describe", "subscription:packing"), _shown("describe", "topic:orders", '"topic":"orders"')),
        path=_PACKING,
    ),
    Sample("DELETE /v1/subscriptions/{name}", (_path("delete", "subscription:packing"),), path=_PACKING),
    Sample("POST /v1/subscriptions/{name}/pause", (_path("alter", "subscription:packing"),), path=_PACKING),
    Sample("POST /v1/subscriptions/{name}/resume", (_path("alter", "subscription:packing"),), path=_PACKING),
    Sample("GET /v1/schedules", (_shown("describe", "schedule:report", '"report"'),)),
    Sample(
        "PUT /v1/schedules/{name}",
        (_needed(Where.NEW, "create", "schedule:new"), _body("write", "topic:orders")),
        _SCHEDULE,
        {"name": "new"},
        note="new",
    ),
    Sample(
        "PUT /v1/schedules/{name}",
        (_needed(Where.CHANGED, "alter", "schedule:report"), _body("write", "topic:orders")),
        {"cron": "1 * * * *"},
        _REPORT,
        note="times",
    ),
    Sample(
        "PUT /v1/schedules/{name}",
        (_needed(Where.CHANGED, "alter", "schedule:report"),),
        {"enabled": False},
        _REPORT,
        note="disable",
    ),
    Sample("GET /v1/schedules/{name}", (_path("describe", "schedule:report"),), path=_REPORT),
    Sample("DELETE /v1/schedules/{name}", (_path("delete", "schedule:report"),), path=_REPORT),
    Sample("GET /v1/zones", (_path("describe", "service"),)),
    Sample(
        "POST /v1/zones/{zone}", (_path("alter", "service"),), {"state": "taken_out", "reason": "work"}, {"zone": "c"}
    ),
    Sample("GET /v1/quotas", (_path("describe", "service"),)),
    Sample("PUT /v1/quotas", (_path("alter", "service"),), {**_QUOTA, "limits": {"fetch_bytes_per_s": 1_000_000}}),
    Sample("DELETE /v1/quotas", (_path("alter", "service"),), query=_QUOTA),
    Sample("GET /v1/acls", (_shown("describe", "service", "role/eve"),)),
    Sample("POST /v1/acls", (_path("alter", "service"),), {"add": [_RULE]}),
    Sample("DELETE /v1/acls", (_path("alter", "service"),), query=_RULE),
    Sample(
        "POST /v1/acls/check",
        (_body("describe", "service"),),
        {"principal": "arn:aws:iam::1:user/bob", "operation": "read", "resource": "topic:a"},
    ),
    Sample("POST /v1/acls/check", (), {"operation": "read", "resource": "topic:a"}, note="of myself"),
)
