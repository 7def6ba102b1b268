"""A proof: what is taken for one, how long it is good, and that it repeats nothing secret."""

from dataclasses import replace
from typing import Any

import pytest

from penstock.http.sigv4 import Keys, Scope, signed_headers
from penstock_core.direct.caller_proof import (
    PROOF_BODY,
    CallerProof,
    account_of,
    check_age,
    parse_proof,
    unsigned_headers,
)
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PROOF_AGE_MS_MAX, PROOF_AHEAD_MS_MAX, PROOF_TOKEN_LENGTH_MAX

STAGE = "arn:aws:lambda:us-east-1:111122223333:function:penstock"
PROOF = CallerProof(key="AKIA0123456789ABCDEF", time="20261128T130000Z", token="", signature="a" * 64)
SIGNED_AT_MS = 1_795_870_800_000


def refusal(call: Any, *arguments: Any) -> PenstockError:
    with pytest.raises(PenstockError) as refused:
        call(*arguments)
    assert refused.value.code is ErrorCode.NOT_AUTHORIZED
    assert not refused.value.maybe_applied
    return refused.value


@pytest.mark.parametrize("token", ["", "FwoGZXIvYXdzE/+=="])
def test_proof_comes_back_from_its_json(token: str) -> None:
    proof = replace(PROOF, token=token)
    assert parse_proof(proof.to_json()) == proof


@pytest.mark.parametrize("token", [None, "token+/=="])
def test_headers_are_those_that_the_caller_has_signed(token: str | None) -> None:
    keys = Keys(PROOF.key, "secret", token)
    signed = signed_headers(
        keys,
        Scope(region="us-east-1", service="sts"),
        "POST",
        "https://sts.us-east-1.amazonaws.com/",
        unsigned_headers(STAGE),
        PROOF_BODY,
        SIGNED_AT_MS / 1_000,
    )
    signature = signed["Authorization"].rpartition("=")[2]
    proof = replace(PROOF, token=token or "", signature=signature)
    assert proof.headers(STAGE, "us-east-1") == signed


@pytest.mark.parametrize(
    "change",
    [
        {"key": ""},
        {"key": "test"},
        {"key": "AKIA0123456789ABCDEF/20261128/us-east-1/sts/aws4_request, SignedHeaders=host"},
        {"key": "AKIA0123456789ABCDEF\r\nX-Evil: 1"},
        {"key": None},
        {"key": ["AKIA0123456789ABCDEF"]},
        {"time": "2026-11-28T13:00:00Z"},
        {"time": "20261128T130000Z\n"},
        {"time": "20261399T130000Z"},
        {"time": "00000101T000000Z"},
        {"time": "２０２６1128T130000Z"},
        {"token": "a b"},
        {"token": "a\r\nHost: evil.example"},
        {"token": "é"},
        {"token": "a" * (PROOF_TOKEN_LENGTH_MAX + 1)},
        {"token": None},
        {"signature": "A" * 64},
        {"signature": "a" * 63},
        {"signature": "a" * 64 + "\n"},
        {"url": "https://evil.example"},
        {"host": "evil.example"},
        {"headers": {"X-Amz-Target": "evil"}},
        {"action": "AssumeRole"},
    ],
)
def test_what_is_no_proof_is_refused_without_a_word_of_it(change: dict[str, object]) -> None:
    error = refusal(parse_proof, {**PROOF.to_json(), **change})
    assert "evil" not in error.message
    assert PROOF.signature not in error.message


@pytest.mark.parametrize("fields", [None, "", 7, [], {}, {"key": PROOF.key}])
def test_fields_that_are_missing_are_refused(fields: object) -> None:
    assert "and nothing else" in refusal(parse_proof, fields).message


@pytest.mark.parametrize("age_ms", [-PROOF_AHEAD_MS_MAX, 0, PROOF_AGE_MS_MAX])
def test_proof_is_good_when_its_age_is_within_the_bounds(age_ms: int) -> None:
    check_age(PROOF, SIGNED_AT_MS + age_ms)


def test_proof_is_refused_when_it_is_too_old() -> None:
    assert "600 s old" in refusal(check_age, PROOF, SIGNED_AT_MS + PROOF_AGE_MS_MAX + 1).message


def test_proof_is_refused_when_its_clock_is_too_far_ahead() -> None:
    assert "300 s ahead" in refusal(check_age, PROOF, SIGNED_AT_MS - PROOF_AHEAD_MS_MAX - 1).message


def test_digest_differs_when_any_part_differs() -> None:
    others = [replace(PROOF, token="t"), replace(PROOF, signature="b" * 64), replace(PROOF, time="20261128T130001Z")]
    assert len({proof.digest() for proof in (PROOF, *others)}) == 4


def test_text_of_a_proof_has_neither_signature_nor_token() -> None:
    text = repr(replace(PROOF, token="swordfish"))
    assert "swordfish" not in text
    assert PROOF.signature not in text


@pytest.mark.parametrize(
    ("arn", "account"),
    [("arn:aws:sts::111122223333:assumed-role/ledger/i-0", "111122223333"), ("arn:aws:iam::1:root", "1"), ("ada", "")],
)
def test_account_is_that_of_the_arn(arn: str, account: str) -> None:
    assert account_of(arn) == account
