"""DeliveryQueue that takes no messages: of a process that starts no deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError

if TYPE_CHECKING:
    from penstock_core.push.message import PushMessage


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
