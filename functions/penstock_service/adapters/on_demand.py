"""What is made when it is first needed, because making it takes CPU that few callers need."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")


class OnDemand:
    """Makes a client once, whichever threads ask for it first: boto3 does not make clients safely in several threads.

    If `make` raises, the next call tries again.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Any = None

    def __call__(self) -> Any:
        """The client. The first call makes it; calls that come meanwhile wait."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made


def late(make: Callable[[], T]) -> T:
    """A store that `make` makes, with its imports, when one of its methods or attributes is first used."""
    return cast(T, _Late(make))


class _Late:
    def __init__(self, make: Callable[[], Any]) -> None:
        self._of = OnDemand(make)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of(), name)
