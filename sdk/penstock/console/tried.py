"""A list, or why there is none: a page with one right missing still shows the rest."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock_core.errors import PenstockError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Generic[Value]):
    """A value, or the error for the reader in its place."""

    value: Value | None
    error: str | None


def tried(call: Callable[[], Value]) -> Tried[Value]:
    """What the call answers, or what it failed with."""
    try:
        return Tried(value=call(), error=None)
    except PenstockError as error:
        return Tried(value=None, error=f"{error.code.name}: {error.message}")
