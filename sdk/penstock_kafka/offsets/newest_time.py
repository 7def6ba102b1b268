"""The record with the greatest timestamp, which the service does not index: a search by time finds it.

The records with times from `low` on shrink with each step. A partition whose last batch has the greatest time, as most
have, takes three calls.
"""

from penstock.api.calls import list_offsets
from penstock.model import OffsetAndTimestamp
from penstock_kafka.service.service import Service

_STEPS_MAX = 64  # halves of any range of times
_LATEST_MS = 2**53


async def newest_time(service: Service, topic: str, partition: int) -> OffsetAndTimestamp | None:
    """The first record with the greatest timestamp; None if the partition is empty."""
    best = await _first(service, topic, partition, 0)
    if best is None:
        return None
    high = _LATEST_MS  # no record has this time
    step = 1
    for _ in range(_STEPS_MAX):
        low = best.timestamp_ms + 1
        if best.timestamp_ms < 0 or low >= high:
            return best
        probe = min(low + step - 1, (low + high) // 2)
        found = await _first(service, topic, partition, probe)
        if found is None:
            high, step = probe, max(step // 4, 1)
        else:
            best, step = found, step * 4
    return best


async def _first(service: Service, topic: str, partition: int, time_ms: int) -> OffsetAndTimestamp | None:
    found = await service.call(list_offsets(topic, time_ms, partition))
    return found.get(partition)
