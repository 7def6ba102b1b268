"""A client's proof: the same one for minutes, and another one for other keys or another time."""

from dataclasses import dataclass

import pytest

from penstock.configuration import Configuration, StaticCredentials
from penstock.http.sigv4 import Keys, Scope, check_signature, read_claim
from penstock.transports import invocation
from penstock.transports.invocation import OwnProof
from penstock_core.direct.caller_proof import PROOF_BODY
from penstock_core.limits import SDK_PROOF_RENEW_MS, SDK_PROOFS_KEPT_MAX

STAGE = "arn:aws:lambda:eu-west-1:111122223333:function:penstock"
STS = "https://sts.eu-west-1.amazonaws.com"
START_MS = 1_795_870_800_000


@dataclass
class Refreshed:
    """Credentials that a test changes."""

    now: StaticCredentials

    def get_frozen_credentials(self) -> StaticCredentials:
        return self.now


@pytest.fixture(autouse=True)
def nothing_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocation, "_MADE", {})


@pytest.fixture
def credentials() -> Refreshed:
    return Refreshed(StaticCredentials("AKIA0123456789ABCDEF", "secret", "token"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    times_ms = [START_MS]
    monkeypatch.setattr(invocation, "wall_clock_ms", lambda: times_ms[-1])
    return times_ms


@pytest.fixture
def proof(credentials: Refreshed, clock: list[int]) -> OwnProof:
    return OwnProof(Configuration(url="https://lambda", region="eu-west-1", credentials=credentials), STS, STAGE)


def test_proof_is_the_signature_of_a_request_for_this_stage(proof: OwnProof) -> None:
    made = proof.current()
    headers = [*made.headers(STAGE, "eu-west-1").items(), ("Host", "sts.eu-west-1.amazonaws.com")]
    scope = Scope(region="eu-west-1", service="sts")
    claim = read_claim(scope, headers, START_MS / 1_000)
    check_signature(claim, Keys("AKIA0123456789ABCDEF", "secret", "token"), scope, "POST", "/", headers, PROOF_BODY)
    assert "x-penstock-stage" in claim.signed_headers


def test_proof_stays_until_it_is_to_be_renewed(proof: OwnProof, clock: list[int]) -> None:
    first = proof.current()
    clock.append(START_MS + SDK_PROOF_RENEW_MS - 1)
    assert proof.current() == first
    clock.append(START_MS + SDK_PROOF_RENEW_MS)
    assert proof.current().time == "20261128T130400Z"


def test_proof_is_signed_anew_when_the_clock_was_set_back(proof: OwnProof, clock: list[int]) -> None:
    proof.current()
    clock.append(START_MS - 3_600_000)
    assert proof.current().time == "20261128T120000Z"


def test_proof_is_signed_anew_when_the_keys_are_others(proof: OwnProof, credentials: Refreshed) -> None:
    first = proof.current()
    credentials.now = StaticCredentials("AKIA9999999999ABCDEF", "other", None)
    second = proof.current()
    assert (second.key, second.token) == ("AKIA9999999999ABCDEF", "")
    assert second.signature != first.signature


def test_clients_of_a_process_share_a_proof_and_stages_do_not(
    proof: OwnProof, credentials: Refreshed, clock: list[int]
) -> None:
    configuration = Configuration(url="https://lambda", region="eu-west-1", credentials=credentials)
    first = proof.current()
    clock.append(START_MS + 1_000)
    assert OwnProof(configuration, STS, STAGE).current() is first
    assert OwnProof(configuration, STS, f"{STAGE}-dev").current() != first


def test_process_keeps_so_many_proofs(credentials: Refreshed, clock: list[int]) -> None:
    configuration = Configuration(url="https://lambda", region="eu-west-1", credentials=credentials)
    for number in range(SDK_PROOFS_KEPT_MAX + 1):
        OwnProof(configuration, STS, f"{STAGE}-{number}").current()
    assert len(invocation._MADE) == SDK_PROOFS_KEPT_MAX


def test_clients_with_more_keys_than_the_process_keeps_sign_once_each(clock: list[int]) -> None:
    keys = [StaticCredentials(f"AKIA{number:016}", "secret", None) for number in range(SDK_PROOFS_KEPT_MAX + 1)]
    owners = [OwnProof(Configuration(url="https://lambda", region="eu", credentials=each), STS, STAGE) for each in keys]
    first = [each.current() for each in owners]
    clock.append(START_MS + 1_000)
    assert [each.current() for each in owners] == first


def test_clients_of_different_clocks_do_not_renew_each_others_proof(credentials: Refreshed, clock: list[int]) -> None:
    configuration = Configuration(url="https://lambda", region="eu-west-1", credentials=credentials)
    straight, shifted = (OwnProof(configuration, STS, STAGE) for _ in range(2))
    first = straight.current(), shifted.current(600_000)
    clock.append(START_MS + 1_000)
    assert (straight.current(), shifted.current(600_000)) == first
