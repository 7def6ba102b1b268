"""What arguments must be: whoever gives a wrong one is told its name, its value and what to use."""

from collections.abc import Callable

from penstock.errors import InvalidError, as_sdk_error
from penstock_core.errors import ErrorCode, PenstockError


def check(holds: bool, message: str) -> None:
    """Raises InvalidError unless it holds."""
    if not holds:
        raise InvalidError(ErrorCode.INVALID_REQUEST, message)


def check_number(name: str, value: object, least: int) -> None:
    """Raises InvalidError for what is no number, or below `least`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    check(is_number and value >= least, f"{name}={value!r:.100}: use a number from {least}")  # type: ignore[operator]  # it is one


def check_callable(name: str, value: object) -> None:
    """Raises InvalidError for what cannot be called, but for None."""
    check(value is None or callable(value), f"{name}={value!r:.100}: give a function, or None")


def checked_name(parse: Callable[[str], str], name: str) -> str:
    """The name, if the service would take it. Raises InvalidError."""
    try:
        return parse(name)
    except PenstockError as error:
        raise as_sdk_error(error) from None
    except TypeError:
        raise InvalidError(ErrorCode.INVALID_NAME, f"{name!r:.100} is no name: give a string") from None
