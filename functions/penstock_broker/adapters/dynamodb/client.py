"""Calls to DynamoDB: which failures are tried again, and what they mean to the caller.

botocore's own retries must be off: they would send an append again after a lost answer, and append twice. Here a call
is repeated only if it leaves the same state however often it is applied (`is_repeatable`; reads are), or if
DynamoDB surely did not apply it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

from penstock_broker.ports import Chance, Clock
from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError

_ATTEMPTS_MAX = 5
_TRANSACT_ATTEMPTS_MAX = 10
_BACKOFF_MS = 10.0
_BACKOFF_MS_MAX = 200.0
_THROTTLED = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
}
# Refused because a transaction (a tail roll) holds the item for a moment.
_IN_CONFLICT = {"TransactionConflictException", "TransactionInProgressException"}
_CANCELLED_FOR_NOW = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
_FOR_THE_CALLER = {"ConditionalCheckFailedException", "TransactionCanceledException"}
_READS = {"get_item", "batch_get_item", "query", "scan"}
_NEVER_SENT = (ConnectTimeoutError, EndpointConnectionError)


class DynamoDbClient:
    """A boto3 DynamoDB client made with `retries={"total_max_attempts": 1}`, and the policy above around it."""

    def __init__(self, client: Any, clock: Clock, chance: Chance) -> None:
        self._client = client
        self._clock = clock
        self._chance = chance

    def call(self, operation: str, *, is_repeatable: bool, **arguments: Any) -> Any:
        """The answer to `operation`, in 5 attempts at most, with full jitter up to 200 ms between them.

        Raises THROTTLED or STORAGE_UNAVAILABLE, with `maybe_applied` if one of the attempts at a write may have been
        applied. A failed condition or a cancelled transaction comes as ClientError, for the caller.
        """
        answer, error, maybe_applied = self._attempt(operation, is_repeatable=is_repeatable, arguments=arguments)
        if error is not None:
            _raise(operation, error, maybe_applied=maybe_applied)
        return answer

    def transact(self, items: Sequence[dict[str, Any]]) -> None:
        """The actions in one TransactWriteItems, whose conditions must refuse a second one: it is repeated if it may
        have been applied, and up to 10 times while others write to the same items. Each attempt has a client token of
        its own, by botocore: one for all would stand for ten minutes only.

        Raises as `call`, and THROTTLED if others never let go of the items. A transaction that was cancelled for a
        failed condition comes as ClientError: at once, or, if an earlier attempt may have been applied, as soon as
        nothing but conditions is told of, for before that the one that tells the attempts apart may be undecided.
        """
        operation, maybe_applied = "transact_write_items", False
        for attempt in range(_TRANSACT_ATTEMPTS_MAX):
            _, error, is_unsure = self._attempt(operation, is_repeatable=True, arguments={"TransactItems": items})
            maybe_applied |= is_unsure
            if error is None:
                return
            codes = _cancellation_codes(error)
            if not codes & _CANCELLED_FOR_NOW or (codes - _CANCELLED_FOR_NOW and not maybe_applied):
                _raise(operation, error, maybe_applied=maybe_applied)
            if attempt < _TRANSACT_ATTEMPTS_MAX - 1:
                self._back_off(attempt)
        effect = "an earlier attempt may have been applied" if maybe_applied else "nothing was changed"
        raise PenstockError(
            ErrorCode.THROTTLED,
            f"others write to what the transaction writes to all the time: {effect}, try again later",
            maybe_applied=maybe_applied,
        )

    def batch_get(self, request: dict[str, Any]) -> Iterator[Any]:
        """The answers to BatchGetItem until no key is left unprocessed, in 5 attempts at most. Raises as `call`."""
        for attempt in range(_ATTEMPTS_MAX):
            answer = self.call("batch_get_item", is_repeatable=True, RequestItems=request)
            yield answer
            request = answer.get("UnprocessedKeys", {})
            if not request:
                return
            self._back_off(attempt)
        raise _throttled("batch_get_item")

    def read_pages(self, operation: str, **arguments: Any) -> Iterator[Sequence[Any]]:
        """The items of a query or scan, answer by answer to its end; one call for each megabyte, as far as they are
        taken. Consistent. Raises as `call`."""
        start: dict[str, object] = {}
        while True:
            answer = self.call(operation, is_repeatable=True, ConsistentRead=True, **arguments, **start)
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _attempt(
        self, operation: str, *, is_repeatable: bool, arguments: Mapping[str, Any]
    ) -> tuple[Any, ClientError | BotoCoreError | None, bool]:
        """The answer or the last attempt's error, and whether some attempt at a write may have been applied."""
        maybe_applied = False
        for attempt in range(_ATTEMPTS_MAX):
            try:
                return getattr(self._client, operation)(**arguments), None, maybe_applied
            except (ClientError, BotoCoreError) as error:
                maybe_applied |= operation not in _READS and _is_ambiguous(error)
                if attempt == _ATTEMPTS_MAX - 1 or not _helps_again(error, is_repeatable=is_repeatable):
                    return None, error, maybe_applied
            self._back_off(attempt)
        raise AssertionError("the last attempt returns")

    def _back_off(self, attempt: int) -> None:
        chance = int.from_bytes(self._chance.random_bytes(2), "big") / 2**16
        self._clock.sleep_ms(full_jitter_ms(attempt, _BACKOFF_MS, _BACKOFF_MS_MAX, chance))


def error_code(error: ClientError) -> str:
    """DynamoDB's name for what went wrong."""
    return str(error.response["Error"]["Code"])


def _cancellation_codes(error: ClientError | BotoCoreError) -> set[str]:
    """Why a transaction was cancelled, by its actions; those that stood in nobody's way left out."""
    if not isinstance(error, ClientError):
        return set()
    return {reason.get("Code") or "None" for reason in error.response.get("CancellationReasons", ())} - {"None"}


def condition_failed(error: ClientError) -> bool:
    return error_code(error) == "ConditionalCheckFailedException"


def _helps_again(error: Exception, *, is_repeatable: bool) -> bool:
    if isinstance(error, ClientError) and error_code(error) in _THROTTLED | _IN_CONFLICT:
        return True
    if isinstance(error, _NEVER_SENT):
        return True
    return is_repeatable and _is_ambiguous(error)


def _is_ambiguous(error: Exception) -> bool:
    """Whether the call may have been applied: no answer came, or one that does not say, such as a damaged one."""
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)) >= 500
    return not isinstance(error, _NEVER_SENT)


def _raise(operation: str, error: Exception, *, maybe_applied: bool) -> NoReturn:
    if isinstance(error, ClientError) and error_code(error) in _FOR_THE_CALLER:
        raise error
    if isinstance(error, ClientError) and error_code(error) in _THROTTLED:
        raise _throttled(operation, maybe_applied=maybe_applied) from error
    raise PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"DynamoDB did not answer {operation}: {error}",
        maybe_applied=maybe_applied,
    ) from error


def _throttled(operation: str, *, maybe_applied: bool = False) -> PenstockError:
    effect = "an earlier attempt may have been applied" if maybe_applied else "nothing was changed"
    message = f"DynamoDB throttles {operation}: {effect}, try again later"
    return PenstockError(ErrorCode.THROTTLED, message, maybe_applied=maybe_applied)
