"""What can go wrong, said once: every code with its category, its HTTP status and whether trying again can help.

The category says whose fault it is and what the caller can do; the code says exactly what; the message names the
value and the way out. `maybe_applied` is true only when the effect of a write is not known.
"""

from enum import Enum
from typing import Any


class Category(Enum):
    """Whose move it is next."""

    INVALID = "INVALID"  # the caller must change the request
    NOT_FOUND = "NOT_FOUND"  # the caller names what does not exist
    CONFLICT = "CONFLICT"  # the state is not what the caller thinks
    FENCED = "FENCED"  # somebody else has taken over
    DENIED = "DENIED"  # the signature or the policy does not allow it
    THROTTLED = "THROTTLED"  # slow down, then try again
    UNAVAILABLE = "UNAVAILABLE"  # try again
    CORRUPT = "CORRUPT"  # bytes are not what they were


class ErrorCode(Enum):
    """Codes as they stand in the API: name -> (category, HTTP status)."""

    INVALID_REQUEST = (Category.INVALID, 400)
    INVALID_NAME = (Category.INVALID, 400)
    INVALID_CONFIG = (Category.INVALID, 400)
    CORRUPT_BATCH = (Category.CORRUPT, 400)
    UNSUPPORTED_FORMAT = (Category.INVALID, 400)
    ACCESS_DENIED = (Category.DENIED, 403)
    UNKNOWN_TOPIC = (Category.NOT_FOUND, 404)
    UNKNOWN_PARTITION = (Category.NOT_FOUND, 404)
    UNKNOWN_ZONE = (Category.NOT_FOUND, 404)
    UNKNOWN_ROUTE = (Category.NOT_FOUND, 404)
    UNKNOWN_GROUP = (Category.NOT_FOUND, 404)
    UNKNOWN_MEMBER = (Category.NOT_FOUND, 404)
    TOPIC_EXISTS = (Category.CONFLICT, 409)
    CONCURRENT_UPDATE = (Category.CONFLICT, 409)
    ZONE_STATE_CONFLICT = (Category.CONFLICT, 409)
    OUT_OF_ORDER_SEQUENCE = (Category.CONFLICT, 409)
    DUPLICATE_SEQUENCE = (Category.CONFLICT, 409)
    PRODUCER_FENCED = (Category.FENCED, 409)
    LEASE_FENCED = (Category.FENCED, 409)
    MEMBER_FENCED = (Category.FENCED, 409)
    STALE_HEARTBEAT = (Category.CONFLICT, 409)
    LEASE_HELD = (Category.CONFLICT, 409)
    OFFSET_BEHIND = (Category.CONFLICT, 409)
    GROUP_NOT_EMPTY = (Category.CONFLICT, 409)
    GROUP_FULL = (Category.CONFLICT, 409)
    TRANSACTION_EXPIRED = (Category.CONFLICT, 409)
    RECORD_TOO_LARGE = (Category.INVALID, 413)
    REQUEST_TOO_LARGE = (Category.INVALID, 413)
    TRANSACTION_TOO_LARGE = (Category.INVALID, 413)
    OFFSET_OUT_OF_RANGE = (Category.INVALID, 416)
    THROTTLED = (Category.THROTTLED, 429)
    INTERNAL = (Category.UNAVAILABLE, 500)
    CORRUPT_SEGMENT = (Category.CORRUPT, 500)
    NOT_ENOUGH_ZONES = (Category.UNAVAILABLE, 503)
    STORAGE_UNAVAILABLE = (Category.UNAVAILABLE, 503)

    def __init__(self, category: Category, http_status: int) -> None:
        self.category = category
        self.http_status = http_status

    # Several codes share (category, status); enum would make aliases of them without a value of their own.
    def __new__(cls, category: Category, http_status: int) -> "ErrorCode":
        member = object.__new__(cls)
        member._value_ = (len(cls.__members__), category, http_status)
        return member

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.category in (Category.THROTTLED, Category.UNAVAILABLE)


class PenstockError(Exception):
    """The one error of this project.

    `facts` are further JSON-able facts for the caller's program, such as the bounds of a range that was missed;
    they stand beside code and message in the API's error object.
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

    def __str__(self) -> str:
        suffix = " (may have been applied)" if self.maybe_applied else ""
        return f"{self.code.name}: {self.message}{suffix}"
