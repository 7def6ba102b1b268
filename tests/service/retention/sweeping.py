"""Runs of the sweep, and objects for it to remove."""

from penstock_core.ids import SegmentId, new_segment_id
from penstock_core.limits import LOG_START_GRACE_MS
from penstock_core.storage.keys import KeyLayout
from penstock_service.adapters.memory.service import MemorySegmentStore
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import SweepResult, sweep
from penstock_service.retention.sweep_folders import swept_stores
from tests.support.expiring import HOUR_MS
from tests.support.service import (
    SteppedClock,
    with_stores,
    zone_of,
)

BUDGET_MS = 10_000_000.0
DAY_MS = 24 * HOUR_MS


def run(instance: Instance, **options: int) -> SweepResult:
    """One run with all the time that it wants."""
    return sweep(instance, **({"budget_ms": BUDGET_MS} | options))  # type: ignore[arg-type]


def garbage(instance: Instance, count: int = 1) -> list[SegmentId]:
    """Objects of appends that died before their update, in every zone."""
    ids = [new_segment_id(instance.clock.now_ms(), instance.entropy.random_bytes(10)) for _ in range(count)]
    for zone in instance.stores.zones:
        for segment_id in ids:
            zone.put(segment_id, b"x", 0)
    return ids


def with_hours(instance: Instance) -> Instance:
    """The instance with empty zones whose keys begin with the hour, as in directory buckets."""
    zones = [MemorySegmentStore(zone, KeyLayout.BY_HOUR) for zone in instance.stores.zone_names]
    return with_stores(instance, zones=zones)


def folders(instance: Instance) -> int:
    """In how many folders the stores have objects."""
    return len({folder for store in swept_stores(instance.stores) for folder in store.list_folders()})


def objects(instance: Instance) -> list[int]:
    """How many objects each zone holds."""
    return [len(zone_of(instance, index).segments) for index in range(3)]


def settle(instance: Instance, clock: SteppedClock) -> None:
    """Retention has done all it can."""
    for _ in range(3):
        retain(instance, budget_ms=BUDGET_MS)
        clock.time_ms += LOG_START_GRACE_MS
