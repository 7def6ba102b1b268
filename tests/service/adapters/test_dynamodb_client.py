"""The client's policy: failures that it tries again, how often, and what they mean to the caller."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import STORAGE_REPEAT_MS_MAX
from penstock_core.log.index import EMPTY_HEAD, appended
from penstock_core.storage.head_item import head_item
from penstock_service.adapters.dynamodb.client import Applied, Cancelled, DynamoDbClient, Refused
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, NeverSentError, NoAnswerError
from penstock_service.adapters.dynamodb.log import DynamoDbLogIndex
from tests.support.refs import ref_at
from tests.support.service import SteppedClock

ATTEMPTS = 5
CONDITION = "ConditionalCheckFailed"
KEY = PartitionKey(TopicId("t1"), Partition(0))
REF = ref_at(1)


THROTTLES = [
    AnsweredError(code)
    for code in ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")
]
CONFLICTS = [AnsweredError("TransactionConflictException"), AnsweredError("TransactionInProgressException")]
NEVER_SENT = [NeverSentError("no way")]
AMBIGUOUS = [
    NoAnswerError("broken"),
    AnsweredError("InternalServerError", status=500),
    AnsweredError("ServiceUnavailable", status=503),
]
NEVER_VALID = [AnsweredError("ValidationException"), AnsweredError("ItemCollectionSizeLimitExceededException")]
REFUSED = [*NEVER_VALID, AnsweredError("AccessDeniedException"), AnsweredError("ResourceNotFoundException")]


class _ScriptedDriver:
    """Every operation answers or raises the next outcome of the script, and `answer` after the last."""

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


class _FixedEntropy:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def random_bytes(self, count: int) -> bytes:
        return self._data * count


def _client(
    script: Sequence[Any], answer: Any = "answer", chance: bytes = b"\x80"
) -> tuple[DynamoDbClient, _ScriptedDriver, SteppedClock]:
    driver, clock = _ScriptedDriver(script, answer), SteppedClock()
    return DynamoDbClient(driver, clock, _FixedEntropy(chance)), driver, clock


def _name(error: Exception) -> str:
    return error.code if isinstance(error, AnsweredError) else type(error).__name__


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


@pytest.mark.parametrize("operation", ["update_item", "get_item"])
def test_write_is_not_sent_again_when_the_machine_slept_since_its_first_attempt(operation: str) -> None:
    client, driver, clock = _client([AMBIGUOUS[0]])

    def sleep_on() -> None:
        clock.time_ms += STORAGE_REPEAT_MS_MAX

    clock.on_sleep = sleep_on
    if operation == "get_item":
        assert client.call(operation, is_repeatable=True) == "answer"
    else:
        with pytest.raises(PenstockError) as caught:
            client.call(operation, is_repeatable=True)
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
        assert len(driver.calls) == 1


def test_transaction_is_not_sent_again_when_the_machine_slept_since_its_first_attempt() -> None:
    conflict = AnsweredError("TransactionCanceledException", reasons=[{"Code": "TransactionConflict"}])
    client, driver, clock = _client([conflict] * 50)

    def sleep_on() -> None:
        clock.time_ms += STORAGE_REPEAT_MS_MAX

    clock.on_sleep = sleep_on
    with pytest.raises(PenstockError) as caught:
        client.transact([{}])
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.THROTTLED, False)
    assert len(driver.calls) == 1


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
    expected = ErrorCode.STORAGE_UNAVAILABLE if error in NEVER_SENT else ErrorCode.THROTTLED
    assert (caught.value.code, caught.value.maybe_applied) == (expected, False)
    assert "update_item" in caught.value.message
    assert len(driver.calls) == ATTEMPTS
    assert len(clock.sleeps) == ATTEMPTS - 1


@pytest.mark.parametrize("error", CONFLICTS, ids=_name)
def test_conditional_write_is_throttled_and_unchanged_when_transactions_hold_its_item(error: Exception) -> None:
    client, _, _ = _client([error] * 50)
    with pytest.raises(PenstockError) as caught:
        client.conditional("update_item", is_repeatable=False)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.THROTTLED, False)
    assert "transactions hold the item" in caught.value.message


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
    assert (caught.value.code.is_retriable, caught.value.maybe_applied) == (error not in NEVER_VALID, False)
    assert len(driver.calls) == 1


@pytest.mark.parametrize("error", NEVER_VALID, ids=_name)
@pytest.mark.parametrize("make", ["call", "conditional", "transact", "transact_once"])
def test_request_that_is_not_valid_fails_for_good(error: Exception, make: str) -> None:
    client, driver, _ = _client([error])
    attempts: dict[str, Callable[[], object]] = {
        "call": lambda: client.call("put_item", is_repeatable=True),
        "conditional": lambda: client.conditional("update_item", is_repeatable=True),
        "transact": lambda: client.transact([]),
        "transact_once": lambda: client.transact_once([], is_repeatable=True),
    }
    with pytest.raises(PenstockError) as caught:
        attempts[make]()
    assert caught.value.code in (ErrorCode.STORAGE_REFUSED, ErrorCode.TRANSACTION_REFUSED)
    assert not caught.value.code.is_retriable
    assert len(driver.calls) == 1


def test_conditional_answers_the_attributes_when_it_was_applied() -> None:
    client, driver, _ = _client([], {"Attributes": {"pk": {"S": "a"}}})
    assert client.conditional("update_item", is_repeatable=False, TableName="log") == Applied(
        attributes={"pk": {"S": "a"}}
    )
    assert driver.calls == [{"TableName": "log"}]


def test_conditional_is_refused_with_the_stored_item_when_its_condition_fails() -> None:
    stored = {"pk": {"S": "a"}}
    for item in (stored, None):
        client, driver, _ = _client([AnsweredError("ConditionalCheckFailedException", item=item)])
        assert client.conditional("update_item", is_repeatable=True) == Refused(item=item)
        assert len(driver.calls) == 1


@pytest.mark.parametrize("error", AMBIGUOUS, ids=_name)
def test_conditional_is_maybe_applied_when_its_answer_is_lost(error: Exception) -> None:
    client, driver, _ = _client([error])
    with pytest.raises(PenstockError) as caught:
        client.conditional("update_item", is_repeatable=False)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    assert len(driver.calls) == 1


def test_transact_once_answers_the_reasons_when_it_is_cancelled() -> None:
    reasons = [{"Code": "None"}, {}, {"Code": "TransactionConflict"}, {"Code": CONDITION}]
    cancelled = AnsweredError("TransactionCanceledException", reasons=reasons)
    client, driver, _ = _client([cancelled])
    found = client.transact_once([], is_repeatable=True)
    assert found == Cancelled(codes=("None", "None", "TransactionConflict", CONDITION))
    assert [found.is_refused(action) for action in range(4)] == [False, False, False, True]
    assert found.is_any_refused
    assert len(driver.calls) == 1


def test_transact_once_answers_nothing_when_it_was_applied() -> None:
    client, driver, _ = _client([THROTTLES[0], CONFLICTS[1]], {})
    assert client.transact_once([{"Put": {}}], is_repeatable=False) is None
    assert driver.calls == [{"TransactItems": [{"Put": {}}]}] * 3


def test_batch_get_asks_for_a_hundred_keys_at_a_time() -> None:
    keys = [{"pk": {"S": str(number)}} for number in range(201)]
    parts = [keys[:100], keys[100:200], keys[200:]]
    client, driver, _ = _client([{"Responses": {"log": part}} for part in parts])
    assert list(client.batch_get("log", keys)) == keys
    asked = [call["RequestItems"]["log"] for call in driver.calls]
    assert asked == [{"Keys": part, "ConsistentRead": True} for part in parts]


def test_batch_get_asks_for_nothing_when_there_are_no_keys() -> None:
    client, driver, _ = _client([])
    assert list(client.batch_get("log", [])) == []
    assert driver.calls == []


@pytest.mark.parametrize(("chance", "pauses_ms"), [(b"\x00", [0, 0, 0, 0]), (b"\xff", [10, 20, 40, 80])])
def test_call_pauses_with_full_jitter_between_nothing_and_a_doubling_bound(
    chance: bytes, pauses_ms: list[float]
) -> None:
    client, _, clock = _client([THROTTLES[0]] * (ATTEMPTS - 1), chance=chance)
    client.call("update_item", is_repeatable=False)
    assert clock.sleeps == pytest.approx(pauses_ms, rel=1e-4)
    assert all(slept <= bound for slept, bound in zip(clock.sleeps, pauses_ms, strict=True))


def _log(script: Sequence[Any], answer: Any) -> tuple[DynamoDbLogIndex, _ScriptedDriver]:
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
    log, driver = _log([CONFLICTS[0]] * 2, {"Attributes": head_item(KEY, EMPTY_HEAD)})
    assert log.append(KEY, REF, 0).head == head
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
