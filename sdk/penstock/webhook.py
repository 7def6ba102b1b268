"""Receive the deliveries of a subscription at an HTTPS endpoint of yours.

    from penstock import webhook

    delivery = webhook.verify(secret, request.headers, request_body)
    for record in delivery.records:
        ...

A delivery is signed by the scheme of Standard Webhooks (standardwebhooks.com), so a library of theirs verifies it too.
In ordered mode it brings records of one partition, in order. It comes again, with the same `message_id`, until you
answer 2xx.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import as_sdk_error
from penstock.system import wall_clock_ms
from penstock_core.errors import PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SubscriptionId, TopicId
from penstock_core.limits import WEBHOOK_TOLERANCE_S
from penstock_core.push.targets.webhook import HeaderItems
from penstock_core.push.targets.webhook import sign as sign_body
from penstock_core.push.targets.webhook import verify as verify_body
from penstock_core.push.targets.webhook_body import (
    WebhookBody,
    WebhookRecord,
    decode_webhook_body,
    encode_webhook_body,
    webhook_message_id,
)

__all__ = ["WebhookDelivery", "WebhookRecord", "WebhookRequest", "failure_answer", "sign", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """The records of a verified request. In ordered mode they are of one partition, in order.

    `message_id` names exactly these records: the same in each attempt at them. Keep it once you have handled all of
    them, and you notice when they come again.
    """

    message_id: str
    subscription: str
    records: tuple[WebhookRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """The headers and the body of a delivery, as the service would send it."""

    headers: dict[str, str]
    body: bytes


def verify(
    secret: str, headers: HeaderItems, body: bytes, *, tolerance_s: int = WEBHOOK_TOLERANCE_S
) -> WebhookDelivery:
    """The delivery that the request brings, if the subscription's secret has signed it.

    `headers` is a mapping or an object with `items()`; the case of names does not matter. `body` is the request's bytes
    as they came. While you change the secret, give the old and the new one, separated by a space.

    Raises AccessDeniedError naming what is wrong, as for a time that is more than `tolerance_s` away from this
    machine's clock: answer 401. Raises InvalidError for a bad secret, and for a signed body that is no delivery.
    """
    try:
        message_id = verify_body(secret, headers, body, wall_clock_ms() // 1_000, tolerance_s)
        told = decode_webhook_body(body)
    except PenstockError as error:
        raise as_sdk_error(error) from None
    return WebhookDelivery(message_id=message_id, subscription=told.subscription, records=told.records)


def failure_answer(records: Iterable[WebhookRecord]) -> dict[str, Any]:
    """The JSON answer that names the records you could not handle. Send it with status 200.

    In ordered mode the records from the first of them on come again, in parallel mode exactly these.
    """
    failures = [{"partition": f"{record.topic}-{record.partition}", "offset": record.offset} for record in records]
    return {"batchItemFailures": [{"itemIdentifier": failure} for failure in failures]}


def sign(secret: str, records: Sequence[WebhookRecord], *, subscription: str = "test") -> WebhookRequest:
    """A delivery of these records, signed now. Use it to test your endpoint.

    Raises InvalidError for a bad secret.
    """
    places = [
        (PartitionKey(TopicId(record.topic), Partition(record.partition)), Offset(record.offset)) for record in records
    ]
    message_id = webhook_message_id(SubscriptionId(subscription), places)
    body = encode_webhook_body(WebhookBody(subscription=subscription, records=tuple(records)))
    try:
        headers = sign_body(secret, message_id, wall_clock_ms() // 1_000, body)
    except PenstockError as error:
        raise as_sdk_error(error) from None
    return WebhookRequest(headers={"content-type": "application/json", **headers}, body=body)
