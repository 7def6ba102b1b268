"""Lambda functions as targets."""

import json
from collections.abc import Callable
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import PUSH_ERROR_LENGTH_MAX, PUSH_PAYLOAD_BYTES_MAX
from penstock_core.push.batch import Answer, Failed, Failure, PushBatch
from penstock_core.push.targets.kafka_event import decode_answer, encode_kafka_event
from penstock_core.push.targets.target import FunctionTarget
from penstock_service.adapters.targets.calls import AWS_ERRORS, failure_of, is_denied, is_missing, statement_id

_CHECK_MS = 10_000
_GAP = " … "
_QUALIFIER_AT = 7  # "arn:aws:lambda:<region>:<account>:function:<name>:<qualifier>"


class LambdaFunctions:
    """Invokes functions and waits for their answers. `client` makes the client for a time-out in milliseconds.

    The client must not repeat a call: the function would run twice at once. `role_arn` is the role that invokes.
    """

    def __init__(self, client: Callable[[int], Any], role_arn: str) -> None:
        self._client = client
        self._role_arn = role_arn

    def check(self, target: FunctionTarget) -> None:
        """One dry run, which invokes nothing. Raises as `Targets.check`."""
        try:
            self._client(_CHECK_MS).invoke(FunctionName=target.arn, InvocationType="DryRun")
        except AWS_ERRORS as error:
            raise self._refusal(target, error) from error

    def deliver(self, target: FunctionTarget, batch: PushBatch, timeout_ms: int) -> Answer:
        """One synchronous invocation with the event of AWS's mappings for Kafka."""
        event = encode_kafka_event(batch)
        if len(event) > PUSH_PAYLOAD_BYTES_MAX:
            why = f"the event of {len(batch.records)} records has {len(event):,} bytes: Lambda takes 6 MiB"
            return Failed(failure=Failure.REFUSAL, error=why)
        try:
            answer = self._client(timeout_ms).invoke(FunctionName=target.arn, Payload=event)
            payload = answer["Payload"].read()
        except AWS_ERRORS as error:
            return failure_of(error)
        if "FunctionError" in answer:
            return Failed(failure=Failure.REFUSAL, error=_function_error(payload))
        return decode_answer(payload, batch, is_json=True)

    def _refusal(self, target: FunctionTarget, error: Exception) -> PenstockError:
        if is_denied(error):
            why = f"the service may not invoke {target.arn}. This command allows it:\n{self._grant(target)}"
            return PenstockError(ErrorCode.ACCESS_DENIED, why)
        if is_missing(error):
            return PenstockError(
                ErrorCode.INVALID_CONFIG, f"target.lambda={shown(target.arn)}: there is no such function here: {error}"
            )
        return PenstockError(ErrorCode.STORAGE_UNAVAILABLE, f"Lambda did not answer for {target.arn}: {error}")

    def _grant(self, target: FunctionTarget) -> str:
        parts = target.arn.split(":")
        qualifier = "".join(f" --qualifier {each}" for each in parts[_QUALIFIER_AT:])
        return (
            f"aws lambda add-permission --function-name {':'.join(parts[:_QUALIFIER_AT])}{qualifier} "
            f"--statement-id {statement_id(self._role_arn)} --action lambda:InvokeFunction --principal {self._role_arn}"
        )


def _function_error(payload: bytes) -> str:
    """The exception as the runtime tells it. Runtimes differ in all but the two names."""
    try:
        told = json.loads(payload)
        return _without_middle(f"{told['errorType']}: {told['errorMessage']}")
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"the function failed: {payload[:200].decode(errors='replace')}"


def _without_middle(error: str) -> str:
    """`PUSH_ERROR_LENGTH_MAX` characters at most. Powertools tells a traceback, whose last line names the exception."""
    if len(error) <= PUSH_ERROR_LENGTH_MAX:
        return error
    half = (PUSH_ERROR_LENGTH_MAX - len(_GAP)) // 2
    return f"{error[:half]}{_GAP}{error[-half:]}"
