"""The one error of this project, and every code with its category, HTTP status and whether a retry can help.

The category says who must act. The code says exactly what went wrong. The message names the value and the way out.
`maybe_applied` is true only when the effect of a write is not known.
"""

import reprlib
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

_SHOWN_LENGTH_MAX = 100  # characters of a caller's value in a message: enough to find it, too few to fill an answer
_SHOWN_BITS_MAX = 300  # of a number: 91 digits
_shallow = reprlib.Repr()
_shallow.maxlevel = 2
_shallow.maxlist = _shallow.maxdict = 3


class Category(Enum):
    """The party that must act next, and how."""

    INVALID = "INVALID"  # the caller must change the request
    NOT_FOUND = "NOT_FOUND"  # the caller names what does not exist
    CONFLICT = "CONFLICT"  # the state is not what the caller thinks
    FENCED = "FENCED"  # another instance has taken over
    DENIED = "DENIED"  # the signature or the policy does not allow it
    THROTTLED = "THROTTLED"  # slow down, then try again
    UNAVAILABLE = "UNAVAILABLE"  # try again
    CORRUPT = "CORRUPT"  # bytes are not what they were


class ErrorCode(Enum):
    """Codes as the API spells them: name -> (category, HTTP status)."""

    INVALID_REQUEST = (Category.INVALID, 400)
    INVALID_NAME = (Category.INVALID, 400)
    INVALID_CONFIG = (Category.INVALID, 400)
    INVALID_FILTER = (Category.INVALID, 400)
    CORRUPT_BATCH = (Category.CORRUPT, 400)
    UNSUPPORTED_FORMAT = (Category.INVALID, 400)
    INVALID_TIMESTAMP = (Category.INVALID, 400)
    INVALID_RECORD = (Category.INVALID, 400)
    ACCESS_DENIED = (Category.DENIED, 403)
    NOT_AUTHORIZED = (Category.DENIED, 403)
    UNKNOWN_TOPIC = (Category.NOT_FOUND, 404)
    UNKNOWN_TOPIC_ID = (Category.NOT_FOUND, 404)
    UNKNOWN_PARTITION = (Category.NOT_FOUND, 404)
    UNKNOWN_ZONE = (Category.NOT_FOUND, 404)
    UNKNOWN_ROUTE = (Category.NOT_FOUND, 404)
    UNKNOWN_GROUP = (Category.NOT_FOUND, 404)
    UNKNOWN_SHARE_GROUP = (Category.NOT_FOUND, 404)
    UNKNOWN_SUBSCRIPTION = (Category.NOT_FOUND, 404)
    UNKNOWN_MEMBER = (Category.NOT_FOUND, 404)
    UNKNOWN_PRODUCER = (Category.NOT_FOUND, 404)
    UNKNOWN_TIMER = (Category.NOT_FOUND, 404)
    UNKNOWN_SCHEDULE = (Category.NOT_FOUND, 404)
    UNKNOWN_QUOTA = (Category.NOT_FOUND, 404)
    TOPIC_EXISTS = (Category.CONFLICT, 409)
    TOO_MANY_TOPICS = (Category.CONFLICT, 409)
    TOO_MANY_SUBSCRIPTIONS = (Category.CONFLICT, 409)
    TOO_MANY_QUOTAS = (Category.CONFLICT, 409)
    QUOTA_EXCEEDED = (Category.CONFLICT, 409)
    TOO_MANY_ACLS = (Category.CONFLICT, 409)
    TIMER_EXISTS = (Category.CONFLICT, 409)
    TIMER_SETTLED = (Category.CONFLICT, 409)
    TOO_MANY_TIMERS = (Category.CONFLICT, 409)
    TOO_MANY_SCHEDULES = (Category.CONFLICT, 409)
    CONCURRENT_UPDATE = (Category.CONFLICT, 409)
    ZONE_STATE_CONFLICT = (Category.CONFLICT, 409)
    OUT_OF_ORDER_SEQUENCE = (Category.CONFLICT, 409)
    DUPLICATE_SEQUENCE = (Category.CONFLICT, 409)
    PARTITION_CLOSED = (Category.CONFLICT, 409)
    MIRRORED = (Category.CONFLICT, 409)
    MIRROR_ENDED = (Category.FENCED, 409)
    MOVED = (Category.CONFLICT, 409)
    PRODUCER_FENCED = (Category.FENCED, 409)
    LEASE_FENCED = (Category.FENCED, 409)
    MEMBER_FENCED = (Category.FENCED, 409)
    STALE_HEARTBEAT = (Category.CONFLICT, 409)
    LOCK_LOST = (Category.FENCED, 409)
    LEASE_HELD = (Category.CONFLICT, 409)
    OFFSET_BEHIND = (Category.CONFLICT, 409)
    GROUP_NOT_EMPTY = (Category.CONFLICT, 409)
    GROUP_FULL = (Category.CONFLICT, 409)
    TRANSACTION_EXPIRED = (Category.CONFLICT, 409)
    TRANSACTION_REFUSED = (Category.CONFLICT, 409)
    STORAGE_REFUSED = (Category.CONFLICT, 409)
    RECORD_TOO_LARGE = (Category.INVALID, 413)
    RESPONSE_TOO_LARGE = (Category.INVALID, 413)
    REQUEST_TOO_LARGE = (Category.INVALID, 413)
    TRANSACTION_TOO_LARGE = (Category.INVALID, 413)
    OFFSET_OUT_OF_RANGE = (Category.INVALID, 416)
    THROTTLED = (Category.THROTTLED, 429)
    INTERNAL = (Category.UNAVAILABLE, 500)
    CORRUPT_SEGMENT = (Category.CORRUPT, 500)
    NOT_ENOUGH_ZONES = (Category.UNAVAILABLE, 503)
    STORAGE_UNAVAILABLE = (Category.UNAVAILABLE, 503)
    IDENTITY_UNAVAILABLE = (Category.UNAVAILABLE, 503)

    def __init__(self, category: Category, http_status: int) -> None:
        self.category = category
        self.http_status = http_status

    def __new__(cls, category: Category, http_status: int) -> "ErrorCode":
        """A member with a value of its own. Several codes share (category, status): enum would make aliases of them."""
        member = object.__new__(cls)
        member._value_ = (len(cls.__members__), category, http_status)
        return member

    @property
    def is_retriable(self) -> bool:
        """True if the same request may succeed later, unchanged."""
        return self.category in (Category.THROTTLED, Category.UNAVAILABLE)


class PenstockError(Exception):
    """The one error of this project.

    `facts` are further JSON-able facts for the caller's program, such as the bounds of a range that was missed;
    they are next to code and message in the API's error object.
    """

    def __init__(self, code: ErrorCode, message: str, *, maybe_applied: bool = False, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.maybe_applied = maybe_applied
        self.facts = facts

    def to_json(self) -> dict[str, Any]:
        """The value of `error` in an API answer."""
        return {"code": self.code.name, "message": self.message, "maybe_applied": self.maybe_applied, **self.facts}

    def __reduce__(self) -> tuple[Any, ...]:
        """The error survives pickling, as do subclasses whose constructors take other arguments."""
        return _blank, (type(self), self.message), self.__dict__

    def __str__(self) -> str:
        suffix = " (may have been applied)" if self.maybe_applied else ""
        return f"{self.code.name}: {self.message}{suffix}"


def _blank(kind: type[PenstockError], message: str) -> PenstockError:
    return kind.__new__(kind, message)


def shown(value: object) -> str:
    """A caller's value as a message shows it: its repr, 100 characters at most, and "…" where it goes on.

    It looks two levels deep into arrays and objects, at the first few elements. The repr of a value that JSON could
    just hold may exceed the recursion limit, or take seconds.
    """
    if isinstance(value, str):
        text, is_whole = repr(value[:_SHOWN_LENGTH_MAX]), len(value) <= _SHOWN_LENGTH_MAX
    elif isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    else:
        text, is_whole = _shallow.repr(value), True
    return text if is_whole and len(text) <= _SHOWN_LENGTH_MAX + 2 else f"{text[:_SHOWN_LENGTH_MAX]}…"


class Mistakes:
    """The messages of what was refused, in the order of the checks."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    def check(self, check: Callable[..., object], *arguments: object) -> None:
        """Calls `check`. Keeps the message if it refuses the arguments by PenstockError."""
        try:
            check(*arguments)
        except PenstockError as error:
            self._messages.append(error.message)

    def check_each(self, check: Callable[[Mapping[str, Any]], object], settings: Mapping[str, Any]) -> None:
        """Calls `check` with each setting alone, so that each mistake is found."""
        for name, value in settings.items():
            self.check(check, {name: value})

    def refuse(self, subject: str) -> None:
        """Raises INVALID_CONFIG with all messages, behind the name of the `subject`. Returns if there are none."""
        if self._messages:
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{subject}: {'; '.join(self._messages)}")
