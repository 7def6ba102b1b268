"""DynamoDB's TTL: an item goes some time after it has ended, between any two operations, and perhaps never in a run.

The service keeps such items for days, and runs last minutes. So a shorter time stands for each: just longer than what
the item is kept for can take in a run. Where programs sleep for hours, the true times hold.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from penstock_core.limits import (
    MERGE_MARK_KEPT_MS,
    MERGED_SEQUENCES_KEPT_MS,
    PRODUCER_KEPT_MS,
    RETIRED_KEPT_MS,
    TIMER_MARK_KEPT_MS,
)
from penstock_core.storage.compaction_item import STATE_KEPT_MS
from penstock_core.storage.table_declarations import TTL_ATTRIBUTE
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.tables.tables import Change, Tables
from tests.simulation.engine.faults import FaultPlan
from tests.simulation.engine.scheduler import Scheduler
from tests.simulation.engine.time_and_chance import EPOCH_MS

_DAY_MS = 24 * 3_600_000
# By the beginning of the sort key: how long the service keeps the item, and what stands for it.
_KEPT_MS = {
    "page#": (MERGE_MARK_KEPT_MS, 90_000),  # a put of the page comes 30 s after its roller's look, and 20 s late
    "producer#": (PRODUCER_KEPT_MS, 90_000),  # repeats come 20 s later, and 20 s late; producers rest for seconds
    "sequences#": (MERGED_SEQUENCES_KEPT_MS, 90_000),
    "retired#": (RETIRED_KEPT_MS, 120_000),  # the sweep's grace, its run, and a late write
    "timer#": (TIMER_MARK_KEPT_MS, 90_000),
    "compaction": (STATE_KEPT_MS, 60_000),  # behind the lease: a run's 30 s, and a late write
    "member#": (7 * _DAY_MS, 2_000),  # behind the session: clocks differ by a second
    "stage#": (_DAY_MS, 400_000),  # the longest call of a client that commits
}


class TimeToLive:
    """Removes items that have ended, at times that it draws from the seed apart from all other draws."""

    def __init__(self, seed: int, scheduler: Scheduler, faults: FaultPlan, tables: Tables) -> None:
        self._random = Random(f"time to live {seed}")
        self._rate = self._random.choice([0.0, 0.1, 0.5, 1.0])  # of the ended items that go at once
        self._pace_ms = 0.0
        self._stands_ms: dict[str, int] = {}
        self._scheduler = scheduler
        self._faults = faults
        self._tables = tables
        self._ends: dict[
            tuple[str, str, str], tuple[Mapping[str, Any], float]
        ] = {}  # by place: the key, and when the item may go

    def changed(self, change: Change) -> None:
        """Note when the item ends, if it does."""
        place = (change.table, change.key["pk"]["S"], change.key["sk"]["S"])
        if change.new is not None and TTL_ATTRIBUTE in change.new:
            self._ends[place] = change.key, float(change.new[TTL_ATTRIBUTE]["N"]) * 1_000 - EPOCH_MS
        else:
            self._ends.pop(place, None)

    def keep_marks(self) -> None:
        """Keep marks of timers for longer than tellings of timers are late."""
        self._stands_ms = {"timer#": 600_000}

    def slow_down(self) -> None:
        """Look each six hours on average, and remove most of what has ended."""
        self._pace_ms = 12 * 3_600_000.0
        self._rate = self._random.choice([0.5, 1.0])

    def run(self, is_over: Callable[[], bool], *, is_true: Callable[[], bool]) -> None:
        """Remove some until the run is over. `is_true`: the times are those of the service."""
        while not is_over():
            sleeps_ms = max(0.0, self._scheduler.sleeps_until_ms - self._scheduler.now_ms)
            longest_ms = max(self._random.choice([100.0, 1_000.0, 10_000.0]), sleeps_ms, self._pace_ms)
            pause_ms = longest_ms * self._random.random()
            self._scheduler.pause(pause_ms)
            early_ms = 0 if is_true() else 1
            for (table, _, sort_key), (key, ends_ms) in [*self._ends.items()]:
                kept_ms, stands_ms = next(
                    (
                        (kept, self._stands_ms.get(name, stands))
                        for name, (kept, stands) in _KEPT_MS.items()
                        if sort_key.startswith(name)
                    ),
                    (0, 0),
                )
                has_ended = ends_ms - early_ms * (kept_ms - stands_ms) < self._scheduler.now_ms
                if has_ended and self._random.random() < self._rate:
                    self._remove(table, key)

    def _remove(self, table: str, key: Mapping[str, Any]) -> None:
        try:
            if self._faults.strikes("item expired"):
                self._tables.delete_item(TableName=table, Key=key)
        except AnsweredError:
            pass  # a transaction holds it
        else:
            self._scheduler.note("expired", table, key["pk"]["S"], key["sk"]["S"])
