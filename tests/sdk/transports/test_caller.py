"""The caller's name, which AWS STS tells for an embedded service."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from penstock import Admin, Producer
from penstock.errors import NotConfiguredError
from penstock.transports import embedded
from penstock.transports.embedded import EmbeddedService, EmbeddedTransport
from penstock_service.adapters.aws import Storage
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.topics.create_topic import create_topic

STORAGE = Storage(topics_table="t", log_table="l", groups_table="g", zones=(), archive="a", repair_queue_url=None)
ARN = "arn:aws:sts::1:assumed-role/app/i-1"


def refusal(status: int, code: str) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "GetCallerIdentity")


class Sts:
    """Answers by these errors, then by the ARN."""

    def __init__(self, errors: Iterator[Exception]) -> None:
        self._errors = errors

    def get_caller_identity(self) -> dict[str, str]:
        for error in self._errors:
            raise error
        return {"Arn": ARN}


def transport(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> EmbeddedTransport:
    sts = Sts(iter(errors))
    monkeypatch.setattr(boto3, "client", lambda *names, **options: sts)
    service = EmbeddedService(memory_instance(), lambda: embedded._caller(STORAGE))
    return EmbeddedTransport(lambda: service, lambda: embedded._signer(STORAGE))


@pytest.mark.parametrize(
    "passing",
    [EndpointConnectionError(endpoint_url="https://sts"), refusal(503, "Unavailable"), refusal(400, "Throttling")],
    ids=["no way", "unavailable", "throttled"],
)
def test_record_is_delivered_when_sts_answers_the_second_time(
    monkeypatch: pytest.MonkeyPatch, passing: Exception
) -> None:
    carrier = transport(monkeypatch, passing)
    create_topic(carrier.service.instance, "orders", 1, {})
    with Producer(transport=carrier, retry_backoff_ms=1) as producer:
        assert producer.send("orders", b"a").result().offset == 0
    assert carrier.service.principal_arn == ARN


@pytest.mark.parametrize("final", [NoCredentialsError(), refusal(403, "InvalidClientTokenId")], ids=["none", "wrong"])
def test_call_is_refused_when_there_are_no_valid_credentials(monkeypatch: pytest.MonkeyPatch, final: Exception) -> None:
    with pytest.raises(NotConfiguredError, match="AWS STS does not tell whose credentials these are"):
        Admin(transport=transport(monkeypatch, final)).list_topics()
