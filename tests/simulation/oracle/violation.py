"""The error of a broken promise, and the check that raises it."""


class ViolationError(AssertionError):
    """A promise was broken."""


def expect(holds: bool, message: str) -> None:
    """Raise ViolationError unless it holds."""
    if not holds:
        raise ViolationError(message)
