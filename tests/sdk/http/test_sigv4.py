"""Signatures: botocore agrees with those that we make, and no request passes that was changed after it was signed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from penstock.http.sigv4 import (
    CLOCK_SKEW_S_MAX,
    Keys,
    Scope,
    SignatureRefused,
    check_signature,
    read_claim,
    signed_headers,
)

NOW_S = 1_790_000_000.0
SCOPE = Scope(region="eu-west-3", service="execute-api")
KEYS = Keys("AKIDEXAMPLE", "secret")
HOST = "127.0.0.1:4567"
Pairs = Sequence[tuple[str, str]]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
header_values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


def by_botocore(keys: Keys, method: str, url: str, headers: dict[str, str], body: bytes, time: str) -> str:
    request = AWSRequest(method=method, url=url, headers={**headers, "X-Amz-Date": time}, data=body)
    request.context["timestamp"] = time
    if keys.token:
        request.headers["X-Amz-Security-Token"] = keys.token
    auth = SigV4Auth(Credentials(*keys), SCOPE.service, SCOPE.region)
    signature: str = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    return signature


def claim_and_check(
    pairs: Pairs,
    *,
    method: str = "POST",
    target: str = "/v1/x",
    body: bytes = b"body",
    now_s: float = NOW_S,
    keys: Keys = KEYS,
) -> None:
    claim = read_claim(SCOPE, pairs, now_s)
    check_signature(claim, keys, SCOPE, method, target, pairs, body)


def request(
    keys: Keys = KEYS, *, target: str = "/v1/x", body: bytes = b"body", content_type: str = ""
) -> list[tuple[str, str]]:
    headers = {"Content-Type": content_type} if content_type else {}
    signed = signed_headers(keys, SCOPE, "POST", f"http://{HOST}{target}", headers, body, NOW_S)
    return [("Host", HOST), *signed.items()]


@given(
    token=st.none() | st.just("a-token"),
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE"]),
    segments=st.lists(texts, max_size=4),
    query=st.dictionaries(texts.filter(bool), texts, max_size=3),
    content_type=header_values,
    body=st.binary(max_size=100),
    scheme=st.sampled_from(["http://127.0.0.1:4567", "https://abc.execute-api.eu-west-3.amazonaws.com", "http://x:80"]),
)
def test_signature_is_botocores(
    token: str | None,
    method: str,
    segments: list[str],
    query: dict[str, str],
    content_type: str,
    body: bytes,
    scheme: str,
) -> None:
    keys = Keys("AKIDEXAMPLE", "secret", token)
    target = quote("/" + "/".join(segments)) + ("?" + urlencode(query, quote_via=quote) if query else "")
    headers = {"Content-Type": content_type, "User-Agent": "is not signed"}
    signed = signed_headers(keys, SCOPE, method, scheme + target, headers, body, NOW_S)
    expected = by_botocore(keys, method, scheme + target, headers, body, signed["X-Amz-Date"])
    assert signed["Authorization"].endswith(f"Signature={expected}")
    host = scheme.partition("://")[2].removesuffix(":80")
    claim_and_check([("Host", host), *signed.items()], method=method, target=target, body=body, keys=keys)


def test_signed_request_passes() -> None:
    claim_and_check(request(content_type="text/x"))
    claim_and_check(request(), now_s=NOW_S + CLOCK_SKEW_S_MAX)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "DELETE"},
        {"target": "/v1/y"},
        {"target": "/v1/x?a=1"},
        {"body": b"bodY"},
        {"body": b""},
        {"keys": Keys("AKIDEXAMPLE", "other")},
        {"keys": Keys("AKIDEXAMPLE", "secret", "a-token")},
        {"now_s": NOW_S + CLOCK_SKEW_S_MAX + 1},
        {"now_s": NOW_S - CLOCK_SKEW_S_MAX - 1},
    ],
)
def test_request_is_refused_when_a_part_of_it_differs(changed: dict[str, Any]) -> None:
    pairs = request()
    if "keys" in changed and changed["keys"].token:  # the caller claims a token that the key does not have
        changed, pairs = {}, request(changed["keys"])
    with pytest.raises(SignatureRefused):
        claim_and_check(pairs, **changed)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("Authorization", "foo", "is not"),
        ("Authorization", "Bearer x", "is not"),
        ("Authorization", None, "0 Authorization"),
        ("X-Amz-Date", None, "0 X-Amz-Date"),
        ("X-Amz-Date", "20260921T000000", "is not a time"),
        ("X-Amz-Date", "20260921T999999Z", "no time"),
        ("Host", "evil.example", "does not match"),
        ("Host", None, "no header host"),
        ("Content-Type", "text/y", "does not match"),
        ("Content-Type", None, "no header content-type"),
    ],
)
def test_request_is_refused_when_a_header_is_changed_or_left_out(name: str, value: str | None, said: str) -> None:
    pairs = request(content_type="text/x")
    changed = [(each, text) for each, text in pairs if each != name] + ([] if value is None else [(name, value)])
    with pytest.raises(SignatureRefused, match=said):
        claim_and_check(changed)


def test_header_that_is_sent_twice_is_refused() -> None:
    for name, value in request(content_type="text/x"):
        with pytest.raises(SignatureRefused):
            claim_and_check([*request(content_type="text/x"), (name, value)])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("eu-west-3", "eu-west-1"),
        ("execute-api", "s3"),
        ("aws4_request", "aws4"),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"),
        ("host;x-amz-date", "x-amz-date;host"),
        ("host;x-amz-date", "host"),
        ("host;x-amz-date", "x-amz-date"),
        ("Credential=AKIDEXAMPLE/2", "Credential=AKIDEXAMPLE/1"),
        ("Signature=", "Signature=0"),
    ],
)
def test_claim_is_refused_when_a_part_of_it_differs(old: str, new: str) -> None:
    pairs = [(name, value.replace(old, new)) for name, value in request()]
    assert pairs != request()
    with pytest.raises(SignatureRefused):
        claim_and_check(pairs)


def test_amazon_header_that_is_not_signed_is_refused() -> None:
    with pytest.raises(SignatureRefused, match="x-amz-target"):
        claim_and_check([*request(), ("X-Amz-Target", "elsewhere")])


def test_announced_hash_must_be_that_of_the_body() -> None:
    headers = {"X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD"}
    signed = signed_headers(KEYS, SCOPE, "POST", f"http://{HOST}/v1/x", headers, b"body", NOW_S)
    with pytest.raises(SignatureRefused, match="SHA-256"):
        claim_and_check([("Host", HOST), *signed.items()])


def test_every_signature_but_the_right_one_is_refused() -> None:
    claim = read_claim(SCOPE, request(), NOW_S)
    for at in range(64):
        wrong = claim.signature[:at] + ("1" if claim.signature[at] == "0" else "0") + claim.signature[at + 1 :]
        with pytest.raises(SignatureRefused, match="does not match"):
            check_signature(replace(claim, signature=wrong), KEYS, SCOPE, "POST", "/v1/x", request(), b"body")
