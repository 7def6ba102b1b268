import pytest

from penstock_core.acls.principal import iam_principal
from penstock_core.acls.rule import Kind, Operation, parse_rule
from penstock_core.acls.rule_set import UNRESTRICTED, Access, RuleSet
from penstock_core.acls.tokens import AclSettings
from penstock_core.errors import ErrorCode, PenstockError

ADA = iam_principal("arn:aws:iam::1:user/ada")


def _access(*rules: tuple[str, ...]) -> Access:
    parsed = [parse_rule(ADA.name, *each) for each in rules]
    return Access(principal=ADA, rules=RuleSet(parsed, AclSettings(allows_by_default=False)).of(ADA.name))


def test_refusal_names_caller_right_and_the_command_that_grants_it() -> None:
    with pytest.raises(PenstockError) as caught:
        _access().require(Operation.WRITE, Kind.TOPIC, "orders")
    error = caught.value
    assert (error.code, error.maybe_applied) == (ErrorCode.NOT_AUTHORIZED, False)
    assert error.message == (
        "arn:aws:iam::1:user/ada may not write 'topic:orders': "
        "`penstock acls add 'arn:aws:iam::1:user/ada' write 'topic:orders'` grants it"
    )
    assert error.facts == {"principal": ADA.name, "operation": "write", "resource": "topic:orders"}


def test_refusal_by_a_deny_rule_says_so() -> None:
    refusal = _access(("write", "topic:orders", "deny")).refusal(Operation.WRITE, Kind.TOPIC, "orders")
    assert refusal is not None
    assert "a deny rule says so" in refusal.message


def test_first_resource_without_right_refuses_all() -> None:
    access = _access(("read", "topic:a"))
    access.require(Operation.READ, Kind.TOPIC, "a")
    with pytest.raises(PenstockError, match="topic:b"):
        access.require(Operation.READ, Kind.TOPIC, "a", "b")


def test_service_has_the_empty_name() -> None:
    _access(("alter", "service")).require(Operation.ALTER, Kind.SERVICE, "")
    with pytest.raises(PenstockError, match="may not alter 'service'"):
        _access(("read", "topic:*")).require(Operation.ALTER, Kind.SERVICE, "")


def test_readable_topics_are_those_with_the_right() -> None:
    assert _access(("read", "topic:a*"), ("read", "topic:ab", "deny")).readable(["a", "ab", "ac", "b"]) == ["a", "ac"]


def test_long_name_in_a_refusal_is_cut() -> None:
    refusal = _access().refusal(Operation.READ, Kind.TOPIC, "x" * 10_000)
    assert refusal is not None
    assert len(str(refusal.to_json())) < 1_000


def test_service_itself_may_do_everything() -> None:
    assert UNRESTRICTED.may(Operation.DELETE, Kind.TOPIC, "orders")
