"""When a client asks for its next token, and which texts are none.

penstock.webhook: what an endpoint calls. tests/core/push has the signature and the body.
"""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from penstock import AccessDeniedError, InvalidError, NotConfiguredError, webhook
from penstock.tokens import BearerTokens, expiry_ms, token_of_file, token_of_variable
from penstock.webhook import WebhookRecord
from penstock_core.limits import SDK_TOKEN_LENGTH_MAX
from penstock_core.push.targets.webhook import sign as sign_body

NOW_MS = 1_790_000_000_000


def jwt(end_s: object) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": end_s}).encode()).rstrip(b"=").decode()
    return f"e30.{claims}.c2ln"


class Issuer:
    """Gives a token that lives for so many seconds, and counts."""

    def __init__(self, lifetime_s: int | None) -> None:
        self.now_ms, self.asked, self._lifetime_s = NOW_MS, 0, lifetime_s

    def __call__(self) -> str:
        self.asked += 1
        end = None if self._lifetime_s is None else self.now_ms // 1_000 + self._lifetime_s
        return f"{jwt(end)}{self.asked}"


@pytest.mark.parametrize(("lifetime_s", "kept_s"), [(3_600, 3_540), (90, 45), (None, 60), (-5, 0)])
def test_token_is_taken_anew_before_it_ends(lifetime_s: int | None, kept_s: int) -> None:
    issuer = Issuer(lifetime_s)
    tokens = BearerTokens(issuer, lambda: issuer.now_ms)
    first = tokens.current()
    if kept_s:
        issuer.now_ms = NOW_MS + kept_s * 1_000 - 1
        assert tokens.current() == first
    issuer.now_ms = NOW_MS + kept_s * 1_000
    assert tokens.current() != first
    assert issuer.asked == 2


def test_refused_token_is_taken_anew_once_by_all_threads() -> None:
    issuer = Issuer(3_600)
    tokens = BearerTokens(issuer, lambda: NOW_MS)
    first = tokens.current()
    assert tokens.renewed(first)
    assert tokens.renewed(first)  # a second thread finds the one that the first has taken
    assert issuer.asked == 2


@pytest.mark.parametrize(
    "given",
    ["", " ", "a b", "a\r\nX-Evil: 1", "a\n\nb", "é", "Bearer a", "a" * (SDK_TOKEN_LENGTH_MAX + 1), "\x00", None, b"a"],
)
def test_text_that_is_no_token_is_never_sent(given: str) -> None:
    with pytest.raises(NotConfiguredError, match="gave no token"):
        BearerTokens(lambda: given).current()


def test_failure_of_the_provider_is_told_with_its_cause() -> None:
    def fail() -> str:
        raise KeyError("no login")

    with pytest.raises(NotConfiguredError, match="KeyError") as failed:
        BearerTokens(fail).current()
    assert isinstance(failed.value.__cause__, KeyError)


def test_file_is_read_at_each_call(tmp_path: Path) -> None:
    read = token_of_file(tmp_path / "token")
    with pytest.raises(NotConfiguredError, match="cannot be read"):
        read()
    for text in ("one", "two"):
        (tmp_path / "token").write_text(f"{text}\n")
        assert BearerTokens(read).current() == text
    (tmp_path / "token").write_bytes(b"\xff" * 9)
    with pytest.raises(NotConfiguredError, match="cannot be read"):
        read()
    (tmp_path / "token").write_text("a" * 100_000)
    with pytest.raises(NotConfiguredError, match="gave no token"):
        BearerTokens(read).current()


def test_variable_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Callable[[], str] = token_of_variable()
    monkeypatch.setenv("PENSTOCK_TOKEN", "one")
    assert read() == "one"
    monkeypatch.delenv("PENSTOCK_TOKEN")
    with pytest.raises(NotConfiguredError, match="not set any more"):
        read()


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: f"a.{base64.urlsafe_b64encode(data).decode()}.b"))
def test_end_of_anything_is_a_time_or_none(text: str) -> None:
    assert expiry_ms(text) is None or isinstance(expiry_ms(text), int)


@pytest.mark.parametrize("end", [True, "1790000000", -1, 1e300, [], {}])
def test_end_that_is_no_time_counts_as_none(end: object) -> None:
    assert expiry_ms(jwt(end)) in (None, 1_000)


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RECORDS = (
    WebhookRecord("orders", 2, 15, 1_790_000_000_000, b"c1", b"first", (("type", b"order"),), 1),
    WebhookRecord("orders", 2, 16, 1_790_000_000_001, None, None, (), 1),
)


def test_verify_gives_the_records_that_sign_signed() -> None:
    request = webhook.sign(SECRET, RECORDS, subscription="packing")
    delivery = webhook.verify(SECRET, request.headers, request.body)
    assert (delivery.subscription, delivery.records) == ("packing", RECORDS)
    assert delivery.message_id == request.headers["webhook-id"]


def test_message_id_is_the_same_in_each_attempt_at_the_same_records() -> None:
    again = [record._replace(attempt=2) for record in RECORDS]
    ids = [webhook.sign(SECRET, records).headers["webhook-id"] for records in (RECORDS, again, RECORDS[:1])]
    assert ids[0] == ids[1] != ids[2]


def test_a_library_of_standard_webhooks_takes_a_delivery() -> None:
    request = webhook.sign(SECRET, RECORDS)
    document = standardwebhooks.Webhook(SECRET).verify(request.body, request.headers)
    assert [record["offset"] for record in document["records"]] == [15, 16]


def test_verify_refuses_a_delivery_that_was_changed() -> None:
    request = webhook.sign(SECRET, RECORDS)
    with pytest.raises(AccessDeniedError, match="is not that of this body"):
        webhook.verify(SECRET, request.headers, request.body.replace(b'"offset":15', b'"offset":14'))


def test_verify_refuses_a_replay_after_the_tolerance() -> None:
    body = webhook.sign(SECRET, RECORDS).body
    headers = sign_body(SECRET, "msg_1", int(time.time()) - 400, body)
    with pytest.raises(AccessDeniedError, match="a replay, or a clock is wrong"):
        webhook.verify(SECRET, headers, body)
    assert webhook.verify(SECRET, headers, body, tolerance_s=1_000).records == RECORDS


def test_verify_refuses_a_signed_body_that_is_no_delivery() -> None:
    with pytest.raises(InvalidError, match="not the body of a Penstock delivery"):
        webhook.verify(SECRET, sign_body(SECRET, "msg_1", int(time.time()), b"{}"), b"{}")


def test_bad_secret_is_an_invalid_error_on_both_sides() -> None:
    request = webhook.sign(SECRET, RECORDS)
    with pytest.raises(InvalidError, match="give whsec_"):
        webhook.verify("secret", request.headers, request.body)
    with pytest.raises(InvalidError, match="give whsec_"):
        webhook.sign("secret", RECORDS)


def test_failure_answer_has_the_form_of_a_functions_answer() -> None:
    assert json.dumps(webhook.failure_answer(RECORDS[1:])) == (
        '{"batchItemFailures": [{"itemIdentifier": {"partition": "orders-2", "offset": 16}}]}'
    )
    assert webhook.failure_answer([]) == {"batchItemFailures": []}
