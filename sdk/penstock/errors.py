"""The SDK's errors: one class per condition that a program handles differently, all `PenstockError`.

    PenstockError                 code, message, maybe_applied, facts
    ├── InvalidError              change the request
    │   ├── RecordTooLargeError   over the topic's max_batch_bytes, or over 4 MiB a request
    │   ├── OffsetOutOfRangeError facts: log_start_offset, high_watermark
    │   ├── NoOffsetError         auto_offset_reset="none", and no offset is known to start at
    │   ├── NotConfiguredError    no URL, region or credentials
    │   ├── ClosedError           the producer or consumer was closed
    │   └── ForkedError           the client was made before fork(): make one in each process
    ├── NotFoundError             UnknownTopicError, UnknownPartitionError
    ├── ConflictError             TopicExistsError
    │   ├── LeaseHeldError        a member of the group owns the partition: only that member commits for it
    │   ├── GroupFullError        the group has as many members as it may have
    │   └── TransactionAbortedError  the record's transaction was aborted: the log has none of its records
    ├── FencedError               another process has taken over
    │   ├── LeaseLostError        another member owns the partition, or may: uncommitted records come again
    │   ├── InstanceFencedError   another process runs with this group_instance_id: stop
    │   └── LockLostError         the lock of a share group's record has ended: another consumer may have the record
    ├── AccessDeniedError         the signature or the policy does not allow it
    ├── CorruptError              bytes are not what they were
    └── UnavailableError          try again later; the SDK has tried for as long as it may
        ├── ThrottledError
        ├── BufferFullError       send() waited max_block_ms for memory
        ├── ConnectionFailedError no answer; maybe_applied tells whether the request may have been sent
        └── DeliveryTimeoutError  a record was not delivered in delivery_timeout_ms; its cause is the last error

An error that the SDK raises by itself has the service's code with the same advice, and a `name` of its own.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from penstock_core.errors import Category, ErrorCode, PenstockError

__all__ = [
    "AccessDeniedError",
    "BufferFullError",
    "Category",
    "ClientError",
    "ClosedError",
    "ConflictError",
    "ConnectionFailedError",
    "CorruptError",
    "DeliveryTimeoutError",
    "ErrorCode",
    "FencedError",
    "ForkedError",
    "GroupFullError",
    "InstanceFencedError",
    "InvalidError",
    "LeaseHeldError",
    "LeaseLostError",
    "LockLostError",
    "NoOffsetError",
    "NotConfiguredError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "PenstockError",
    "RecordTooLargeError",
    "ThrottledError",
    "TopicExistsError",
    "TopicReplacedError",
    "TransactionAbortedError",
    "UnavailableError",
    "UnknownPartitionError",
    "UnknownTopicError",
]

SECOND_MS = 1_000


class InvalidError(PenstockError):
    """The request cannot succeed as it is."""


class RecordTooLargeError(InvalidError):
    """A record or request is over its limit (`facts["limit"]`, bytes, where it is known)."""


class OffsetOutOfRangeError(InvalidError):
    """The offset is below the log start or above the high watermark (both in `facts`)."""


class NotFoundError(PenstockError):
    """The request names a thing that does not exist."""


class UnknownTopicError(NotFoundError):
    """The topic does not exist."""


class TopicReplacedError(UnknownTopicError):
    """The topic was deleted and created anew: what was read belongs to the old one (`facts["topic_id"]`: the new)."""


class UnknownPartitionError(NotFoundError):
    """The topic has no such partition."""


class ConflictError(PenstockError):
    """The state is not what the caller thinks."""


class TopicExistsError(ConflictError):
    """A topic of this name exists."""


class FencedError(PenstockError):
    """Another process has taken over."""


class LeaseHeldError(ConflictError):
    """A member of the group owns the partition: only that member commits for it."""


class GroupFullError(ConflictError):
    """The group has as many members as it may have."""


class LeaseLostError(FencedError):
    """The member no longer owns the partition: nothing was committed for it.

    Its next owner goes on from the last commit. A consumer need not do anything: it drops the partition (`on_lost`) and
    reads the other partitions on.
    """


class LockLostError(FencedError):
    """The lock of a record has ended or was taken over: another consumer of the share group may have the record."""


class InstanceFencedError(FencedError):
    """Another process has joined the group with this `group_instance_id`: this one has to stop."""


class AccessDeniedError(PenstockError):
    """The credentials are missing, wrong or expired, or they do not allow this."""


class CorruptError(PenstockError):
    """Bytes are not the same as when they were written."""


class UnavailableError(PenstockError):
    """The service could not do it now; the same request may succeed later."""


class ThrottledError(UnavailableError):
    """Too many requests. `facts["retry_after_ms"]` tells when to come back, if the service said so."""


class ClientError(PenstockError):
    """A condition that the SDK found, not the service. Its `name` stands in for the service's code."""

    name: ClassVar[str] = "CLIENT_ERROR"

    def to_json(self) -> dict[str, Any]:
        """The error object, with `name` as its code."""
        return {**super().to_json(), "code": self.name}

    def __str__(self) -> str:
        return super().__str__().replace(self.code.name, self.name, 1)


class LookUpFirst(PenstockError):  # noqa: N818 - a client's cue, which no caller sees
    """A value needs a data key or a schema that was not asked for yet. `look_up` asks, and may take a network call."""

    def __init__(self, look_up: Callable[[], object]) -> None:
        super().__init__(ErrorCode.INTERNAL, "what a value needs was not asked for yet")
        self.look_up = look_up


class NotConfiguredError(ClientError, InvalidError):
    """No URL, region or credentials were found."""

    name = "NOT_CONFIGURED"

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class ClosedError(ClientError, InvalidError):
    """The producer or consumer was closed before."""

    name = "CLOSED"

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class ForkedError(ClientError, InvalidError):
    """The client was made before `os.fork()`, in the parent of this process."""

    name = "FORKED"

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class TransactionAbortedError(ClientError, ConflictError):
    """The record's transaction was aborted; `__cause__` says why."""

    name = "TRANSACTION_ABORTED"

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CONCURRENT_UPDATE, message)


class NoOffsetError(ClientError, InvalidError):
    """The consumer does not know where to start: no committed offset, and `auto_offset_reset` is "none"."""

    name = "NO_OFFSET"

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class BufferFullError(ClientError, UnavailableError):
    """The producer's memory was full for `max_block_ms`: you send records faster than they are delivered."""

    name = "BUFFER_FULL"

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.THROTTLED, message)


class ConnectionFailedError(ClientError, UnavailableError):
    """There was no answer. `maybe_applied` is false if the request was certainly not sent."""

    name = "CONNECTION_FAILED"

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        super().__init__(ErrorCode.STORAGE_UNAVAILABLE, message, maybe_applied=maybe_applied)


class DeliveryTimeoutError(ClientError, UnavailableError):
    """A record was not delivered within `delivery_timeout_ms`. `__cause__` is the last error, if there was one."""

    name = "DELIVERY_TIMEOUT"

    def __init__(self, message: str, *, maybe_applied: bool) -> None:
        super().__init__(ErrorCode.STORAGE_UNAVAILABLE, message, maybe_applied=maybe_applied)


_BY_CODE: dict[ErrorCode, type[PenstockError]] = {
    ErrorCode.RECORD_TOO_LARGE: RecordTooLargeError,
    ErrorCode.REQUEST_TOO_LARGE: RecordTooLargeError,
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRangeError,
    ErrorCode.UNKNOWN_TOPIC: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: TopicReplacedError,
    ErrorCode.UNKNOWN_PARTITION: UnknownPartitionError,
    ErrorCode.TOPIC_EXISTS: TopicExistsError,
    ErrorCode.LEASE_HELD: LeaseHeldError,
    ErrorCode.GROUP_FULL: GroupFullError,
    ErrorCode.LEASE_FENCED: LeaseLostError,
    ErrorCode.MEMBER_FENCED: InstanceFencedError,
    ErrorCode.LOCK_LOST: LockLostError,
}

_BY_CATEGORY: dict[Category, type[PenstockError]] = {
    Category.INVALID: InvalidError,
    Category.NOT_FOUND: NotFoundError,
    Category.CONFLICT: ConflictError,
    Category.FENCED: FencedError,
    Category.DENIED: AccessDeniedError,
    Category.THROTTLED: ThrottledError,
    Category.UNAVAILABLE: UnavailableError,
    Category.CORRUPT: CorruptError,
}

_NO_TOKEN = 401  # API Gateway: without a token, or with one that it does not take
# The codes of statuses: of answers that API Gateway or Lambda give in place of the service, and of codes that a newer
# service has and this version does not know.
_BY_STATUS = {
    401: ErrorCode.ACCESS_DENIED,
    403: ErrorCode.ACCESS_DENIED,
    404: ErrorCode.UNKNOWN_ROUTE,
    409: ErrorCode.CONCURRENT_UPDATE,
    413: ErrorCode.REQUEST_TOO_LARGE,
    429: ErrorCode.THROTTLED,
}


def error_class(code: ErrorCode) -> type[PenstockError]:
    """The class that stands for a code."""
    return _BY_CODE.get(code) or _BY_CATEGORY[code.category]


def as_sdk_error(error: PenstockError) -> PenstockError:
    """An error of penstock_core as the class that stands for its code; an error of the SDK as it is."""
    if type(error) is not PenstockError:
        return error
    return error_class(error.code)(error.code, error.message, maybe_applied=error.maybe_applied, **error.facts)


_OLD_STAGE = ". The stage's release does not know records that expire: deploy the stage first, or send without a time"


def error_from_json(error: Mapping[str, Any], status: int = 200) -> PenstockError:
    """The exception for an `error` object of the API, of a whole answer or of one partition.

    A code that this version does not know becomes the code of its HTTP status; `facts["service_code"]` has it.
    """
    facts = {name: fact for name, fact in error.items() if name not in ("code", "message", "maybe_applied")}
    name = str(error.get("code", ""))
    if name in ErrorCode.__members__:
        code = ErrorCode[name]
    else:
        code = _code_of_status(status)
        facts["service_code"] = name
    message = str(error.get("message", ""))
    if code is ErrorCode.INVALID_REQUEST and message.startswith("unknown field 'may_expire'"):
        message += _OLD_STAGE
    return error_class(code)(code, message, maybe_applied=bool(error.get("maybe_applied", False)), **facts)


def error_from_response(status: int, headers: Mapping[str, str], body: bytes, *, is_read: bool) -> PenstockError:
    """The exception for an answer outside 2xx, from the service or from API Gateway in front of it.

    `is_read`: the request changes nothing, so that no failure of it can have been applied.
    """
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("error"), dict):
        error = error_from_json(document["error"], status)
    else:
        error = _gateway_error(status, document, headers, is_read=is_read)
    retry_after = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    if retry_after.isascii() and retry_after.isdigit() and "retry_after_ms" not in error.facts:
        error.facts["retry_after_ms"] = int(retry_after) * SECOND_MS
    return error


def as_maybe_applied(error: PenstockError) -> PenstockError:
    """The same error, as one whose effect is not known."""
    if error.maybe_applied:
        return error
    twin = error.__class__.__new__(error.__class__, *error.args)
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    twin.maybe_applied = True
    return twin


def _gateway_error(status: int, document: object, headers: Mapping[str, str], *, is_read: bool) -> PenstockError:
    said = document.get("message") or document.get("Message") if isinstance(document, dict) else None
    code = _code_of_status(status)
    if status == _NO_TOKEN:
        why = next((value for name, value in headers.items() if name.lower() == "www-authenticate"), "no reason given")
        message = (
            f"{said or 'Unauthorized'} ({why:.300}): this URL takes tokens, so check that the client has one "
            "(PENSTOCK_TOKEN_FILE), that it has not expired, and that issuer and audience are those of the stage"
        )
    elif code is ErrorCode.ACCESS_DENIED:
        message = (
            f"{said or 'Forbidden'}: check that the credentials belong to the account of this URL and have not "
            "expired, that region and clock are right, and that the IAM policy allows execute-api:Invoke on this route"
        )
    else:
        message = f"HTTP {status} from the gateway: {said or 'no explanation'}"
    # 5xx without our error object: the function may have run and failed to answer.
    maybe_applied = status >= 500 and not is_read
    return error_class(code)(code, message, maybe_applied=maybe_applied)


def _code_of_status(status: int) -> ErrorCode:
    fallback = ErrorCode.INTERNAL if status >= 500 else ErrorCode.INVALID_REQUEST
    return _BY_STATUS.get(status, fallback)
