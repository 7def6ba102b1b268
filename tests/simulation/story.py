"""What clients saw, told to the history checker (tests/history) in the simulation's time."""

from io import BytesIO

from tests.history.checker import Options, check
from tests.history.recorder import Recorder
from tests.history.report import Report
from tests.simulation.scheduler import Scheduler


class Story:
    """A history in memory."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._stream = BytesIO()
        self.recorder = Recorder(self._stream, now_ns=lambda: int(scheduler.now_ms * 1_000_000))

    def judge(self, *, everything_was_read: bool) -> Report:
        """Duplicates that a producer's own retries explain are allowed: sends are not idempotent yet."""
        options = Options(allow_retry_duplicates=True, allow_unseen=not everything_was_read)
        return check(self.lines(), options)

    def lines(self) -> list[bytes]:
        return self._stream.getvalue().splitlines(keepends=True)
