"""Errors that follow a write whose result is not known."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock_core.errors import PenstockError


@contextmanager
def errors_maybe_applied(*, has_begun: bool = True) -> Iterator[None]:
    """Mark retriable errors raised in the block as `maybe_applied`, if the call `has_begun` to change something.

    Wrap all that follows a write which takes effect, or whose answer was lost: if it fails, the caller must not report
    a clean failure. tests/handlers/test_sure_errors.py holds that for each write of each route.
    """
    try:
        yield
    except PenstockError as error:
        if not (has_begun and error.code.is_retriable):
            raise
        raise as_maybe_applied(error) from error


@contextmanager
def errors_of_a_late_attempt(*, maybe_applied: bool) -> Iterator[None]:
    """Mark all errors raised in the block as `maybe_applied`, if so: an attempt before the refused one may still come.

    Wrap what finds out why a write was refused.
    """
    try:
        yield
    except PenstockError as error:
        if not maybe_applied:
            raise
        raise as_maybe_applied(error) from error


def as_maybe_applied(error: PenstockError) -> PenstockError:
    """A copy of the error that says `maybe_applied`. The error itself stays as it is: other entries may hold it."""
    return PenstockError(error.code, error.message, maybe_applied=True, **error.facts)
