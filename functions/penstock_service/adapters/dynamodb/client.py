"""Calls to DynamoDB: this module decides which failures are tried again, and what they mean to the caller.

A driver's own retries must be off: they would send an append again after a lost answer, and append twice. The client
repeats a call only in two cases. Either the call leaves the same state however often it is applied (`is_repeatable`;
all reads do), or DynamoDB surely did not apply it.

A write is sent again only within `STORAGE_REPEAT_MS_MAX` of its first attempt, by both clocks. A machine that slept in
between would else name data that is gone by now (penstock_service/segments/update_window.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import (
    BATCH_GET_KEYS_MAX,
    BATCH_WRITE_KEYS_MAX,
    STORAGE_ATTEMPTS_MAX,
    STORAGE_BACKOFF_MS_MAX,
    STORAGE_REPEAT_MS_MAX,
    TRANSACT_ATTEMPTS_MAX,
)
from penstock_core.storage.item import ConditionalUpdate
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError, DriverError, NeverSentError
from penstock_service.ports.runtime import Clock, Entropy

_BACKOFF_MS = 10.0
_THROTTLED = {
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
}
# Refused because a transaction holds the item for a moment. One that lasts is overload, and nothing was changed.
_IN_CONFLICT = {"TransactionConflictException", "TransactionInProgressException"}
_CANCELLED_FOR_NOW = {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
_NEVER_VALID = ("ValidationException", "ItemCollectionSizeLimitExceededException")
_CANCELLED_FOR_GOOD = {"ValidationError", "ItemCollectionSizeLimitExceeded"}  # an item would be too large, for one
_CONDITION_FAILED = "ConditionalCheckFailed"
_TRANSACT = "transact_write_items"
_READS = {"get_item", "batch_get_item", "query", "scan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """DynamoDB applied the write. `attributes` is the item that `ReturnValues` asked for; without it, empty."""

    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The condition did not hold, and DynamoDB changed nothing.

    `item` is the stored item, if `ReturnValuesOnConditionCheckFailure` asked for it and there is one.

    After a lost answer the client may have sent a repeatable write again (`maybe_applied`). Then the write's own first
    attempt may be what made the condition fail. Or that attempt still comes, once the condition holds again.
    """

    item: Mapping[str, Any] | None
    maybe_applied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """DynamoDB cancelled the transaction and changed nothing.

    `codes` has one reason for each action, in order. It is "None" for an action that could have been applied.
    `maybe_applied`: the answer to an earlier attempt was lost, as in `Refused`.
    """

    codes: Sequence[str]
    maybe_applied: bool = False

    def is_refused(self, action: int) -> bool:
        """True if the condition of the action at this place did not hold."""
        return self.codes[action] == _CONDITION_FAILED

    @property
    def is_any_refused(self) -> bool:
        """True if the condition of at least one action did not hold."""
        return _CONDITION_FAILED in self.codes


class DynamoDbClient:
    """The policy above around a driver.

    A driver has botocore's methods, sends each call once, and raises the errors of `driver_errors`.
    """

    def __init__(self, driver: Any, clock: Clock, entropy: Entropy) -> None:
        self._driver = driver
        self._clock = clock
        self._entropy = entropy

    def call(self, operation: str, *, is_repeatable: bool, **arguments: Any) -> Any:
        """The answer to `operation`, which has no condition.

        Makes at most `STORAGE_ATTEMPTS_MAX` attempts, with full jitter up to `STORAGE_BACKOFF_MS_MAX` between them.
        Raises THROTTLED, also if transactions hold the item at every attempt, STORAGE_REFUSED if DynamoDB says that
        the request is not valid, such as one that makes an item too large, or STORAGE_UNAVAILABLE. The error is
        `maybe_applied` if one of the attempts at a write may have been applied.
        """
        answer, error, maybe_applied = self._attempt(operation, is_repeatable=is_repeatable, arguments=arguments)
        if error is not None:
            raise _failure(operation, error, maybe_applied=maybe_applied) from error
        return answer

    def conditional(self, operation: str, *, is_repeatable: bool, **arguments: Any) -> Applied | Refused:
        """Makes a write that has a condition. Attempts and errors are those of `call`."""
        answer, error, maybe_applied = self._attempt(operation, is_repeatable=is_repeatable, arguments=arguments)
        if error is None:
            return Applied(attributes=answer.get("Attributes", {}))
        if _is(error, "ConditionalCheckFailedException"):
            return Refused(item=error.item, maybe_applied=maybe_applied)
        raise _failure(operation, error, maybe_applied=maybe_applied) from error

    def update_if(self, table: str, update: ConditionalUpdate) -> bool:
        """Makes an update that may be applied twice.

        False if its condition does not hold, perhaps because of an own attempt whose answer was lost. Attempts and
        errors are those of `call`.
        """
        done = self.conditional("update_item", is_repeatable=True, TableName=table, **update.arguments())
        return isinstance(done, Applied)

    def transact_once(self, actions: Sequence[dict[str, Any]], *, is_repeatable: bool) -> Cancelled | None:
        """Sends the actions in one TransactWriteItems. None: all of them were applied.

        Does not wait for a conflict with another transaction: that is a reason to cancel, too. Attempts and errors are
        those of `call`.
        """
        arguments = {"TransactItems": actions}
        _, error, maybe_applied = self._attempt(_TRANSACT, is_repeatable=is_repeatable, arguments=arguments)
        if error is None:
            return None
        if _is(error, "TransactionCanceledException"):
            return _cancelled(error, maybe_applied=maybe_applied)
        raise _failure(_TRANSACT, error, maybe_applied=maybe_applied) from error

    def transact(self, actions: Sequence[dict[str, Any]]) -> Cancelled | None:
        """Tries `transact_once` while other writers hold the items. None: all actions were applied.

        Tries up to `TRANSACT_ATTEMPTS_MAX` times. The conditions must refuse a second application, because the client
        repeats a transaction that may have been applied. Client tokens could not: DynamoDB knows one for ten minutes
        only. (botocore gives each attempt one of its own, and the direct client sends none.)

        A failed condition ends the call at once, unless an earlier attempt may have been applied. In that case the
        call goes on until conditions are the only reasons. Before that, the one condition that tells the attempts
        apart may be undecided.

        Raises as `call`, and THROTTLED if other writers never let go of the items. Raises TRANSACTION_REFUSED if
        DynamoDB says that the transaction is not valid, such as one that makes an item too large: no further try heals
        that. Other reasons raise STORAGE_UNAVAILABLE.
        """
        maybe_applied = False
        begun_ms = self._times()
        for attempt in range(TRANSACT_ATTEMPTS_MAX):
            arguments = {"TransactItems": actions}
            _, error, is_unsure = self._attempt(_TRANSACT, is_repeatable=True, arguments=arguments, begun_ms=begun_ms)
            maybe_applied |= is_unsure
            if error is None:
                return None
            cancelled = (
                _cancelled(error, maybe_applied=maybe_applied)
                if _is(error, "TransactionCanceledException")
                else Cancelled(codes=())
            )
            reasons = {*cancelled.codes} - {"None"}
            if not reasons & _CANCELLED_FOR_NOW or (reasons - _CANCELLED_FOR_NOW and not maybe_applied):
                if cancelled.is_any_refused:
                    return cancelled
                if reasons & _CANCELLED_FOR_GOOD or _is(error, *_NEVER_VALID):
                    raise _not_valid(error, maybe_applied=maybe_applied) from error
                raise _failure(_TRANSACT, error, maybe_applied=maybe_applied) from error
            if attempt < TRANSACT_ATTEMPTS_MAX - 1:
                self._back_off(attempt)
                if self._is_too_late(begun_ms):
                    break
        raise PenstockError(
            ErrorCode.THROTTLED,
            f"other writers hold the items of the transaction all the time: {_effect(maybe_applied)}, try again later",
            maybe_applied=maybe_applied,
        )

    def get(self, table: str, key: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The item, or None if there is none. One consistent read. Raises as `call`."""
        answer = self.call("get_item", is_repeatable=True, TableName=table, Key=key, ConsistentRead=True)
        item: Mapping[str, Any] | None = answer.get("Item")
        return item

    def batch_get(self, table: str, keys: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The items of these keys, in no order. A key without item is missing. Consistent.

        One BatchGetItem for each `BATCH_GET_KEYS_MAX` keys, repeated while DynamoDB leaves keys unprocessed. Raises as
        `call`, and THROTTLED if keys stay unprocessed `STORAGE_ATTEMPTS_MAX` times.
        """
        for start in range(0, len(keys), BATCH_GET_KEYS_MAX):
            wanted = keys[start : start + BATCH_GET_KEYS_MAX]
            request: Mapping[str, Any] = {table: {"Keys": wanted, "ConsistentRead": True}}
            for attempt in range(STORAGE_ATTEMPTS_MAX):
                answer = self.call("batch_get_item", is_repeatable=True, RequestItems=request)
                yield from answer["Responses"].get(table, ())
                request = answer.get("UnprocessedKeys", {})
                if not request:
                    break
                self._back_off(attempt)
            else:
                raise _throttled("batch_get_item")

    def batch_delete(self, table: str, keys: Sequence[Mapping[str, Any]]) -> None:
        """Removes the items of these keys, without a condition.

        One BatchWriteItem for each `BATCH_WRITE_KEYS_MAX` keys, repeated as `batch_get` repeats. Raises as it does.
        """
        for start in range(0, len(keys), BATCH_WRITE_KEYS_MAX):
            deletes = [{"DeleteRequest": {"Key": key}} for key in keys[start : start + BATCH_WRITE_KEYS_MAX]]
            request: Mapping[str, Any] = {table: deletes}
            for attempt in range(STORAGE_ATTEMPTS_MAX):
                answer = self.call("batch_write_item", is_repeatable=True, RequestItems=request)
                request = answer.get("UnprocessedItems", {})
                if not request:
                    break
                self._back_off(attempt)
            else:
                raise _throttled("batch_write_item", maybe_applied=True)

    def read_pages(self, operation: str, **arguments: Any) -> Iterator[Sequence[Any]]:
        """The items of a query or scan, answer by answer to its end. Consistent. Raises as `call`.

        One call for each megabyte that the caller takes.
        """
        start: dict[str, object] = {}
        while True:
            answer = self.call(operation, is_repeatable=True, ConsistentRead=True, **arguments, **start)
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _attempt(
        self,
        operation: str,
        *,
        is_repeatable: bool,
        arguments: Mapping[str, Any],
        begun_ms: tuple[int, float] | None = None,
    ) -> tuple[Any, DriverError | None, bool]:
        """The answer or the last attempt's error, and whether any attempt at a write may have been applied."""
        maybe_applied = False
        begun_ms = begun_ms or self._times()
        for attempt in range(STORAGE_ATTEMPTS_MAX):
            try:
                return getattr(self._driver, operation)(**arguments), None, maybe_applied
            except DriverError as error:
                maybe_applied |= operation not in _READS and _is_ambiguous(error)
                if attempt == STORAGE_ATTEMPTS_MAX - 1 or not _helps_again(error, is_repeatable=is_repeatable):
                    return None, error, maybe_applied
                self._back_off(attempt)
                if operation not in _READS and self._is_too_late(begun_ms):
                    return None, error, maybe_applied
        raise AssertionError("the last attempt returns")

    def _times(self) -> tuple[int, float]:
        return self._clock.now_ms(), self._clock.monotonic_ms()

    def _is_too_late(self, begun_ms: tuple[int, float]) -> bool:
        """True if a write that began then is not to be sent again, by either clock."""
        now_ms = self._times()
        return max(now_ms[0] - begun_ms[0], now_ms[1] - begun_ms[1]) > STORAGE_REPEAT_MS_MAX

    def _back_off(self, attempt: int) -> None:
        chance = int.from_bytes(self._entropy.random_bytes(2), "big") / 2**16
        self._clock.sleep_ms(full_jitter_ms(attempt, _BACKOFF_MS, STORAGE_BACKOFF_MS_MAX, chance))


def _is(error: DriverError, *codes: str) -> TypeGuard[AnsweredError]:
    """True if DynamoDB answered with one of these codes."""
    return isinstance(error, AnsweredError) and error.code in codes


def _cancelled(error: AnsweredError, *, maybe_applied: bool) -> Cancelled:
    codes = tuple(reason.get("Code") or "None" for reason in error.reasons)
    return Cancelled(codes=codes, maybe_applied=maybe_applied)


def _helps_again(error: DriverError, *, is_repeatable: bool) -> bool:
    if _is(error, *_THROTTLED, *_IN_CONFLICT) or isinstance(error, NeverSentError):
        return True
    return is_repeatable and _is_ambiguous(error)


def _is_ambiguous(error: DriverError) -> bool:
    """True if the call may have been applied: no answer came, or one that does not say, such as a damaged one."""
    if isinstance(error, AnsweredError):
        return error.status >= 500
    return not isinstance(error, NeverSentError)


def _failure(operation: str, error: DriverError, *, maybe_applied: bool) -> PenstockError:
    if _is(error, *_THROTTLED):
        return _throttled(operation, maybe_applied=maybe_applied)
    if _is(error, *_IN_CONFLICT):
        return _in_conflict(operation, maybe_applied=maybe_applied)
    if _is(error, *_NEVER_VALID):
        return PenstockError(
            ErrorCode.STORAGE_REFUSED,
            f"DynamoDB refuses {operation} as it is ({error}): {_effect(maybe_applied)}. Do not repeat it, and see why",
            maybe_applied=maybe_applied,
        )
    return PenstockError(
        ErrorCode.STORAGE_UNAVAILABLE,
        f"DynamoDB did not answer {operation}: {error}",
        maybe_applied=maybe_applied,
    )


def _not_valid(error: DriverError, *, maybe_applied: bool) -> PenstockError:
    reasons = error.reasons if isinstance(error, AnsweredError) else ()
    told = [str(each.get("Message", "")) for each in reasons if each.get("Code") in _CANCELLED_FOR_GOOD]
    return PenstockError(
        ErrorCode.TRANSACTION_REFUSED,
        f"DynamoDB refuses the transaction as it is ({(told or [str(error)])[0]:.100}): {_effect(maybe_applied)}. Do "
        "not repeat it: write to fewer or to other partitions, and see why an item is that large",
        maybe_applied=maybe_applied,
    )


def _throttled(operation: str, *, maybe_applied: bool = False) -> PenstockError:
    message = f"DynamoDB throttles {operation}: {_effect(maybe_applied)}, try again later"
    return PenstockError(ErrorCode.THROTTLED, message, maybe_applied=maybe_applied)


def _in_conflict(operation: str, *, maybe_applied: bool) -> PenstockError:
    message = f"transactions hold the item of {operation} all the time: {_effect(maybe_applied)}, try again later"
    return PenstockError(ErrorCode.THROTTLED, message, maybe_applied=maybe_applied)


def _effect(maybe_applied: bool) -> str:
    return "an earlier attempt may have been applied" if maybe_applied else "nothing was changed"
