"""WakeUps of a stage that has none."""

from penstock_core.log.wake_up import WakeUpMessage


class NoWakeUps:
    """WakeUps without a place: readers poll. The port documents its methods."""

    place = None

    def publish(self, message: WakeUpMessage) -> None:
        pass
