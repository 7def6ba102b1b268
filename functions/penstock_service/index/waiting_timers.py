"""The timers of a partition that wait, from all shards, in order."""

from collections.abc import Sequence

from penstock_core.errors import PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import TIMER_SHARDS
from penstock_core.log.timer import PlaceRange, Timer
from penstock_service.instance.instance import Instance

_LANE = "timers"  # threads of its own: callers look at many partitions side by side
_SPARE = 8  # timers more than a shard's share: ids fall on shards by chance


def waiting_timers(instance: Instance, key: PartitionKey, places: PlaceRange, limit: int) -> Sequence[Timer]:
    """The first timers that wait in that range, in order, `limit` at most. Fewer if shards are uneven, and then some.

    Empty only if no timer of the range waits. The shards are read side by side, and no two of them at one moment: a
    timer that is put meanwhile may be missing, and one behind it may be there. One query for each of `TIMER_SHARDS`
    shards, and what marks cost (`TimerStore.waiting`). Raises what a query raises.
    """
    share = min(limit, limit // TIMER_SHARDS + _SPARE)
    shards = range(TIMER_SHARDS)
    results = instance.executor.first_of(
        lambda shard: instance.stores.timers.waiting(key, shard, places, share),
        shards,
        lambda _: False,
        0,
        lanes=[_LANE] * TIMER_SHARDS,
    )
    found: list[Sequence[Timer]] = []
    for each in results:
        if each is None:
            raise RuntimeError("a shard was not read, though all calls have ended")
        if isinstance(each, PenstockError):
            raise each
        found.append(each)
    merged = sorted((timer for each in found for timer in each), key=lambda timer: timer.place)
    # A shard that gave all that was asked of it may have more behind its last one, where other shards have some, too.
    known = [each[-1].place for each in found if len(each) == share]
    if known:
        merged = [timer for timer in merged if timer.place <= min(known)]
    return merged[:limit]
