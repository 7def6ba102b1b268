"""What an action has done, said once on the page that comes next. The URL carries its number, never its text."""

import threading
from collections.abc import Callable

_KEPT_MAX = 32


class Flashes:
    """Texts that wait for their page. Several threads may use one Flashes. `draw` gives the numbers."""

    def __init__(self, draw: Callable[[], str]) -> None:
        self._draw = draw
        self._lock = threading.Lock()
        self._texts: dict[str, str] = {}

    def keep(self, text: str) -> str:
        """Keep the text; the answer is its number. The oldest of too many texts goes."""
        with self._lock:
            number = self._draw()[:8]
            self._texts[number] = text
            while len(self._texts) > _KEPT_MAX:
                del self._texts[next(iter(self._texts))]
            return number

    def take(self, number: str) -> str | None:
        """The text, once."""
        with self._lock:
            return self._texts.pop(number, None)
