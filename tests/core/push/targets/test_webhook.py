"""The signature of HTTPS deliveries, against the public vector and another implementation of the scheme."""

import base64
from datetime import UTC, datetime
from email.message import Message

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from penstock_core import limits
from penstock_core.errors import ErrorCode
from penstock_core.push.targets.webhook import parse_secret, sign, verify
from tests.support.refusals import refused

# The example that the libraries of Standard Webhooks share in their tests.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, TIME_S, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
OTHER = f"whsec_{base64.b64encode(b'another key of 32 random bytes!!').decode()}"

secrets = st.binary(min_size=24, max_size=64).map(lambda key: f"whsec_{base64.b64encode(key).decode()}")
ids = st.from_regex(r"[A-Za-z0-9_-]{1,256}", fullmatch=True)
times = st.integers(0, 10**12 - 1)


def test_sign_makes_the_headers_of_the_public_example() -> None:
    assert sign(SECRET, ID, TIME_S, BODY) == {
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": SIGNATURE,
    }


@given(secrets, ids, times, st.binary())
def test_verify_accepts_what_sign_made(secret: str, message_id: str, time_s: int, body: bytes) -> None:
    assert verify(secret, sign(secret, message_id, time_s, body), body, time_s) == message_id


@given(secrets, st.text(), ids)
def test_another_implementation_verifies_what_sign_made(secret: str, text: str, message_id: str) -> None:
    now = datetime.now(tz=UTC)
    headers = sign(secret, message_id, int(now.timestamp()), text.encode())
    standardwebhooks.Webhook(secret).verify(text.encode(), headers, json_parse=False)


@given(secrets, st.text(), ids, st.integers(0, 2**31))
def test_verify_accepts_what_another_implementation_signed(
    secret: str, text: str, message_id: str, time_s: int
) -> None:
    signature = standardwebhooks.Webhook(secret).sign(message_id, datetime.fromtimestamp(time_s, tz=UTC), text)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(time_s), "webhook-signature": signature}
    assert verify(secret, headers, text.encode(), time_s) == message_id


@pytest.mark.parametrize("receiver", [SECRET, OTHER, f"{SECRET} {OTHER}", f"{OTHER} {SECRET}"])
def test_receiver_with_either_secret_accepts_a_delivery_signed_with_both(receiver: str) -> None:
    headers = sign(f"{SECRET} {OTHER}", ID, TIME_S, BODY)
    assert headers["webhook-signature"].split(" ")[0] == SIGNATURE
    assert verify(receiver, headers, BODY, TIME_S) == ID


def test_receiver_with_both_secrets_accepts_a_delivery_signed_with_either() -> None:
    assert verify(f"{SECRET} {OTHER}", sign(SECRET, ID, TIME_S, BODY), BODY, TIME_S) == ID
    assert verify(f"{SECRET} {OTHER}", sign(OTHER, ID, TIME_S, BODY), BODY, TIME_S) == ID


@given(
    st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "body"]),
    st.integers(0, 2**16),
    st.integers(1, 127),
)
def test_verify_refuses_a_request_of_which_one_character_was_changed(part: str, at: int, change: int) -> None:
    parts = {**sign(SECRET, ID, TIME_S, BODY), "body": BODY.decode()}
    at %= len(parts[part])
    changed = chr(ord(parts[part][at]) ^ change)
    parts[part] = f"{parts[part][:at]}{changed}{parts[part][at + 1 :]}"
    body = parts.pop("body").encode()
    refused(ErrorCode.ACCESS_DENIED, lambda: verify(SECRET, parts, body, TIME_S))


def test_verify_refuses_a_delivery_that_another_secret_signed() -> None:
    error = refused(ErrorCode.ACCESS_DENIED, lambda: verify(OTHER, sign(SECRET, ID, TIME_S, BODY), BODY, TIME_S))
    assert "webhook-signature is not that of this body" in error.message


def test_verify_refuses_parts_that_were_moved_over_the_separator() -> None:
    """Without the rule for ids, `a` at 1 with the body `2.x` would be `a.1` at 2 with the body `x`."""
    signed = sign(SECRET, "a", 1, b"2.x")
    forged = signed | {"webhook-id": "a.1", "webhook-timestamp": "2"}
    assert verify(SECRET, signed, b"2.x", 1) == "a"
    assert "webhook-id='a.1'" in refused(ErrorCode.ACCESS_DENIED, lambda: verify(SECRET, forged, b"x", 2)).message


@pytest.mark.parametrize("now_s", [TIME_S - 300, TIME_S, TIME_S + 300])
def test_verify_accepts_a_delivery_within_the_tolerance(now_s: int) -> None:
    assert verify(SECRET, sign(SECRET, ID, TIME_S, BODY), BODY, now_s) == ID
    assert limits.WEBHOOK_TOLERANCE_S == 300


@pytest.mark.parametrize(("now_s", "told"), [(TIME_S - 301, "301 s after"), (TIME_S + 301, "301 s before")])
def test_verify_refuses_a_delivery_out_of_its_time(now_s: int, told: str) -> None:
    headers = sign(SECRET, ID, TIME_S, BODY)
    error = refused(ErrorCode.ACCESS_DENIED, lambda: verify(SECRET, headers, BODY, now_s))
    assert f"webhook-timestamp={TIME_S} is {told} this machine's clock, which allows 300 s" in error.message
    assert verify(SECRET, headers, BODY, now_s, 301) == ID


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"webhook-id": None}, "the header webhook-id is missing"),
        ({"webhook-timestamp": None}, "the header webhook-timestamp is missing"),
        ({"webhook-signature": None}, "the header webhook-signature is missing"),
        ({"WEBHOOK-ID": ID}, "the header webhook-id comes twice"),
        ({"webhook-id": ""}, "webhook-id='': it must be 1 to 256 letters"),
        ({"webhook-id": "é"}, "webhook-id='é'"),
        ({"webhook-id": "x" * 257}, "webhook-id='xxx"),
        ({"webhook-timestamp": "1614265330.0"}, "'1614265330.0': it must be seconds since 1970"),
        ({"webhook-timestamp": "-5"}, "'-5': it must be"),
        ({"webhook-timestamp": "١٢"}, "it must be seconds"),
        ({"webhook-timestamp": "9" * 5_000}, "it must be seconds"),
        ({"webhook-signature": ""}, "has no signature of version v1"),
        ({"webhook-signature": SIGNATURE.replace("v1", "v1a")}, "has no signature of version v1"),
        ({"webhook-signature": SIGNATURE.removeprefix("v1,")}, "has no signature of version v1"),
        ({"webhook-signature": "v1,"}, "is not that of this body"),
        ({"webhook-signature": "v1,é"}, "is not that of this body"),
        ({"webhook-signature": "v1,\udc80"}, "is not that of this body"),
        ({"webhook-signature": SIGNATURE[:-1]}, "is not that of this body"),
    ],
)
def test_verify_names_what_is_wrong_with_the_headers(changes: dict[str, str | None], told: str) -> None:
    changed = {**sign(SECRET, ID, TIME_S, BODY), **changes}
    headers = {name: value for name, value in changed.items() if value is not None}
    error = refused(ErrorCode.ACCESS_DENIED, lambda: verify(SECRET, headers, BODY, TIME_S))
    assert told in error.message
    assert SIGNATURE.removeprefix("v1,") not in error.message
    assert SECRET.removeprefix("whsec_") not in error.message
    assert len(error.message) < 300


def test_verify_passes_over_signatures_of_other_versions() -> None:
    headers = sign(SECRET, ID, TIME_S, BODY) | {"webhook-signature": f"v1a,AAAA v2,x  v1,AAAA {SIGNATURE}"}
    assert verify(SECRET, headers, BODY, TIME_S) == ID


def test_verify_reads_headers_in_any_case_and_of_any_kind() -> None:
    message = Message()
    for name, value in sign(SECRET, ID, TIME_S, BODY).items():
        message[name.title()] = value
    message["Via"], message["via"] = "a", "b"
    assert verify(SECRET, message, BODY, TIME_S) == ID


def test_parse_secret_takes_base64_with_and_without_padding() -> None:
    key = bytes(range(25))
    padded = f"whsec_{base64.b64encode(key).decode()}"
    assert padded.endswith("=")
    assert parse_secret(padded) == parse_secret(padded.rstrip("=")) == (key,)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        f"whsec_{base64.b64encode(bytes(23)).decode()}",
        f"whsec_{base64.b64encode(bytes(65)).decode()}",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa-_",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSé",
        f"{SECRET}\n",
        f"{SECRET}  {OTHER}",
        f"{SECRET} {OTHER} {SECRET}",
        f"{SECRET} MfKQ9r8GKYqrTwjU",
    ],
)
def test_bad_secret_is_refused_without_being_shown(secret: str) -> None:
    error = refused(ErrorCode.INVALID_CONFIG, lambda: parse_secret(secret))
    assert "give whsec_ and the base64 of 24 to 64 random bytes" in error.message
    assert "MfKQ9" not in error.message
