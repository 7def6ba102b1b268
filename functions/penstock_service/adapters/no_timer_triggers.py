"""TimerTriggers that start nothing: of a process that promotes what is due by itself, or that takes no records."""

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
