from contextlib import AbstractContextManager

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.maybe_applied import as_maybe_applied, errors_maybe_applied, errors_of_a_late_attempt

RETRIABLE = PenstockError(ErrorCode.THROTTLED, "later", limit=1)
FINAL = PenstockError(ErrorCode.PARTITION_CLOSED, "no")


@pytest.mark.parametrize(
    ("block", "error", "maybe_applied"),
    [
        (errors_maybe_applied(), RETRIABLE, True),
        (errors_maybe_applied(), FINAL, False),
        (errors_of_a_late_attempt(maybe_applied=True), RETRIABLE, True),
        (errors_of_a_late_attempt(maybe_applied=True), FINAL, True),
        (errors_of_a_late_attempt(maybe_applied=False), FINAL, False),
    ],
)
def test_errors_of_the_block_are_marked(
    block: AbstractContextManager[None], error: PenstockError, maybe_applied: bool
) -> None:
    with pytest.raises(PenstockError) as caught, block:
        raise error
    assert (caught.value.code, caught.value.maybe_applied) == (error.code, maybe_applied)
    assert not error.maybe_applied


def test_marked_error_is_another_one_with_the_same_facts() -> None:
    marked = as_maybe_applied(RETRIABLE)
    assert (marked.message, marked.facts, marked.maybe_applied) == ("later", {"limit": 1}, True)
    assert not RETRIABLE.maybe_applied
