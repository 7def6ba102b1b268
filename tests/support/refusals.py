"""Refusals in tests: an error of the expected code that changed nothing."""

from collections.abc import Callable

import pytest

from penstock_core.errors import ErrorCode, PenstockError


def refused(code: ErrorCode, call: Callable[[], object]) -> PenstockError:
    """The error that `call` raises. Its code must be `code`, and it must not be `maybe_applied`."""
    with pytest.raises(PenstockError) as caught:
        call()
    assert (caught.value.code, caught.value.maybe_applied) == (code, False)
    return caught.value
