"""WakeUps of a stage that has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.log.timer import DueSecond
from penstock_core.log.wake_up import WakeUpMessage

if TYPE_CHECKING:
    from penstock_core.mirror.push import MirrorPush, PushAnswer
    from penstock_core.push.batch import Answer, Failed, PushBatch
    from penstock_core.push.lane import PushMessage
    from penstock_core.push.targets.target import StageTarget, Target


_WHY = "this process has no targets: its environment lacks PENSTOCK_TARGETS"


class NoWakeUps:
    """WakeUps without a place: readers poll. The port documents its methods."""

    place = None

    def publish(self, message: WakeUpMessage) -> None:
        pass


class NoDeliveryQueue:
    """DeliveryQueue: the port documents its methods. Each of them raises INTERNAL: its caller needs a queue."""

    def send(self, messages: Sequence[PushMessage]) -> None:  # noqa: ARG002 - there is no queue
        raise _no_queue()

    def postpone(self, receipt: str, delay_ms: int) -> None:  # noqa: ARG002 - there is no queue
        raise _no_queue()

    def switch_on(self) -> None:
        raise _no_queue()


def _no_queue() -> PenstockError:
    return PenstockError(
        ErrorCode.INTERNAL, "this process has no queue of deliveries: its environment lacks PENSTOCK_DELIVERIES"
    )


class NoTargets:
    """Targets: the port documents its methods. Each target is away: the caller needs an environment with targets."""

    def check(self, target: Target) -> None:  # noqa: ARG002 - no target is reached
        raise PenstockError(ErrorCode.INTERNAL, _WHY)

    def deliver(self, target: Target, batch: PushBatch, timeout_ms: int) -> Answer:  # noqa: ARG002 - as above
        from penstock_core.push.batch import Failed, Failure

        return Failed(failure=Failure.AWAY, error=_WHY)

    def mirror(self, target: StageTarget, push: MirrorPush, timeout_ms: int) -> PushAnswer | Failed:  # noqa: ARG002
        from penstock_core.push.batch import Failed, Failure

        return Failed(failure=Failure.AWAY, error=_WHY)


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
