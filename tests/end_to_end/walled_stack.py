"""A stage of the emulator that denies by default, with all that the samples of the routes name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack

from penstock.http.http_message import Response
from penstock.http.transport import HttpTransport
from penstock_core.acls.rule import Right
from penstock_core.limits import ACL_CHANGES_MAX, SHARE_LOCK_MS_MAX
from tests.end_to_end.local_stack import Stack as LocalStack
from tests.end_to_end.own_stack import ANY_ROUTE, NAME, SETTINGS, OwnStack, deploy_app
from tests.handlers.route_samples import DOCUMENT, Facts, Sample
from tests.handlers.service import Answer

from penstock_cdk import Penstock  # isort: skip # own_stack sets a variable of jsii first

ACCOUNT_USERS = "arn:aws:iam::000000000000:user/"
ADMINS = f"{ACCOUNT_USERS}user-*"  # the user of `OwnStack.transport`
TOPICS = ("orders", "shared", "out", "dead", "mirror")
LETTER = {
    "value": "letter",
    "headers": [["penstock.dead-letter.topic", "orders"], ["penstock.dead-letter.partition", "0"]],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An IAM user who may call every route, and the name by which rules know it."""

    name: str
    transport: HttpTransport

    def call(self, method: str, path: str, body: Any = b"", **query: str) -> Answer:
        """Sends one request. A body that is not bytes goes as JSON."""
        return called(self.transport, method, path, body, **query)

    def call_sample(self, sample: Sample, facts: Facts) -> Answer:
        """Sends the sample's request."""
        method, _, path = sample.route.partition(" ")
        return self.call(method, sample.filled(path, facts), sample.sent(facts), **sample.query)


def deploy_walled(local: LocalStack, folder: Path) -> OwnStack:
    """Deploys a stage that denies by default. Its super principal is the user of the stack's transport."""
    settings = replace(SETTINGS, acl_default="deny", super_principals=(ADMINS,))

    def make(app: App) -> None:
        Penstock(Stack(app, NAME), "Queue", settings=settings)

    return deploy_app(local, folder, make)


def called(transport: HttpTransport, method: str, path: str, body: Any = b"", **query: str) -> Answer:
    """The answer to one request. A body that is not bytes goes as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    found: Response = transport.call(method, path, query, {}, data)
    return Answer(found.status, found.headers, found.body)


def expected(transport: HttpTransport, method: str, path: str, body: Any = b"", **query: str) -> Any:
    """The JSON of an answer that must be a good one."""
    answer = called(transport, method, path, body, **query)
    assert 200 <= answer.status < 300, (path, answer.status, answer.body)
    return answer.json if answer.body else None


def furnish(transport: HttpTransport) -> Facts:
    """Makes what the samples name, and gives their facts."""
    for topic in TOPICS:
        expected(transport, "POST", "/v1/topics", {"name": topic})
    send(transport, "orders", {"value": "first"})
    send(transport, "shared", {"value": "shared"})
    expected(transport, "PUT", "/v1/groups/led/document", DOCUMENT)
    later = {"value": "later", "delay_ms": 3_600_000, "cancellable": True}
    scheduled = send(transport, "orders", later)["scheduled_id"]
    commit_offsets(transport)
    shared = {"topics": ["shared"], "config": {"start": "earliest", "lock_ms": SHARE_LOCK_MS_MAX}}
    expected(transport, "PUT", "/v1/share-groups/workers", shared)
    expected(transport, "PUT", "/v1/subscriptions/packing", {"topics": ["orders"], "target": {"topic": "mirror"}})
    quota = {"subject": "topic", "name": "orders", "limits": {"fetch_bytes_per_s": 2_000_000}}
    expected(transport, "PUT", "/v1/quotas", quota)
    [record] = expected(transport, "POST", "/v1/share-groups/workers/records", {"max_records": 1})["records"]
    return {"timer": scheduled, "lock": record["lock_id"]}


def commit_offsets(transport: HttpTransport) -> None:
    """Commits for the group of the samples."""
    commit = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
    expected(transport, "POST", "/v1/groups/billing/offsets", commit)


def send(transport: HttpTransport, topic: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Produces one JSON record, and gives its entry of the answer."""
    [found] = expected(transport, "POST", f"/v1/topics/{topic}/records", {"records": [record]})["offsets"]
    assert "error" not in found, found
    return dict(found)


def new_caller(own: OwnStack, name: str) -> Caller:
    """Makes a user who may call every route, and has no right on any resource."""
    key, secret = own.local.create_user(name, ANY_ROUTE)
    configuration = replace(own.local.configuration(key, secret), url=own.url)
    return Caller(name=f"{ACCOUNT_USERS}{name}", transport=HttpTransport(configuration))


def rules_of(caller: Caller, rights: Sequence[Right], denied: Right | None = None) -> list[dict[str, str]]:
    """The rules that give the caller these rights, and deny it one."""
    rules = [(each, "allow") for each in rights] + ([] if denied is None else [(denied, "deny")])
    return [
        {
            "principal": caller.name,
            "operation": right.operation.value,
            "resource": right.resource,
            "permission": permission,
        }
        for right, permission in rules
    ]


def add_rules(transport: HttpTransport, groups: Sequence[Sequence[Mapping[str, str]]]) -> None:
    """Adds rules. Those of one group go in one change: a denial comes with what it is an exception of."""
    change: list[Mapping[str, str]] = []
    for group in groups:
        if len(change) + len(group) > ACL_CHANGES_MAX:
            expected(transport, "POST", "/v1/acls", {"add": change})
            change = []
        change += group
    expected(transport, "POST", "/v1/acls", {"add": change})
