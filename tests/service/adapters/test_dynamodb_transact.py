"""A transaction on items that other writers hold, by DynamoDB's answers as botocore's own parser reads them."""

import json
from collections.abc import Sequence
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.botocore_drivers import BotocoreDriver
from penstock_service.adapters.dynamodb.client import Cancelled, DynamoDbClient
from tests.support.service import SteppedClock

ATTEMPTS = 10
CONFLICT, THROTTLE, CONDITION, NONE = "TransactionConflict", "ThrottlingError", "ConditionalCheckFailed", "None"
LOST = ReadTimeoutError(endpoint_url="https://dynamodb.test")
ITEMS = [{"Delete": {"TableName": "log", "Key": {"pk": {"S": name}}}} for name in "ab"]


class ScriptedDynamoDb:
    """DynamoDB as botocore's HTTP layer meets it: cancels with the reasons of the script, then commits."""

    def __init__(self, script: Sequence[Sequence[str] | Exception]) -> None:
        self.script = list(script)
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.clock = SteppedClock()
        client = boto3.client(
            "dynamodb",
            region_name="eu-west-1",
            endpoint_url="https://dynamodb.test",
            aws_access_key_id="k",
            aws_secret_access_key="s",
            config=Config(retries={"total_max_attempts": 1}),
        )
        client.meta.events.register("before-send.dynamodb.TransactWriteItems", self._answer)
        self.client = DynamoDbClient(BotocoreDriver(client), self.clock, Halves())

    def transact(self) -> None:
        """Transacts, and is not cancelled."""
        assert self.client.transact(ITEMS) is None

    def fails(self) -> PenstockError:
        with pytest.raises(PenstockError) as caught:
            self.transact()
        return caught.value

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        body = json.loads(request.body)
        self.tokens.append(body.pop("ClientRequestToken"))
        self.bodies.append(body)
        outcome = self.script.pop(0) if self.script else None
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            return _response(200, {})
        reasons = [{"Code": code, "Message": code} if code != NONE else {"Code": code} for code in outcome]
        message = (
            f"Transaction cancelled, please refer cancellation reasons for specific reasons [{', '.join(outcome)}]"
        )
        name = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
        return _response(400, {"__type": name, "Message": message, "CancellationReasons": reasons})


class Halves:
    """Entropy whose every number is half of its range."""

    def random_bytes(self, count: int) -> bytes:
        return b"\x80" + bytes(count - 1)


class _Body:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Any:
        yield self._body


def _response(status: int, document: dict[str, Any]) -> AWSResponse:
    headers = {"Content-Type": "application/x-amz-json-1.0"}
    return AWSResponse("https://dynamodb.test", status, headers, _Body(json.dumps(document).encode()))


@pytest.mark.parametrize("reasons", [(NONE, CONFLICT), (CONFLICT, CONFLICT), (NONE, THROTTLE), (THROTTLE, CONFLICT)])
def test_transaction_is_tried_again_while_others_are_at_its_items(reasons: Sequence[str]) -> None:
    for failures in range(1, ATTEMPTS):
        dynamodb = ScriptedDynamoDb([reasons] * failures)
        dynamodb.transact()
        assert len(dynamodb.bodies) == failures + 1
        assert all(body == dynamodb.bodies[0] for body in dynamodb.bodies)
        assert dynamodb.clock.sleeps == [min(10.0 * 2**attempt, 200.0) / 2 for attempt in range(failures)]


def test_transaction_is_throttled_and_changed_nothing_when_others_never_let_go() -> None:
    dynamodb = ScriptedDynamoDb([(NONE, CONFLICT)] * 50)
    error = dynamodb.fails()
    assert (error.code, error.maybe_applied) == (ErrorCode.THROTTLED, False)
    assert "nothing was changed" in error.message
    assert len(dynamodb.bodies) == ATTEMPTS
    assert len(dynamodb.clock.sleeps) == ATTEMPTS - 1


def test_repeats_are_told_apart_by_conditions_and_not_by_a_token_that_would_expire() -> None:
    dynamodb = ScriptedDynamoDb([LOST, (NONE, CONFLICT)])
    dynamodb.transact()
    assert len(set(dynamodb.tokens)) == len(dynamodb.tokens) == 3


@pytest.mark.parametrize(
    "reasons", [(CONDITION, NONE), (NONE, CONDITION), (CONFLICT, CONDITION), (CONDITION, THROTTLE)]
)
def test_failed_condition_ends_it_at_once_for_the_caller(reasons: Sequence[str]) -> None:
    dynamodb = ScriptedDynamoDb([reasons])
    assert dynamodb.client.transact(ITEMS) == Cancelled(codes=tuple(reasons))
    assert len(dynamodb.bodies) == 1


@pytest.mark.parametrize("script", [[LOST], [(NONE, CONFLICT), LOST]])
def test_conflicts_after_a_lost_answer_are_maybe_applied(script: list[Any]) -> None:
    error = ScriptedDynamoDb([*script, *[(NONE, CONFLICT)] * 50]).fails()
    assert (error.code, error.maybe_applied) == (ErrorCode.THROTTLED, True)
    assert "may have been applied" in error.message


def test_condition_after_a_lost_answer_waits_until_no_item_is_undecided() -> None:
    dynamodb = ScriptedDynamoDb([LOST, (CONFLICT, CONDITION), (CONFLICT, CONDITION), (CONDITION, CONDITION)])
    assert dynamodb.client.transact(ITEMS) == Cancelled(codes=(CONDITION, CONDITION), maybe_applied=True)
    assert len(dynamodb.bodies) == 4


@pytest.mark.parametrize("script", [[], [LOST]])
def test_reason_that_is_no_condition_is_unavailable_and_never_escapes_as_botocores(script: list[Any]) -> None:
    dynamodb = ScriptedDynamoDb([*script, (NONE, "AccessDenied")])
    error = dynamodb.fails()
    assert (error.code, error.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, bool(script))
    assert len(dynamodb.bodies) == len(script) + 1


@pytest.mark.parametrize("reason", ["ValidationError", "ItemCollectionSizeLimitExceeded"])
@pytest.mark.parametrize("script", [[], [LOST]])
def test_transaction_that_is_not_valid_is_refused_for_good(script: list[Any], reason: str) -> None:
    dynamodb = ScriptedDynamoDb([*script, (NONE, reason)])
    error = dynamodb.fails()
    assert (error.code, error.maybe_applied) == (ErrorCode.TRANSACTION_REFUSED, bool(script))
    assert not error.code.is_retriable
    assert f"({reason})" in error.message
    assert len(dynamodb.bodies) == len(script) + 1


def test_lost_answers_only_are_maybe_applied() -> None:
    error = ScriptedDynamoDb([LOST] * 50).fails()
    assert (error.code, error.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
