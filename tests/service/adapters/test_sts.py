"""STS as functions ask it: the address is theirs, and each answer that is none leads to a clear error."""

from collections.abc import Iterator
from time import time

import pytest

from penstock.transports.invocation import OwnProof
from penstock_core.direct.caller_proof import CallerProof
from penstock_core.errors import ErrorCode
from penstock_core.limits import KIB
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.adapters.sts import StsIdentities, sts_url
from tests.support.fake_aws import FakeAws, FakeKey, Told, always, lost, sts_error
from tests.support.refusals import refused

SESSION = "arn:aws:sts::111122223333:assumed-role/ledger/i-0abc"


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    fake = FakeAws()
    yield fake
    fake.close()


def proof_of(aws: FakeAws, key: FakeKey, stage: str = "penstock") -> tuple[CallerProof, str]:
    place = aws.stage(memory_instance(), stage)
    return OwnProof(aws.access(place, key).signer, aws.url, place.arn).current(), place.arn


@pytest.mark.parametrize("token", [None, "session+token/=="])
def test_caller_is_who_has_signed(aws: FakeAws, token: str | None) -> None:
    proof, stage = proof_of(aws, aws.key(SESSION, token=token))
    assert StsIdentities(aws.url).arn_of(proof, stage) == SESSION
    assert aws.identified == 1


def test_proof_for_another_stage_is_refused(aws: FakeAws) -> None:
    proof, _ = proof_of(aws, aws.key(SESSION), "penstock")
    _, other = proof_of(aws, aws.key(SESSION), "penstock-dev")
    error = refused(ErrorCode.NOT_AUTHORIZED, lambda: StsIdentities(aws.url).arn_of(proof, other))
    assert "SignatureDoesNotMatch" in error.message


def test_refusal_tells_the_code_and_nothing_that_sts_repeats(aws: FakeAws) -> None:
    proof, stage = proof_of(aws, aws.key(SESSION))
    aws.sts_faults = [always(sts_error(403, "ExpiredToken", "The canonical string was: swordfish"))]
    error = refused(ErrorCode.NOT_AUTHORIZED, lambda: StsIdentities(aws.url).arn_of(proof, stage))
    assert "ExpiredToken" in error.message
    assert "swordfish" not in error.message
    assert aws.identified == 0


@pytest.mark.parametrize(
    "told",
    [
        sts_error(500, "InternalFailure"),
        sts_error(503, "ServiceUnavailable"),
        sts_error(400, "Throttling"),
        Told(429, b""),
        Told(200, b"<html>a captive portal</html>"),
        Told(200, b"<Arn>arn:aws:iam::1:user/a</Arn><Arn>arn:aws:iam::1:user/b</Arn>"),
        Told(200, b"<Arn>ada</Arn>"),
        Told(200, b"<Arn>arn:aws:iam::1:user/a</Arn>" + b" " * 16 * KIB),
        Told(302, b"", {"Location": "https://evil.example/"}),
        Told(307, b"", {"Location": "/elsewhere"}),
        Told(0, b""),
    ],
    ids=lambda told: f"{told.status}-{told.body[:12]!r}",
)
def test_answer_that_names_no_caller_is_an_outage_that_changes_nothing(aws: FakeAws, told: Told) -> None:
    proof, stage = proof_of(aws, aws.key(SESSION))
    aws.sts_faults = [always(told), always(told)]
    error = refused(ErrorCode.IDENTITY_UNAVAILABLE, lambda: StsIdentities(aws.url).arn_of(proof, stage))
    assert not error.maybe_applied
    assert error.code.is_retriable
    assert "AWS STS does not tell who calls" in error.message


@pytest.mark.parametrize("fault", [lost, always(sts_error(503, "ServiceUnavailable"))])
def test_authority_is_asked_again_when_it_fails_once(aws: FakeAws, fault: object) -> None:
    proof, stage = proof_of(aws, aws.key(SESSION))
    aws.sts_faults = [fault]  # type: ignore[list-item]  # of the parameters
    assert StsIdentities(aws.url).arn_of(proof, stage) == SESSION


def test_authority_that_is_not_there_is_an_outage(aws: FakeAws) -> None:
    proof, stage = proof_of(aws, aws.key(SESSION))
    refused(ErrorCode.IDENTITY_UNAVAILABLE, lambda: StsIdentities("http://127.0.0.1:9").arn_of(proof, stage))


def test_expired_proof_is_refused_by_the_authority(aws: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    old_ms = int((time() - 1_000) * 1_000)
    monkeypatch.setattr("penstock.transports.invocation.wall_clock_ms", lambda: old_ms)
    proof, stage = proof_of(aws, aws.key(SESSION))
    refused(ErrorCode.NOT_AUTHORIZED, lambda: StsIdentities(aws.url).arn_of(proof, stage))


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        ({"AWS_REGION": "eu-west-1"}, "https://sts.eu-west-1.amazonaws.com"),
        ({"AWS_REGION": "cn-north-1"}, "https://sts.cn-north-1.amazonaws.com.cn"),
        ({"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:4566"}, "http://127.0.0.1:4566"),
    ],
)
def test_address_is_that_of_the_functions_own_environment(environ: dict[str, str], url: str) -> None:
    assert sts_url(environ) == url
