import hashlib

import pytest

from penstock_core.acls.principal import ANONYMOUS, Principal, iam_principal, jwt_principal, named_principal

ACCOUNT = "arn:aws:sts::111122223333"
ROLE = "arn:aws:iam::111122223333:role/ledger"


def test_sessions_of_a_role_are_one_principal() -> None:
    first, second = (iam_principal(f"{ACCOUNT}:assumed-role/ledger/{session}") for session in ("i-0abc", "a@b.example"))
    assert first == second == iam_principal(ROLE)
    assert first.name == ROLE


def test_role_has_no_path_because_its_sessions_tell_none() -> None:
    assert iam_principal("arn:aws:iam::111122223333:role/team/a/ledger").name == ROLE


def test_other_partition_stays_in_the_name() -> None:
    session = "arn:aws-us-gov:sts::111122223333:assumed-role/ledger/i"
    assert iam_principal(session).name == "arn:aws-us-gov:iam::111122223333:role/ledger"


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:iam::111122223333:user/team/ada",
        "arn:aws:iam::111122223333:root",
        "no arn",
    ],
)
def test_other_arns_stay_as_they_are(arn: str) -> None:
    assert iam_principal(arn).name == arn


def test_federated_users_of_an_account_are_one_principal() -> None:
    first, second = (iam_principal(f"{ACCOUNT}:federated-user/{name}") for name in ("ada", "any"))
    assert first == second == named_principal(f"{ACCOUNT}:federated-user")
    assert first.name == f"{ACCOUNT}:federated-user"
    assert first != iam_principal("arn:aws:sts::444455556666:federated-user/ada")


def test_digest_is_what_transactional_ids_were_bound_to() -> None:
    bound = hashlib.sha256(f"{ACCOUNT}:assumed-role/ledger".encode()).hexdigest()[:32]
    assert iam_principal(f"{ACCOUNT}:assumed-role/ledger/i-0abc").digest == bound
    user = "arn:aws:iam::111122223333:user/ada"
    assert iam_principal(user).digest == hashlib.sha256(user.encode()).hexdigest()[:32]


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
    assert iam_principal(one).name != iam_principal(another).name
    assert iam_principal(one).digest != iam_principal(another).digest


def test_no_arn_is_nobody() -> None:
    assert iam_principal("") is ANONYMOUS


def test_subject_of_a_token_is_a_principal_of_its_issuer() -> None:
    ada = jwt_principal("https://login.example", "ada")
    assert ada.name == "jwt:https://login.example#ada"
    assert ada != jwt_principal("https://other.example", "ada")
    assert len(ada.digest) == 32


@pytest.mark.parametrize("principal", [iam_principal(ROLE), jwt_principal("https://login.example", "ada")])
def test_name_as_rules_write_it_is_the_same_principal(principal: Principal) -> None:
    assert named_principal(principal.name) == principal
