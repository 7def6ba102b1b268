"""Access rules and quotas that a template declares."""

import json

import pytest

from penstock_service.instance.instance import Instance
from tests.handlers.provision.template import Template

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
