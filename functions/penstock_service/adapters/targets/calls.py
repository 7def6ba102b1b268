"""A delivery to a queue or a bus: many calls of a few entries each.

The session of the role that delivers.

A caller of the API chooses the target, and the service calls it. So the calls run under a role that may do nothing by
itself: only targets that let it in can be reached. The roles of the functions may do more. They send to Penstock's own
queues, which no subscription must reach.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.credentials import CredentialProvider, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from penstock_core.limits import PUSH_CALL_MS_MAX, PUSH_CALLS_AT_ONCE
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.targets.kafka_event import call_batches
from penstock_service.ports.runtime import Clock, Executor

Refusals = Mapping[int, str]
AWS_ERRORS = (ClientError, BotoCoreError)
_DENIED = re.compile("AccessDenied|NotAuthorized")
_MISSING = re.compile("NotFound|NonExistent|DoesNotExist")
# AWS answers many of these with status 400, as it does for a bad message. A code that is not among them is about the
# message. A refusal that is wrong costs attempts; an outage that is wrong keeps a bad record for ever.
_AWAY = re.compile(
    "Throttl|TooManyReq|LimitExceeded|OverLimit|Expired|Token|Signature|UnrecognizedClient|OptIn|KMS|Kms|SnapStart"
    "|Internal|Unavailable"
)
_ABOUT_THE_MESSAGE = (400, 413, 415)  # statuses
ASSUME_ROLE = "AssumeRole"
_SESSION_NAME = "penstock"
_SESSION_S = 3_600  # the longest that AWS gives to a role that another role assumes
_STS = Config(retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=1, read_timeout=3)
"""Errors of single entries by their indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySizes:
    """The entries' sizes in bytes, and what one entry, and one call, may have. `service` says who takes no more."""

    sizes: Sequence[int]
    bytes_max: int
    service: str

    def refusals(self) -> dict[int, str]:
        """The entries that are too large."""
        return {
            index: f"it has {size:,} bytes: {self.service} takes {self.bytes_max:,}"
            for index, size in enumerate(self.sizes)
            if size > self.bytes_max
        }


class EntryCalls:
    """Sends entries by several calls side by side."""

    def __init__(self, clock: Clock, executor: Executor) -> None:
        self._clock = clock
        self._executor = executor

    def send(
        self,
        batch: PushBatch,
        entries: EntrySizes,
        call: Callable[[Sequence[int]], Refusals | Failed],
        timeout_ms: int,
    ) -> Answer:
        """Calls `call` with the indices of a few entries until all are sent, or `timeout_ms` leaves no time for a call.

        The first call that fails as a whole ends the delivery. Entries that were sent before it are sent again then.
        """
        end_ms = self._clock.monotonic_ms() + timeout_ms - PUSH_CALL_MS_MAX
        refused = entries.refusals()
        calls = call_batches(entries.sizes, entries.bytes_max)
        for start in range(0, len(calls), PUSH_CALLS_AT_ONCE):
            if start and self._clock.monotonic_ms() >= end_ms:
                why = f"the time is over after {start} of {len(calls)} calls with {len(batch.records)} records"
                return Failed(failure=Failure.BROKEN, error=why)
            for answer in self._executor.map(call, calls[start : start + PUSH_CALLS_AT_ONCE]).all_ok():
                if isinstance(answer, Failed):
                    return answer
                refused.update(answer)
        return _answered(batch, refused)


def _answered(batch: PushBatch, refused: Refusals) -> Answered:
    if not refused:
        return Answered()
    first = min(refused)
    record = batch.records[first]
    error = f"{len(refused)} of {len(batch.records)} records were refused; {record.topic}-{record.key.partition} "
    return Answered(
        failed=frozenset(batch.records[index].place for index in refused),
        error=f"{error}at offset {record.record.offset}: {refused[first]}",
    )


def failure_of(error: Exception) -> Failed:
    """The failure of a delivery. A time-out may be the fault of its records; an outage never is."""
    if isinstance(error, ReadTimeoutError):
        return Failed(failure=Failure.BROKEN, error=str(error))
    return Failed(failure=Failure.REFUSAL if _is_refusal(error) else Failure.AWAY, error=str(error))


def is_denied(error: Exception) -> bool:
    """True if the target's policy does not let the role in."""
    is_about_role = isinstance(error, ClientError) and error.operation_name == ASSUME_ROLE
    return not is_about_role and bool(_DENIED.search(error_code(error)))


def is_missing(error: Exception) -> bool:
    """True if the target does not exist."""
    return bool(_MISSING.search(error_code(error)))


def is_outage(code: str) -> bool:
    """True for the code of an error that tells nothing of a message."""
    return any(pattern.search(code) for pattern in (_DENIED, _MISSING, _AWAY))


def error_code(error: Exception) -> str:
    """AWS's code of the error; empty for an error of another kind."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _is_refusal(error: Exception) -> bool:
    if not isinstance(error, ClientError) or is_outage(error_code(error)):
        return False
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in _ABOUT_THE_MESSAGE


def statement_id(role_arn: str) -> str:
    """The id of the statement that lets the role in. Roles of other stages have other ids in the same policy."""
    return "".join(word.capitalize() for word in re.findall("[A-Za-z0-9]+", role_arn.rpartition("/")[2]))


def session_of_role(own: botocore.session.Session, role_arn: str, endpoint_url: str | None) -> botocore.session.Session:
    """A session under the role, which `own` may assume. Its first call assumes the role, and one call each hour."""
    session = botocore.session.get_session()
    session.get_component("credential_provider").insert_before("env", _RoleProvider(own, role_arn, endpoint_url))
    session.set_config_variable("region", own.get_config_variable("region"))
    return session


class _RoleProvider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    METHOD = "penstock-targets"

    def __init__(self, own: botocore.session.Session, role_arn: str, endpoint_url: str | None) -> None:
        super().__init__()
        self._own = own
        self._role_arn = role_arn
        self._endpoint_url = endpoint_url

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(refresh_using=self._assume, method=self.METHOD)

    def _assume(self) -> dict[str, Any]:
        sts = self._own.create_client("sts", config=_STS, endpoint_url=self._endpoint_url)
        answer = sts.assume_role(RoleArn=self._role_arn, RoleSessionName=_SESSION_NAME, DurationSeconds=_SESSION_S)
        found = answer["Credentials"]
        return {
            "access_key": found["AccessKeyId"],
            "secret_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expiry_time": found["Expiration"].isoformat(),
        }
