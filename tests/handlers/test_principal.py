import pytest

from penstock_handlers.edge.principal import principal_hash, principal_of

ACCOUNT = "arn:aws:sts::111122223333"


def test_sessions_of_a_role_are_one_principal() -> None:
    first, second = (
        principal_hash(f"{ACCOUNT}:assumed-role/ledger/{session}") for session in ("i-0abc", "a@b.example")
    )
    assert first == second
    assert len(first) == 32
    assert "ledger" not in first


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (f"{ACCOUNT}:assumed-role/ledger/i-0abc", f"{ACCOUNT}:assumed-role/ledger2/i-0abc"),
        (f"{ACCOUNT}:assumed-role/ledger/i-0abc", "arn:aws:sts::444455556666:assumed-role/ledger/i-0abc"),
        ("arn:aws:iam::111122223333:user/team/ada", "arn:aws:iam::111122223333:user/team/bob"),
        ("arn:aws:iam::111122223333:user/ledger", f"{ACCOUNT}:assumed-role/ledger/i-0abc"),
        ("arn:aws:iam::111122223333:root", ""),
    ],
)
def test_other_principals_are_others(one: str, another: str) -> None:
    assert principal_hash(one) != principal_hash(another)


@pytest.mark.parametrize(
    "context", [{}, {"authorizer": {}}, {"authorizer": {"iam": {}}}, {"authorizer": {"iam": {"userArn": None}}}]
)
def test_event_without_caller_has_no_principal(context: dict[str, object]) -> None:
    assert principal_of({"requestContext": context}) == ""


def test_event_names_its_caller() -> None:
    arn = f"{ACCOUNT}:assumed-role/ledger/i-0abc"
    assert principal_of({"requestContext": {"authorizer": {"iam": {"userArn": arn}}}}) == principal_hash(arn)
