"""The progress of a command: a spinner with the current step on a terminal, else a line per step."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Progress:
    """Prints steps on stderr, so that stdout holds only the answer."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Shows `what` while the block runs, then the time that it took."""
        started = time.monotonic()
        with self._console.status(what):
            yield
        self._console.print(f"{what} … {time.monotonic() - started:.1f} s", soft_wrap=True)
