"""What a command tells while it works: a spinner with the present step on a terminal, a line per step elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


class Progress:
    """Tells of steps on stderr, so that stdout is the answer alone."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Shows `what` while the block runs, then the time it took."""
        started = time.monotonic()
        with self._console.status(what):
            yield
        self._console.print(f"{what} … {time.monotonic() - started:.1f} s", soft_wrap=True)
