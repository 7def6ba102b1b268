"""TimerTriggers that start nothing: of a process that promotes what is due by itself, or that takes no records."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.timer import DueSecond


class NoTimerTriggers:
    """TimerTriggers: the port documents its methods."""

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        pass

    def switch_on(self) -> None:
        pass

    def run_at_once(self) -> None:
        pass

    def open_queue(self) -> None:
        pass


class MissingTimerTriggers:
    """TimerTriggers: the port documents its methods. `switch_on` raises INVALID_REQUEST, so no record is delayed.

    Of a process on a stage's tables whose environment names no triggers: a record that it delayed would come late.
    """

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        pass

    def switch_on(self) -> None:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            "this process takes no delayed records: its environment lacks PENSTOCK_TIMERS. Set it, or set "
            "PENSTOCK_STACK in its place, or send the records over HTTP",
        )

    def run_at_once(self) -> None:
        pass

    def open_queue(self) -> None:
        pass
