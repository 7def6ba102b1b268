"""Runs of the sweep, and objects for it to remove."""

from penstock_core.ids import SegmentId, new_segment_id
from penstock_core.limits import LOG_START_GRACE_MS
from penstock_service.instance.instance import Instance
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import SweepResult, sweep
from tests.support.expiring import HOUR_MS
from tests.support.service import (
    SteppedClock,
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


def objects(instance: Instance) -> list[int]:
    """How many objects each zone holds."""
    return [len(zone_of(instance, index).segments) for index in range(3)]


def settle(instance: Instance, clock: SteppedClock) -> None:
    """Retention has done all it can."""
    for _ in range(3):
        retain(instance, budget_ms=BUDGET_MS)
        clock.time_ms += LOG_START_GRACE_MS
