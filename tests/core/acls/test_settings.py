import json

import pytest

from penstock_core.acls.rule import NamePattern
from penstock_core.acls.settings import AclSettings, acl_settings_of
from penstock_core.errors import PenstockError

ROLE = "arn:aws:iam::111122223333:role/ops"


def test_stage_that_allows_what_no_rule_denies_says_so() -> None:
    assert acl_settings_of({"PENSTOCK_ACL_DEFAULT": "allow"}) == AclSettings(allows_by_default=True)


def test_variables_say_the_default_and_who_may_do_everything() -> None:
    variables = {"PENSTOCK_ACL_DEFAULT": "deny", "PENSTOCK_SUPER_PRINCIPALS": json.dumps([ROLE, "jwt:https://a#*"])}
    assert acl_settings_of(variables) == AclSettings(
        allows_by_default=False, super_principals=(NamePattern(ROLE), NamePattern("jwt:https://a#", is_prefix=True))
    )


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PENSTOCK_ACL_DEFAULT": "Deny"},
        {"PENSTOCK_ACL_DEFAULT": ""},
        {"PENSTOCK_ACL_DEFAULT": "deny", "PENSTOCK_SUPER_PRINCIPALS": "ops"},
        {"PENSTOCK_ACL_DEFAULT": "deny", "PENSTOCK_SUPER_PRINCIPALS": '["ops"]'},
    ],
)
def test_value_that_means_nothing_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises((ValueError, PenstockError)):
        acl_settings_of(variables)
