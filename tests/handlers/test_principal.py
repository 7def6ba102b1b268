import pytest

from penstock_core.acls.principal import ANONYMOUS, iam_principal, jwt_principal
from penstock_handlers.edge.access.principal import principal_of

SESSION = "arn:aws:sts::111122223333:assumed-role/ledger/i-0abc"
CLAIMS = {"iss": "https://login.example", "sub": "ada", "aud": "penstock"}


@pytest.mark.parametrize(
    "context",
    [
        {},
        {"authorizer": {}},
        {"authorizer": None},
        {"authorizer": {"iam": {}}},
        {"authorizer": {"iam": {"userArn": None}}},
        {"authorizer": {"jwt": {"claims": {"iss": "https://login.example"}}}},
        {"authorizer": {"jwt": {"claims": {"sub": "ada"}}}},
    ],
)
def test_event_without_caller_has_no_principal(context: dict[str, object]) -> None:
    assert principal_of({"requestContext": context}) == ANONYMOUS


def test_event_names_its_caller() -> None:
    assert principal_of({"requestContext": {"authorizer": {"iam": {"userArn": SESSION}}}}) == iam_principal(SESSION)


def test_token_names_its_caller() -> None:
    event = {"requestContext": {"authorizer": {"jwt": {"claims": CLAIMS, "scopes": None}}}}
    assert principal_of(event) == jwt_principal("https://login.example", "ada")
