"""Finds all mistakes in the settings that a template declares: a deployment that tells one at a time takes for ever."""

from collections.abc import Callable, Mapping
from typing import Any

from penstock_core.errors import ErrorCode, PenstockError


class Mistakes:
    """The messages of what was refused, in the order of the checks."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    def check(self, check: Callable[..., object], *arguments: object) -> None:
        """Calls `check`. Keeps the message if it refuses the arguments by PenstockError."""
        try:
            check(*arguments)
        except PenstockError as error:
            self._messages.append(error.message)

    def check_each(self, check: Callable[[Mapping[str, Any]], object], settings: Mapping[str, Any]) -> None:
        """Calls `check` with each setting alone, so that each mistake is found."""
        for name, value in settings.items():
            self.check(check, {name: value})

    def refuse(self, subject: str) -> None:
        """Raises INVALID_CONFIG with all messages, behind the name of the `subject`. Returns if there are none."""
        if self._messages:
            raise PenstockError(ErrorCode.INVALID_CONFIG, f"{subject}: {'; '.join(self._messages)}")
