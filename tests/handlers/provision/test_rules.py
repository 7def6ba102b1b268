"""Access rules and quotas that a template declares.

Errors and defects: CloudFormation gets an answer in any case.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.acls.rule import parse_rule
from penstock_core.acls.tokens import TokenSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_handlers import provision
from penstock_handlers.edge.custom_resource import Change, Settled, custom_resource_entry_point
from penstock_handlers.provision import settle
from penstock_service.acls.change_acls import change_acls
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import CloudFormation
from penstock_service.quotas.admin.set_quota import put_quota
from tests.handlers.provision.template import Template
from tests.handlers.service import CONTEXT
from tests.support.cloud_formation import MemoryCloudFormation, event_of
from tests.support.service import UNAVAILABLE, SteppedClock

ADA, BOB = "arn:aws:iam::1:role/ada", "arn:aws:iam::1:role/bob"


def rules_of(principal: str) -> str:
    return json.dumps([{"principal": principal, "operation": "read", "resource": "topic:orders"}])


def stored(to: Instance) -> set[str]:
    return {str(rule.principal) for rule in to.stores.acls.get().rules}


def test_rules_come_change_and_go_with_their_resource(to: Instance) -> None:
    template = Template(to, "Acls")
    template.create(Rules=rules_of(ADA))
    assert stored(to) == {ADA}
    first = template.resource_id
    template.update(Rules=rules_of(BOB))
    assert (stored(to), template.resource_id) == ({BOB}, first)
    assert template.delete()["Status"] == "SUCCESS"
    assert stored(to) == set()


@pytest.mark.parametrize("stacks", [("one", "one"), ("one", "two")])
def test_rule_goes_with_the_last_resource_that_declares_it(to: Instance, stacks: tuple[str, str]) -> None:
    old, new = (Template(to, "Acls", name, stack=stack) for name, stack in zip(("Old", "New"), stacks, strict=True))
    old.create(Rules=rules_of(ADA))
    new.create(Rules=rules_of(ADA))
    for _ in range(2):  # CloudFormation repeats an event whose answer was lost
        assert old.delete()["Status"] == "SUCCESS"
        assert stored(to) == {ADA}
    assert new.delete()["Status"] == "SUCCESS"
    assert stored(to) == set()


def test_rule_of_an_operator_survives_a_resource_and_one_that_was_never_made(to: Instance) -> None:
    [rule] = json.loads(rules_of(ADA))
    change_acls(to, [parse_rule(**rule)], [])
    template = Template(to, "Acls")
    template.properties = {"Rules": rules_of(ADA)}
    assert template.delete("request-1")["Status"] == "SUCCESS"
    template.create(Rules=rules_of(ADA))
    assert template.delete()["Status"] == "SUCCESS"
    assert stored(to) == {ADA}


def test_resource_of_an_earlier_release_takes_its_rules_along_unless_others_declare_them(to: Instance) -> None:
    change_acls(to, [parse_rule(**json.loads(rules_of(name))[0]) for name in (ADA, BOB)], [])
    Template(to, "Acls", "New").create(Rules=rules_of(ADA))
    old = Template(to, "Acls", "Old")
    old.resource_id = f"acls/{'0' * 16}"
    for name in (ADA, BOB):
        old.properties = {"Rules": rules_of(name)}
        assert old.delete()["Status"] == "SUCCESS"
    assert stored(to) == {ADA}


@pytest.mark.parametrize("rules", ["{", "[7]", '[{"principal": "*"}]', rules_of("ada")])
def test_wrong_rules_are_refused_and_their_rollback_is_not(to: Instance, rules: str) -> None:
    template = Template(to, "Acls")
    assert template.create(Rules=rules)["Status"] == "FAILED"
    template.properties = {"Rules": rules}
    assert template.delete("request-1")["Status"] == "SUCCESS"


def test_rule_may_deny(to: Instance) -> None:
    rule = {"principal": ADA, "operation": "read", "resource": "topic:orders", "permission": "deny"}
    Template(to, "Acls").create(Rules=json.dumps([rule]))
    [stored_rule] = to.stores.acls.get().rules
    assert not stored_rule.is_allow


def _quota(name: str, shared: str = "false", **limits: int) -> dict[str, object]:
    return {"Subject": "principal", "Name": name, "Limits": json.dumps(limits), "Shared": shared}


def quotas(to: Instance) -> dict[str, tuple[dict[str, int], bool]]:
    return {each.name: (each.to_json(), each.is_shared) for each in to.stores.quotas.list()}


def test_quota_comes_changes_and_goes_with_its_resource(to: Instance) -> None:
    template = Template(to, "Quota")
    template.create(**_quota(f"{ADA}*", "true", produce_bytes_per_s=5))
    assert quotas(to) == {f"{ADA}*": ({"produce_bytes_per_s": 5}, True)}
    first = template.resource_id
    template.update(**_quota(f"{ADA}*", fetch_bytes_per_s=6))
    assert (quotas(to), template.resource_id) == ({f"{ADA}*": ({"fetch_bytes_per_s": 6}, False)}, first)
    template.update(**_quota(BOB, fetch_bytes_per_s=6))
    assert template.resource_id != first
    assert {*quotas(to)} == {f"{ADA}*", BOB}  # CloudFormation deletes the old one next
    assert template.delete()["Status"] == "SUCCESS"
    assert template.delete()["Status"] == "SUCCESS"
    assert {*quotas(to)} == {f"{ADA}*"}


@pytest.mark.parametrize(
    "properties",
    [
        _quota("ada", fetch_bytes_per_s=1),
        _quota(ADA),
        _quota(ADA, "true", fetch_bytes_per_s=1),
        _quota(ADA, fetch_bytes_per_s=0),
        {**_quota(ADA), "Limits": "["},
    ],
)
def test_wrong_quota_is_refused_and_its_rollback_is_not(to: Instance, properties: dict[str, object]) -> None:
    template = Template(to, "Quota")
    assert template.create(**properties)["Status"] == "FAILED"
    template.properties = properties
    assert template.delete("request-1")["Status"] == "SUCCESS"
    assert quotas(to) == {}


def test_quota_that_an_operator_has_set_survives_the_rollback_of_a_resource_that_was_never_made(to: Instance) -> None:
    put_quota(to, "principal", ADA, {"produce_bytes_per_s": 1_000})
    template = Template(to, "Quota")
    failed = template.create(**_quota(ADA, fetch_bytes_per_s=0))
    template.properties = _quota(ADA, fetch_bytes_per_s=0)
    assert template.delete(failed["PhysicalResourceId"])["Status"] == "SUCCESS"
    assert quotas(to) == {ADA: ({"produce_bytes_per_s": 1_000}, False)}


def test_quota_that_an_operator_has_set_is_not_replaced(to: Instance) -> None:
    put_quota(to, "principal", "*", {"produce_bytes_per_s": 1_000})
    template = Template(to, "Quota")
    failed = template.create(**_quota("*", produce_bytes_per_s=5))
    assert "quota that this stack has not set: delete it first" in failed["Reason"]
    template.create(**_quota(ADA, produce_bytes_per_s=5))
    assert template.update(**_quota("*", produce_bytes_per_s=5))["Status"] == "FAILED"
    assert quotas(to)["*"] == ({"produce_bytes_per_s": 1_000}, False)


def test_quota_goes_only_with_the_resource_that_has_set_it_last(to: Instance) -> None:
    old, new = Template(to, "Quota", "Old"), Template(to, "Quota", "New")  # a construct that moves in the app
    old.create(**_quota(ADA, produce_bytes_per_s=5))
    new.create(**_quota(ADA, produce_bytes_per_s=5))
    assert old.delete()["Status"] == "SUCCESS"
    assert {*quotas(to)} == {ADA}
    put_quota(to, "principal", ADA, {"produce_bytes_per_s": 7})  # an operator
    assert new.delete()["Status"] == "SUCCESS"
    assert quotas(to) == {ADA: ({"produce_bytes_per_s": 7}, False)}


def test_deletion_that_could_not_be_made_is_not_told_as_made(to: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template(to, "Quota")
    template.create(**_quota(ADA, produce_bytes_per_s=5))

    def away(*_: object) -> bool:
        raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")

    monkeypatch.setattr(provision, "delete_declared_quota", away)
    assert template.delete()["Status"] == "FAILED"
    monkeypatch.undo()
    assert {*quotas(to)} == {ADA}


@pytest.mark.parametrize(
    ("kind", "properties"),
    [("Acls", {"Rules": rules_of("jwt:alice")}), ("Quota", _quota("jwt:alice", produce_bytes_per_s=5))],
)
def test_token_without_its_issuer_is_refused_where_the_stage_takes_none(
    to: Instance, kind: str, properties: dict[str, object]
) -> None:
    assert "give jwt:ISSUER#SUBJECT" in Template(to, kind).create(**properties)["Reason"]


def test_token_gets_the_issuer_that_the_stage_trusts(to: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(to.acl_cache.settings, tokens=TokenSettings(issuer="https://id.example"))
    monkeypatch.setattr(to.acl_cache, "_settings", settings)
    template = Template(to, "Acls")
    template.create(Rules=rules_of("jwt:alice"))
    assert stored(to) == {"jwt:https://id.example#alice"}
    assert template.delete()["Status"] == "SUCCESS"
    assert stored(to) == set()
    Template(to, "Quota").create(**_quota("jwt:alice", produce_bytes_per_s=5))
    assert {*quotas(to)} == {"jwt:https://id.example#alice"}


def failing(errors: list[Exception]) -> Any:
    def settle_after_errors(change: Change, to: Instance, stack: CloudFormation) -> Settled:
        if errors:
            raise errors.pop(0)
        return settle(change, to, stack)

    return settle_after_errors


def test_storage_that_comes_back_is_waited_for(to: Instance, clock: SteppedClock) -> None:
    stack = MemoryCloudFormation()
    handler = custom_resource_entry_point(failing([UNAVAILABLE, UNAVAILABLE]), caller=lambda: stack)
    handler(event_of("Create", "Topic", {"Name": "orders"}), CONTEXT)
    assert stack.answers[-1]["Status"] == "SUCCESS"
    assert len(clock.sleeps) == 2
    assert to.topic_cache.read_through("orders")


@pytest.mark.usefixtures("to")
def test_storage_that_stays_away_fails_in_time(clock: SteppedClock) -> None:
    stack = MemoryCloudFormation()
    handler = custom_resource_entry_point(failing([UNAVAILABLE] * 1_000), caller=lambda: stack)
    handler(event_of("Create", "Topic", {"Name": "orders"}), CONTEXT)
    assert stack.answers[-1]["Status"] == "FAILED"
    assert "it does not answer" in stack.answers[-1]["Reason"]
    assert sum(clock.sleeps) < 30_000, "CloudFormation waits 60 s for an answer"


@pytest.mark.usefixtures("to")
def test_defect_is_answered_too() -> None:
    stack = MemoryCloudFormation()
    handler = custom_resource_entry_point(failing([KeyError("secret")]), caller=lambda: stack)
    handler(event_of("Update", "Topic", {"Name": "orders"}, PhysicalResourceId="orders/1"), CONTEXT)
    assert stack.answers[-1]["Status"] == "FAILED"
    assert stack.answers[-1]["PhysicalResourceId"] == "orders/1"
    assert "secret" not in stack.answers[-1]["Reason"]


def test_kind_that_the_release_does_not_know_is_answered(to: Instance) -> None:
    assert Template(to, "Comet").create(Name="halley")["Status"] == "FAILED"


@pytest.mark.usefixtures("to")
def test_answer_that_nobody_takes_is_an_error_of_the_function() -> None:
    stack = MemoryCloudFormation(refusal=UNAVAILABLE)
    handler = custom_resource_entry_point(settle, caller=lambda: stack)
    with pytest.raises(PenstockError) as refused:
        handler(event_of("Create", "Topic", {"Name": "orders"}), CONTEXT)
    assert refused.value.code is ErrorCode.STORAGE_UNAVAILABLE
