"""The history of what clients saw, in simulated time, for the history checker (tests/history)."""

from io import BytesIO

from tests.history.checker import Options, check
from tests.history.recorder import Recorder
from tests.history.report import Report
from tests.simulation.engine.scheduler import Scheduler
from tests.simulation.engine.timing import CLOCK_SKEW_MS


class RunHistory:
    """The history of one run, kept in memory."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._stream = BytesIO()
        self.recorder = Recorder(self._stream, now_ns=lambda: int(scheduler.now_ms * 1_000_000))

    def judge(self, *, everything_was_read: bool) -> Report:
        """Check the history. Copies that a producer's own retries explain are allowed: not all are idempotent."""
        options = Options(
            allow_retry_duplicates=True,
            allow_unseen=not everything_was_read,
            clock_skew_ns=int(2 * CLOCK_SKEW_MS * 1_000_000),  # one instance's clock may be ahead, and another's behind
        )
        return check(self.lines(), options)

    def lines(self) -> list[bytes]:
        return self._stream.getvalue().splitlines(keepends=True)
