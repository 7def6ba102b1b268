"""Timers of records that nothing stored."""

from penstock_core.ids import PartitionKey, TimerId
from penstock_core.log.ref import Tier
from penstock_core.log.timer import Timer, TimerPlace
from tests.support.refs import ref_at


def timer_at(key: PartitionKey, due_ms: int, number: int = 0, *, crc: int = 7, span: int = 1) -> Timer:
    """A timer that waits, whose id is `number`."""
    return Timer(
        key=key,
        place=TimerPlace(due_ms, TimerId(number.to_bytes(16, "big"))),
        ref=ref_at(due_ms, span=span, zones=0, tier=Tier.ARCHIVE),
        crc=crc,
    )
