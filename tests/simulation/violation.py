"""A promise that was broken, and how a check tells of it."""


class ViolationError(AssertionError):
    """A promise was broken."""


def expect(holds: bool, message: str) -> None:
    """Raise ViolationError unless it holds."""
    if not holds:
        raise ViolationError(message)
