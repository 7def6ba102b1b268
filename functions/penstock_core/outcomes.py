"""The outcome of each entry of a call: its value or its error, in the order of the entries.

One entry that fails does not fail its neighbours. So a step of a use case runs for the entries that are still good,
and every error keeps the place of its entry.

Errors that follow a write whose result is not known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from penstock_core.errors import PenstockError

A = TypeVar("A")
T = TypeVar("T")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)
Outcome: TypeAlias = T | PenstockError


def outcome_of(function: Callable[[A], T], item: A) -> Outcome[T]:
    """The function's value for the item, or the PenstockError that it raises. Any other exception is raised."""
    try:
        return function(item)
    except PenstockError as error:
        return error


class Outcomes(tuple[Outcome[T_co], ...]):
    """One outcome per entry. It is a tuple, so you can unpack, index and compare it."""

    __slots__ = ()

    @classmethod
    def collect(cls, function: Callable[[A], U], entries: Iterable[A]) -> "Outcomes[U]":
        """Call the function for each entry, one after the other."""
        return Outcomes([outcome_of(function, entry) for entry in entries])

    @property
    def ok(self) -> list[T_co]:
        """The values of the entries that have no error."""
        return [outcome for outcome in self if not isinstance(outcome, PenstockError)]

    @property
    def errors(self) -> list[PenstockError]:
        """The errors of the entries that have one."""
        return [outcome for outcome in self if isinstance(outcome, PenstockError)]

    @property
    def may_have_begun(self) -> bool:
        """True if an entry has a value, or an error that is `maybe_applied`: the call may have changed something."""
        return bool(self.ok) or any(error.maybe_applied for error in self.errors)

    def all_ok(self) -> list[T_co]:
        """The values of all entries. Raises the first error if there is one."""
        for error in self.errors:
            raise error
        return self.ok

    def map_ok(self, function: Callable[[T_co], U]) -> "Outcomes[U]":
        """Call the function for each value. A PenstockError that it raises becomes the error of that entry."""
        return Outcomes(
            [outcome if isinstance(outcome, PenstockError) else outcome_of(function, outcome) for outcome in self]
        )

    def map_all_ok(self, function: Callable[[list[T_co]], Iterable[Outcome[U]]]) -> "Outcomes[U]":
        """Call the function once with all values; it returns their outcomes in the same order.

        Does not call it when every entry has an error. A PenstockError that it raises is raised.
        """
        values = self.ok
        outcomes = iter(function(values) if values else ())
        return Outcomes([outcome if isinstance(outcome, PenstockError) else next(outcomes) for outcome in self])

    def merge(self, later: "Mapping[int, Outcome[T_co]]") -> "Outcomes[T_co]":
        """The same outcomes, except that `later` has newer ones for the entries at these indexes."""
        return Outcomes([later.get(index, outcome) for index, outcome in enumerate(self)])


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
