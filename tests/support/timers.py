"""Timers of records that nothing stored."""

from penstock_core.ids import PartitionKey, TimerId
from penstock_core.limits import TIMER_SHARDS
from penstock_core.log.ref import Tier
from penstock_core.log.timer import PlaceRange, Timer, TimerPlace
from penstock_service.ports.timers import TimerStore
from tests.support.refs import ref_at


def waiting(
    store: TimerStore, key: PartitionKey, start_ms: int, end_ms: int, limit: int, after: TimerPlace | None = None
) -> list[Timer]:
    """The first timers of all shards that wait."""
    places = PlaceRange(start_ms, end_ms, after)
    found = [timer for shard in range(TIMER_SHARDS) for timer in store.waiting(key, shard, places, limit)]
    return sorted(found, key=lambda timer: timer.place)[:limit]


def timer_at(key: PartitionKey, due_ms: int, number: int = 0, *, crc: int = 7, span: int = 1) -> Timer:
    """A timer that waits, whose id is `number`."""
    return Timer(
        key=key,
        place=TimerPlace(due_ms, TimerId(number.to_bytes(16, "big"))),
        ref=ref_at(due_ms, span=span, zones=0, tier=Tier.ARCHIVE),
        crc=crc,
    )
