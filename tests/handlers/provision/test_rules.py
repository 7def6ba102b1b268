"""Access rules that a template declares."""

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
