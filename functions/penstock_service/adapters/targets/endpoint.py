"""HTTPS endpoints as targets: signed deliveries (push/targets/webhook.py)."""

from penstock_core.errors import PenstockError
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch, PushRecord
from penstock_core.push.targets.kafka_event import decode_answer
from penstock_core.push.targets.queue_message import common_context
from penstock_core.push.targets.target import HttpsTarget
from penstock_core.push.targets.webhook import sign
from penstock_core.push.targets.webhook_body import WebhookBody, WebhookRecord, encode_webhook_body, webhook_message_id
from penstock_service.adapters.https_target import HttpAnswer, HttpsEndpoints
from penstock_service.ports.runtime import Clock

_AWAY = (401, 403, 404, 410, 429)
_BROKEN = (408,)
_SHOWN_BYTES = 200  # of an answer's body


class Endpoints:
    """Sends a delivery as one signed request, and reads which records the endpoint could not handle."""

    def __init__(self, endpoints: HttpsEndpoints, clock: Clock) -> None:
        self._endpoints = endpoints
        self._clock = clock

    def check(self, target: HttpsTarget) -> None:
        """Resolves the host, and sends nothing. Raises INVALID_CONFIG for a host without public addresses."""
        self._endpoints.check(target.url)

    def deliver(self, target: HttpsTarget, batch: PushBatch, timeout_ms: int) -> Answer:
        """One POST. A redirect is an outage: the endpoint has moved, which tells nothing of the records."""
        body = encode_webhook_body(
            WebhookBody(
                subscription=batch.subscription,
                records=tuple(_webhook_record(record, batch.attempt) for record in batch.records),
            )
        )
        message_id = webhook_message_id(batch.subscription_id, [record.place for record in batch.records])
        try:
            headers = sign(target.secret, message_id, self._clock.now_ms() // 1_000, body)
            headers |= {"content-type": "application/json", **common_context(batch.records)}
            answer = self._endpoints.post(target.url, headers, body, timeout_ms)
        except PenstockError as error:
            return Failed(failure=Failure.BROKEN if error.maybe_applied else Failure.AWAY, error=error.message)
        if 200 <= answer.status < 300:
            return decode_answer(answer.body, batch, is_json=False)
        return _failed(answer)


def _webhook_record(record: PushRecord, attempt: int) -> WebhookRecord:
    content = record.record
    return WebhookRecord(
        topic=record.topic,
        partition=record.key.partition,
        offset=content.offset,
        timestamp_ms=content.timestamp,
        key=content.key,
        value=content.value,
        headers=tuple(content.headers),
        attempt=attempt,
    )


def _failed(answer: HttpAnswer) -> Failed:
    body = answer.body[:_SHOWN_BYTES].decode(errors="replace").strip()
    return Failed(failure=_failure(answer.status), error=f"status {answer.status}{': ' if body else ''}{body}")


def _failure(status: int) -> Failure:
    if status in _BROKEN or status >= 500:
        return Failure.BROKEN
    return Failure.AWAY if status in _AWAY or status < 400 else Failure.REFUSAL
