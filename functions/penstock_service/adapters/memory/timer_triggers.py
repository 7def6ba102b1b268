"""TimerTriggers in memory."""

from penstock_core.log.timer import DueSecond


class MemoryTimerTriggers:
    """TimerTriggers: the port documents its methods.

    `seconds` are the seconds that were announced and not taken, each with its delay in milliseconds.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[DueSecond, int]] = []
        self.is_switched_on = False
        self.is_open = False
        self.runs_at_once = 0

    def announce(self, second: DueSecond, delay_ms: int) -> None:
        self.seconds.append((second, delay_ms))

    def switch_on(self) -> None:
        self.is_switched_on = True

    def run_at_once(self) -> None:
        self.runs_at_once += 1

    def open_queue(self) -> None:
        self.is_open = True
