"""The time from which a record is no longer worth its work: the header `penstock-expires-at`.

Its value is the time in milliseconds since 1970, as 13 decimal digits: 2001 to 2286. So seconds, microseconds and
nanoseconds are no such time, and neither are signs, points, spaces or text. A record expires only if it has the header
once, with such a time. Every other value means that the record does not expire: nothing is lost by a bad header.

The sender of the record makes the header. A flag in the ref tells that a batch may have it (log/ref.py). A batch
without the flag is not decoded, so its records do not expire for share groups and subscriptions.

A dead letter, and a record that is moved back, have the header under another name. So neither expires.
"""

from collections.abc import Sequence

from penstock_core.errors import ErrorCode, PenstockError, shown
from penstock_core.limits import EXPIRES_IN_MS_MAX

Headers = Sequence[tuple[str, bytes | None]]  # as the codec's, which not all who look here have loaded

EXPIRES_AT_HEADER = "penstock-expires-at"
_DIGITS = 13
_TIME_MS_MIN = 10 ** (_DIGITS - 1)


def has_expiry(headers: Headers) -> bool:
    """True if the record has the header, whatever its value is: its batch gets the flag."""
    return any(name == EXPIRES_AT_HEADER for name, _ in headers)


def expires_at_ms(headers: Headers) -> int | None:
    """The time from which the record is expired. None if it does not expire."""
    found = [value for name, value in headers if name == EXPIRES_AT_HEADER]
    return _time_ms(found[0]) if len(found) == 1 else None


def is_expired(headers: Headers, now_ms: int) -> bool:
    """True from the record's time on."""
    if not headers:
        return False
    time_ms = expires_at_ms(headers)
    return time_ms is not None and time_ms <= now_ms


def check_expiry(headers: Headers) -> None:
    """Raises INVALID_RECORD for a header that would be passed over: a value that is no time, or a second header."""
    found = [value for name, value in headers if name == EXPIRES_AT_HEADER]
    if len(found) > 1:
        raise _invalid(f"stands {len(found)} times: give it once")
    for value in found:
        if _time_ms(value) is None:
            raise _invalid(f"is {shown(value)}: give milliseconds since 1970, as {_DIGITS} decimal digits")


def with_expiry(headers: Headers, expires_in_ms: int, from_ms: int) -> Headers:
    """The headers, and the one of a record that expires so long after `from_ms`.

    Raises INVALID_REQUEST for a duration that is no whole number from 1 to `EXPIRES_IN_MS_MAX`, or next to a header of
    the same name, and for a clock that is not between 2001 and 2286.
    """
    is_whole = isinstance(expires_in_ms, int) and not isinstance(expires_in_ms, bool)
    if not is_whole or not 1 <= expires_in_ms <= EXPIRES_IN_MS_MAX:
        raise _refused(f"expires_in_ms={shown(expires_in_ms)}: give 1 to {EXPIRES_IN_MS_MAX} milliseconds")
    if has_expiry(headers):
        raise _refused(f"expires_in_ms next to a header {EXPIRES_AT_HEADER!r}: give one of them")
    value = str(from_ms + expires_in_ms).encode()
    if _time_ms(value) is None:
        raise _refused(f"expires_in_ms={expires_in_ms} from {from_ms} on ends outside of 2001 to 2286: set the clock")
    return [*headers, (EXPIRES_AT_HEADER, value)]


def _time_ms(value: bytes | None) -> int | None:
    """The time that the value tells, None if it is none."""
    if value is None or len(value) != _DIGITS or not value.isdigit():
        return None
    time_ms = int(value)
    return time_ms if time_ms >= _TIME_MS_MIN else None


def _invalid(what: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_RECORD, f"header {EXPIRES_AT_HEADER!r} {what}")


def _refused(what: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_REQUEST, what)
