"""Errors of what comes after a write that may have been applied by then."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock_core.errors import PenstockError


@contextmanager
def said_to_be_maybe_applied() -> Iterator[None]:
    """Whoever cannot read what became of a write may have made it: now, or by an attempt whose answer was lost. So what
    might succeed later says that this may have been applied."""
    try:
        yield
    except PenstockError as error:
        if not error.code.is_retriable:
            raise
        raise PenstockError(error.code, error.message, maybe_applied=True, **error.facts) from error
