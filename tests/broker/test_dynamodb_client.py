"""Which failures of DynamoDB are tried again, how often, and what they mean to the caller."""

from collections.abc import Sequence
from typing import Any

import pytest
from botocore.exceptions import (
    ChecksumError,
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
)

from penstock_broker.adapters.dynamodb.client import DynamoDbClient
from penstock_broker.adapters.dynamodb.log import DynamoDbLogIndex
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, SegmentId, TopicId
from penstock_core.index import EMPTY_HEAD, appended
from penstock_core.items import head_item
from penstock_core.keys import PartitionKey
from penstock_core.ref import Ref
from tests.broker.setting import SteppedClock

ATTEMPTS = 5
URL = "https://dynamodb.test"
KEY = PartitionKey(TopicId("t1"), Partition(0))
REF = Ref(
    segment_id=SegmentId(bytes(16)),
    position=0,
    length=70,
    offset_span=1,
    record_count=1,
    max_timestamp_ms=1,
    zones=7,
)


def _refusal(code: str, status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "UpdateItem")


THROTTLES = [
    _refusal(code) for code in ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")
]
CONFLICTS = [_refusal("TransactionConflictException"), _refusal("TransactionInProgressException")]
NEVER_SENT = [ConnectTimeoutError(endpoint_url=URL), EndpointConnectionError(endpoint_url=URL)]
AMBIGUOUS = [
    ReadTimeoutError(endpoint_url=URL),
    ConnectionClosedError(endpoint_url=URL),
    HTTPClientError(error="broken"),
    ChecksumError(checksum_type="crc32", expected_checksum="1", actual_checksum="2"),
    _refusal("InternalServerError", 500),
    _refusal("ServiceUnavailable", 503),
]
REFUSED = [_refusal("ValidationException"), _refusal("AccessDeniedException"), _refusal("ResourceNotFoundException")]


class _FakeDriver:
    """Every operation answers or raises what is next in its script; then it answers."""

    def __init__(self, script: Sequence[Any], answer: Any) -> None:
        self._script = list(script)
        self._answer = answer
        self.calls: list[dict[str, Any]] = []

    def __getattr__(self, _operation: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append(arguments)
            outcome = self._script.pop(0) if self._script else self._answer
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return call


class _Chance:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def random_bytes(self, count: int) -> bytes:
        return self._data * count


def _client(
    script: Sequence[Any], answer: Any = "answer", chance: bytes = b"\x80"
) -> tuple[DynamoDbClient, _FakeDriver, SteppedClock]:
    driver, clock = _FakeDriver(script, answer), SteppedClock()
    return DynamoDbClient(driver, clock, _Chance(chance)), driver, clock


def _name(error: Exception) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


@pytest.mark.parametrize("is_repeatable", [True, False])
@pytest.mark.parametrize("error", [*THROTTLES, *CONFLICTS, *NEVER_SENT], ids=_name)
def test_call_is_repeated_when_dynamodb_surely_did_not_apply_it(error: Exception, is_repeatable: bool) -> None:
    for failures in range(1, ATTEMPTS):
        client, driver, clock = _client([error] * failures)
        assert client.call("update_item", is_repeatable=is_repeatable, TableName="log") == "answer"
        assert driver.calls == [{"TableName": "log"}] * (failures + 1)
        assert len(clock.sleeps) == failures


@pytest.mark.parametrize("error", AMBIGUOUS, ids=_name)
def test_call_is_never_repeated_and_maybe_applied_when_a_write_may_have_been(error: Exception) -> None:
    client, driver, _ = _client([error])
    with pytest.raises(PenstockError) as caught:
        client.call("update_item", is_repeatable=False)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    assert len(driver.calls) == 1


@pytest.mark.parametrize("error", AMBIGUOUS, ids=_name)
def test_call_is_repeated_when_its_answer_is_lost_and_it_may_be_applied_twice(error: Exception) -> None:
    client, driver, _ = _client([error] * (ATTEMPTS - 1))
    assert client.call("query", is_repeatable=True) == "answer"
    assert len(driver.calls) == ATTEMPTS


def test_call_is_maybe_applied_when_a_lost_answer_follows_a_refusal() -> None:
    client, driver, _ = _client([THROTTLES[0], NEVER_SENT[0], AMBIGUOUS[0]])
    with pytest.raises(PenstockError) as caught:
        client.call("update_item", is_repeatable=False)
    assert caught.value.maybe_applied
    assert len(driver.calls) == 3


@pytest.mark.parametrize("is_repeatable", [True, False])
@pytest.mark.parametrize("error", [*THROTTLES, *CONFLICTS, *NEVER_SENT], ids=_name)
def test_call_ends_after_five_attempts_and_was_not_applied(error: Exception, is_repeatable: bool) -> None:
    client, driver, clock = _client([error] * 50)
    with pytest.raises(PenstockError) as caught:
        client.call("update_item", is_repeatable=is_repeatable)
    expected = ErrorCode.THROTTLED if error in THROTTLES else ErrorCode.STORAGE_UNAVAILABLE
    assert (caught.value.code, caught.value.maybe_applied) == (expected, False)
    assert "update_item" in caught.value.message
    assert len(driver.calls) == ATTEMPTS
    assert len(clock.sleeps) == ATTEMPTS - 1


@pytest.mark.parametrize("error", AMBIGUOUS, ids=_name)
def test_write_that_may_be_repeated_is_maybe_applied_when_it_fails_for_good(error: Exception) -> None:
    client, driver, _ = _client([error] * 50)
    with pytest.raises(PenstockError) as caught:
        client.call("put_item", is_repeatable=True)
    assert caught.value.maybe_applied
    assert len(driver.calls) == ATTEMPTS


def test_write_is_maybe_applied_when_it_is_throttled_after_a_lost_answer() -> None:
    client, _, _ = _client([AMBIGUOUS[0], *[THROTTLES[0]] * 50])
    with pytest.raises(PenstockError) as caught:
        client.call("put_item", is_repeatable=True)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.THROTTLED, True)
    assert "nothing was changed" not in caught.value.message


@pytest.mark.parametrize("error", AMBIGUOUS, ids=_name)
def test_read_is_not_maybe_applied_when_it_fails_for_good(error: Exception) -> None:
    client, driver, _ = _client([error] * 50)
    with pytest.raises(PenstockError) as caught:
        client.call("get_item", is_repeatable=True)
    assert not caught.value.maybe_applied
    assert len(driver.calls) == ATTEMPTS


@pytest.mark.parametrize("error", REFUSED, ids=_name)
def test_call_is_not_repeated_when_the_request_itself_is_refused(error: Exception) -> None:
    client, driver, _ = _client([error])
    with pytest.raises(PenstockError) as caught:
        client.call("update_item", is_repeatable=True)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, False)
    assert len(driver.calls) == 1


@pytest.mark.parametrize("code", ["ConditionalCheckFailedException", "TransactionCanceledException"])
def test_call_leaves_conditions_to_the_caller(code: str) -> None:
    client, driver, _ = _client([_refusal(code)])
    with pytest.raises(ClientError):
        client.call("update_item", is_repeatable=True)
    assert len(driver.calls) == 1


@pytest.mark.parametrize(("chance", "pauses_ms"), [(b"\x00", [0, 0, 0, 0]), (b"\xff", [10, 20, 40, 80])])
def test_call_pauses_with_full_jitter_between_nothing_and_a_doubling_bound(
    chance: bytes, pauses_ms: list[float]
) -> None:
    client, _, clock = _client([THROTTLES[0]] * (ATTEMPTS - 1), chance=chance)
    client.call("update_item", is_repeatable=False)
    assert clock.sleeps == pytest.approx(pauses_ms, rel=1e-4)
    assert all(slept <= bound for slept, bound in zip(clock.sleeps, pauses_ms, strict=True))


def _log(script: Sequence[Any], answer: Any) -> tuple[DynamoDbLogIndex, _FakeDriver]:
    client, driver, _ = _client(script, answer)
    return DynamoDbLogIndex(client, "log"), driver


def test_append_is_one_call_however_its_answer_is_lost() -> None:
    for error in AMBIGUOUS:
        log, driver = _log([error], None)
        with pytest.raises(PenstockError) as caught:
            log.append(KEY, REF, 0)
        assert caught.value.maybe_applied
        assert len(driver.calls) == 1


def test_append_is_sent_again_when_a_roll_held_the_head_for_a_moment() -> None:
    head = appended(EMPTY_HEAD, REF)
    log, driver = _log([CONFLICTS[0]] * 2, {"Attributes": head_item(KEY, head)})
    assert log.append(KEY, REF, 0) == head
    assert len(driver.calls) == 3


def test_heads_asks_again_for_what_was_left_unprocessed() -> None:
    keys = [PartitionKey(TopicId("t1"), Partition(number)) for number in range(3)]
    items = [head_item(key, EMPTY_HEAD) for key in keys]
    left = {"log": {"Keys": [{"pk": items[2]["pk"], "sk": items[2]["sk"]}]}}
    log, driver = _log(
        [{"Responses": {"log": items[:2]}, "UnprocessedKeys": left}, {"Responses": {"log": items[2:]}}], None
    )
    assert set(log.heads(keys)) == set(keys)
    assert driver.calls[1]["RequestItems"] == left


def test_heads_is_throttled_when_keys_stay_unprocessed() -> None:
    keys = [PartitionKey(TopicId("t1"), Partition(number)) for number in range(2)]
    left = {"log": {"Keys": ["all"]}}
    log, driver = _log([], {"Responses": {}, "UnprocessedKeys": left})
    with pytest.raises(PenstockError) as caught:
        log.heads(keys)
    assert caught.value.code is ErrorCode.THROTTLED
    assert len(driver.calls) == ATTEMPTS
