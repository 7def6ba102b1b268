import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.acls.rule import IMPLY_DESCRIBE, Kind, Operation, Right, parse_resource, parse_rule
from penstock_core.errors import ErrorCode, PenstockError

ROLE = "arn:aws:iam::111122223333:role/ledger"
PRINCIPALS = st.sampled_from(["*", ROLE, f"{ROLE}*", "jwt:https://login.example#ada", "arn:aws:iam::1:user/t/ada"])
RESOURCES = st.sampled_from(["*", "service", "topic:orders", "topic:*", "group:a*", "transactional_id:x"])
OPERATIONS = st.sampled_from(["all", *(each.value for each in Operation)])


@given(PRINCIPALS, OPERATIONS, RESOURCES, st.sampled_from(["allow", "deny"]))
def test_rule_survives_a_round_trip(principal: str, operation: str, resource: str, permission: str) -> None:
    rule = parse_rule(principal, operation, resource, permission)
    assert parse_rule(**rule.to_json()) == rule
    assert rule.to_json() == {
        "principal": principal,
        "operation": operation,
        "resource": resource,
        "permission": permission,
    }
    assert rule.place == f"{resource} {operation} {permission} {principal}"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("arn:aws:sts::111122223333:assumed-role/ledger/i-0abc", ROLE),
        ("arn:aws:sts::111122223333:assumed-role/ledger/*", ROLE),
        ("arn:aws:sts::111122223333:assumed-role/led*", "arn:aws:iam::111122223333:role/led*"),
        ("arn:aws:iam::111122223333:role/team/a/ledger", ROLE),
        ("arn:aws:iam::111122223333:*", "arn:aws:iam::111122223333:*"),
    ],
)
def test_principal_is_the_role_of_its_sessions(given: str, meant: str) -> None:
    assert str(parse_rule(given, "read", "topic:a").principal) == meant


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (("ada", "read", "topic:a", "allow"), "principal='ada': give an IAM ARN"),
        (("", "read", "topic:a", "allow"), "principal='': give 1 to 512"),
        (("arn:" + "x" * 600, "read", "topic:a", "allow"), "give 1 to 512"),
        (("arn:aws:iam::1:*/x*", "read", "topic:a", "allow"), "* stands at the end only"),
        (("arn:aws:iam::1:role/team/*", "read", "topic:a", "allow"), "leave the path out"),
        (("arn:a\x1b", "read", "topic:a", "allow"), "no control characters"),
        (("*", "own", "topic:a", "allow"), "operation='own': must be one of read, write"),
        (("*", "read", "topic", "allow"), "resource='topic': give service, or KIND:NAME"),
        (("*", "read", "topic:", "allow"), "resource='topic:': a name has 1 to 249"),
        (("*", "read", "topic:a*b", "allow"), "a name has 1 to 249"),
        (("*", "read", "topic:.", "allow"), "a name has 1 to 249"),
        (("*", "read", f"topic:{'a' * 250}", "allow"), "a name has 1 to 249"),
        (("*", "read", "service:x", "allow"), "give service"),
        (("*", "read", "topic:a", "maybe"), "permission='maybe': must be allow or deny"),
    ],
)
def test_mistake_is_told_with_the_value_and_the_way_out(parts: tuple[str, str, str, str], told: str) -> None:
    with pytest.raises(PenstockError, match=re.escape(told)) as caught:
        parse_rule(*parts)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_one_resource_has_a_kind_and_a_name() -> None:
    assert parse_resource("group:billing") == (Kind.GROUP, "billing")
    assert parse_resource("service") == (Kind.SERVICE, "")
    for pattern in ("*", "topic:*", "topic:a*"):
        with pytest.raises(PenstockError, match="name one resource"):
            parse_resource(pattern)


def test_resource_is_text_as_a_rule_writes_it() -> None:
    assert Right(operation=Operation.READ, kind=Kind.SHARE_GROUP, name="w").resource == "share_group:w"
    assert Right(operation=Operation.READ, kind=Kind.SERVICE).resource == "service"


def test_create_alone_does_not_imply_describe() -> None:
    assert {*Operation} - IMPLY_DESCRIBE == {Operation.CREATE, Operation.DESCRIBE}
