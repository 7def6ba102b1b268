"""Pushes to another stage: signed under a role of it, and whatever it refuses is an outage."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.mirror.push import PushAnswer
from penstock_core.push.batch import Failed, Failure
from penstock_core.push.targets.target import StageTarget
from penstock_core.records import frame
from penstock_service.adapters.https_target import HttpAnswer
from penstock_service.adapters.targets.stage import MirrorRoles, RoleKeys, Stages
from tests.support.mirrors import a_push
from tests.support.refusals import refused
from tests.support.service import SteppedClock

ROLE = "arn:aws:iam::123456789012:role/mirror"
OWN = "arn:aws:iam::111122223333:role/prod-targets-eu-west-1"
TARGET = StageTarget(url="https://b.example", region="eu-central-1", role=ROLE)


class Endpoint:
    """HttpsEndpoints with one answer."""

    def __init__(self, answer: HttpAnswer | PenstockError) -> None:
        self.answer = answer
        self.requests: list[tuple[str, Mapping[str, str], bytes]] = []

    def check(self, url: str) -> None:
        self.requests.append((url, {}, b""))

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> HttpAnswer:
        assert timeout_ms == 5_000
        self.requests.append((url, headers, body))
        if isinstance(self.answer, PenstockError):
            raise self.answer
        return self.answer


class Sts:
    """STS with the one call that the adapter makes."""

    def __init__(self, is_denied: bool = False) -> None:
        self.calls: list[dict[str, Any]] = []
        self.is_denied = is_denied

    def assume_role(self, **request: Any) -> dict[str, Any]:
        self.calls.append(request)
        if self.is_denied:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")
        ends = datetime.fromtimestamp(0, UTC) + timedelta(hours=2)
        return {"Credentials": {"AccessKeyId": "AKIA", "SecretAccessKey": "s", "SessionToken": "t", "Expiration": ends}}


def stages(answer: HttpAnswer | PenstockError, sts: Sts | None = None) -> tuple[Stages, Endpoint, SteppedClock]:
    endpoint, clock = Endpoint(answer), SteppedClock()
    roles = MirrorRoles(sts=lambda: sts or Sts(), external_id=OWN)
    return Stages(endpoint, clock, RoleKeys(roles, clock).of), endpoint, clock  # type: ignore[arg-type]


def answered(**fields: Any) -> HttpAnswer:
    return HttpAnswer(
        status=200, body=json.dumps({"next_offset": 7, "topic_id": "0b", "diverged": None, **fields}).encode()
    )


def test_push_is_one_signed_post_under_the_role() -> None:
    sts = Sts()
    found, endpoint, clock = stages(answered(), sts)
    assert found.push(TARGET, a_push("a"), 5_000) == PushAnswer(next_offset=Offset(7), topic_id="0b")
    assert found.push(TARGET, a_push("a"), 5_000) == PushAnswer(next_offset=Offset(7), topic_id="0b")
    [call] = sts.calls
    assert (call["RoleArn"], call["ExternalId"]) == (ROLE, OWN)
    url, headers, body = endpoint.requests[-1]
    assert url == "https://b.example/v1/mirrors/dr/append"
    assert "/eu-central-1/execute-api/aws4_request" in headers["authorization"]
    assert headers["x-amz-security-token"] == "t"
    header, data = frame.decode(body)
    assert (header["partition"], bytes(data)) == (0, a_push("a").data)
    clock.time_ms += 2 * 3_600_000
    found.push(TARGET, a_push("a"), 5_000)
    assert len(sts.calls) == 2, "a session is renewed before it ends"


def test_answer_of_a_log_that_diverged_is_told() -> None:
    found, _, _ = stages(answered(diverged="because"))
    answer = found.push(TARGET, a_push(), 5_000)
    assert answer == PushAnswer(next_offset=Offset(7), topic_id="0b", diverged="because")


@pytest.mark.parametrize(
    "answer",
    [
        lambda: HttpAnswer(status=409, body=b'{"error": {"code": "MIRROR_ENDED"}}'),
        lambda: HttpAnswer(status=503, body=b""),
        lambda: HttpAnswer(status=200, body=b"<html>"),
        lambda: HttpAnswer(status=200, body=b"{}"),
        lambda: PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "no answer", maybe_applied=True),
    ],
    ids=["409", "503", "html", "no field", "no answer"],
)
def test_whatever_the_stage_refuses_is_an_outage(answer: Callable[[], HttpAnswer | PenstockError]) -> None:
    found, _, _ = stages(answer())
    failed = found.push(TARGET, a_push(), 5_000)
    assert isinstance(failed, Failed)
    assert failed.failure is Failure.AWAY
    assert failed.error


def test_role_that_does_not_let_this_stage_in_is_told() -> None:
    found, _, _ = stages(answered(), Sts(is_denied=True))
    error = refused(ErrorCode.ACCESS_DENIED, lambda: found.check(TARGET))
    assert "mirror_roles" in error.message
    assert OWN in error.message
    assert isinstance(found.push(TARGET, a_push(), 5_000), Failed)


@pytest.mark.parametrize("target", [StageTarget(url="https://b"), StageTarget(url="https://b", role=ROLE)])
def test_stage_on_aws_needs_role_and_region(target: StageTarget) -> None:
    found, _, _ = stages(answered(), Sts())
    refused(ErrorCode.INVALID_CONFIG, lambda: found.check(target))


def test_check_resolves_the_host_and_assumes_the_role() -> None:
    sts = Sts()
    found, endpoint, _ = stages(answered(), sts)
    found.check(TARGET)
    assert (len(sts.calls), endpoint.requests[0][0]) == (1, "https://b.example")
