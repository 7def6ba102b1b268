"""Access rules, quotas and their trail on a deployed stage that denies by default."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Admin, Producer
from penstock_core.limits import AUDIT_AT_ONCE
from tests.end_to_end.local_stack import Stack
from tests.end_to_end.own_stack import NAME, SETTINGS, OwnStack
from tests.end_to_end.walled_stack import (
    LETTER,
    Caller,
    add_rules,
    called,
    commit_offsets,
    deploy_walled,
    expected,
    furnish,
    new_caller,
    rules_of,
    send,
)
from tests.handlers.route_samples import SAMPLES, Facts, Needed, Sample, is_refused, is_served
from tests.handlers.service import Answer
from tests.support.deadlines import until

pytestmark = [pytest.mark.stack, pytest.mark.minutes]
LAST = ("DELETE", "POST /v1/groups/{group}/offsets/delete", "POST /v1/zones")  # they take away what other samples need


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A caller of one sample: with exactly its rights, or without `missing`, or with `missing` denied."""

    sample: Sample
    caller: Caller
    missing: Needed | None = None

    @property
    def name(self) -> str:
        return f"{self.sample.name}: {self.missing and self.missing.right.resource}"


@pytest.fixture(scope="module")
def own(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnStack]:
    try:
        yield deploy_walled(stack, tmp_path_factory.mktemp("walled") / "out")
    finally:
        stack.root_client("cloudformation").delete_stack(StackName=NAME)


@pytest.fixture(scope="module")
def facts(own: OwnStack) -> Facts:
    return furnish(own.transport)


@pytest.fixture(scope="module")
def cases(own: OwnStack, facts: Facts) -> list[Case]:
    """Each caller is a user of its own. So all rules exist from the beginning, and no case waits for a change."""
    made: list[Case] = []
    groups: list[list[dict[str, str]]] = []
    for number, sample in enumerate(SAMPLES):
        rights = [each.right for each in sample.needed]
        caller = new_caller(own, f"caller-{number}")
        made.append(Case(sample=sample, caller=caller))
        groups.append(rules_of(caller, rights))
        for place, missing in enumerate(sample.needed):
            left = [each for each in rights if each is not missing.right]
            for kind, given, denied in (("without", left, None), ("denied", rights, missing.right)):
                other = new_caller(own, f"caller-{number}-{kind}-{place}")
                made.append(Case(sample=sample, caller=other, missing=missing))
                groups.append(rules_of(other, given, denied))
    add_rules(own.transport, groups)
    return made


def test_every_route_serves_exactly_those_who_have_its_rights(own: OwnStack, facts: Facts, cases: list[Case]) -> None:
    """Refused calls first: they change nothing. Then each call with its rights, those that take things away last."""
    for case in cases:
        if case.missing is not None:
            _check_refused(case, facts)
    for case in sorted((case for case in cases if case.missing is None), key=_turn):
        told = _prepared(own, case, facts)
        answer = case.caller.call_sample(case.sample, told)
        assert is_served(answer, case.sample.needed), (case.name, answer.status, answer.body)


def _turn(case: Case) -> tuple[bool, int]:
    """Among those that take away, a part goes before the whole."""
    route = case.sample.route
    is_last = route.startswith(LAST)
    return is_last, -len(route) if is_last else 0


def _check_refused(case: Case, facts: Facts) -> None:
    """Refused for that right. In the first seconds an instance may lack the rules that give the others."""
    assert case.missing is not None
    missing = case.missing
    found: list[Answer] = []

    def is_so() -> bool:
        found[:] = [case.caller.call_sample(case.sample, facts)]
        return is_refused(found[0], missing)

    until(is_so, deadline_s=30, shown=lambda: (case.name, missing, found[0].status, found[0].body))


def _prepared(own: OwnStack, case: Case, facts: Facts) -> Facts:
    """Makes what an earlier sample has used up. A transactional id belongs to the principal that began with it."""
    route, admin = case.sample.route, own.transport
    if route == "POST /v1/topics/{topic}/redrive":
        send(admin, "dead", LETTER)
    if route in ("POST /v1/groups/{group}/offsets/delete", "DELETE /v1/groups/{group}"):
        gone = {"member_id": "m", "sequence": 2, "epoch": 0, "leave": True}
        called(admin, "POST", "/v1/groups/billing/heartbeat", gone)
        commit_offsets(admin)
    if route == "PUT /v1/groups/{group}/document":
        called(admin, "DELETE", "/v1/groups/fresh")
    if route == "POST /v1/producers/{transactional_id}/release":
        expected(admin, "POST", "/v1/producers", {"transactional_id": "ledger"})
    if route == "POST /v1/transactions":
        called(admin, "POST", "/v1/producers/ledger/release")
        begun = case.caller.call("POST", "/v1/producers", {"transactional_id": "ledger"}).json
        return {**facts, "epoch": str(begun["epoch"]), "transaction": str(begun["transaction"])}
    return facts


def test_producer_over_its_quota_slows_down_and_loses_nothing(own: OwnStack, facts: Facts) -> None:
    caller = new_caller(own, "hasty")
    admin = Admin(transport=own.transport)
    admin.create_topic("bounded", partitions=1)
    expected(own.transport, "POST", "/v1/acls", {"add": [_rule(caller, "write"), _rule(caller, "describe")]})
    limits = {"produce_bytes_per_s": 5_000}  # about a request a second: a crowded machine exceeds it, too
    expected(own.transport, "PUT", "/v1/quotas", {"subject": "principal", "name": caller.name, "limits": limits})
    record = {"records": [{"value": "x" * 4_000}]}
    found: list[Any] = []

    def is_over() -> bool:
        found[:] = [caller.call("POST", "/v1/topics/bounded/records", record)]
        return bool(found[0].status == 429)

    until(is_over, deadline_s=60, shown=lambda: (found[0].status, found[0].body))
    error = found[0].json["error"]
    assert (error["code"], error["quota"], error["maybe_applied"]) == ("THROTTLED", "produce_bytes_per_s", False)
    headers = {name.lower(): value for name, value in found[0].headers.items()}
    assert int(headers["retry-after"]) >= 1
    until(lambda: caller.call("GET", "/v1/metadata", topic="bounded").status == 200, deadline_s=30)
    before = sum(each.high_watermark for each in admin.describe_topic("bounded").offsets)
    with Producer(transport=caller.transport) as producer:
        sent = [producer.send("bounded", value=b"y" * 4_000) for _ in range(20)]
        producer.flush()
        assert all(each.result().offset >= 0 for each in sent)
    after = sum(each.high_watermark for each in admin.describe_topic("bounded").offsets)
    assert after - before == len(sent)


def _rule(caller: Caller, operation: str) -> dict[str, str]:
    return {"principal": caller.name, "operation": operation, "resource": "topic:bounded"}


def test_changes_of_rules_and_quotas_are_in_the_trail(own: OwnStack, facts: Facts) -> None:
    name = f"{SETTINGS.name}-audit"
    client = own.local.root_client("lambda")
    settled = AUDIT_AT_ONCE
    while settled:
        answer = client.invoke(FunctionName=name, Payload=b"{}")
        assert "FunctionError" not in answer, answer["Payload"].read()
        settled = json.loads(answer["Payload"].read() or b"{}").get("changes_settled", 0)
    records = expected(own.transport, "GET", "/v1/topics/_audit/partitions/0/records", offset="earliest")["records"]
    changes = [json.loads(each["value"]) for each in records]
    assert {"change_acls", "put_quota"} <= {each["action"] for each in changes}
    [quota] = [each for each in changes if each["resource"]["name"] == "orders" and each["action"] == "put_quota"][:1]
    assert quota["principal"].startswith("arn:aws:iam::000000000000:user/user-")
