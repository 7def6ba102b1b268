"""penstock.webhook: what an endpoint calls. tests/core/push has the signature and the body."""

import json
import time

import pytest
import standardwebhooks

from penstock import AccessDeniedError, InvalidError, webhook
from penstock.webhook import WebhookRecord
from penstock_core.push.targets.webhook import sign as sign_body

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
