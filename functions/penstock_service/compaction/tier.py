"""Tier: move what has grown old out of the zones into the archive, partition by partition. It runs each hour.

The zones' buckets cost 14 times as much as the archive for each byte (docs/adr/0030). A run merges as compaction does.
Beyond that it moves what compaction leaves: pages with few refs, pages with large ones, and the refs of a tail.

A run serves the partitions in a circle. Each gets a portion of time in its turn, so a partition with much to move keeps
no other one waiting for longer than a round. A partition that is not done goes to the end of the queue again. The
next run begins at the partition whose turn it was. A run may die anywhere, and two may run at once: compaction's lease
keeps them apart (compact.py).
"""

from collections import deque
from dataclasses import dataclass, replace

from penstock_core.compaction.merging import CompactionSettings
from penstock_core.limits import TIERING_MS_MAX, TIERING_PORTION_MS
from penstock_service.compaction.compact import CompactionResult, attempt_compact, in_turn, partitions_of, place_of
from penstock_service.instance.instance import Instance

_JOB = "tier"
_SETTINGS = CompactionSettings(zonal_ms_max=TIERING_MS_MAX, cleans=False)  # the task `clean` does, up to its bound


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringResult:
    """The counts of one run.

    `partitions` were served, in `portions` turns. `bytes_moved` were written to the archive. `bytes_stale` had lain in
    zones for `STALE_MS` when the run met them. `failures` counts turns in which the run could not move all, `held`
    those in which another run was moving. `is_finished` is false if the time was up before every partition was done.
    """

    partitions: int = 0
    portions: int = 0
    bytes_moved: int = 0
    bytes_stale: int = 0
    failures: int = 0
    held: int = 0
    is_finished: bool = True

    def plus(self, done: CompactionResult) -> "TieringResult":
        """The result with one more portion."""
        return replace(
            self,
            portions=self.portions + 1,
            bytes_moved=self.bytes_moved + done.bytes_after,
            bytes_stale=self.bytes_stale + done.bytes_stale,
            failures=self.failures + int(done.failures > 0),
            held=self.held + int(done.is_held),
        )


def tier(
    instance: Instance,
    *,
    budget_ms: float,
    settings: CompactionSettings = _SETTINGS,
    portion_ms: float = TIERING_PORTION_MS,
) -> TieringResult:
    """One run over the partitions in a circle from the cursor on, until the time is over.

    For each turn of a partition a read of its head and a query for each 64 pages, and what `compact` costs for what it
    moves. A turn ends with the first swap behind `portion_ms`. A partition that fails is counted and logged, and the
    next run meets it again. Raises what reading the topics raises.
    """
    deadline_ms = instance.clock.monotonic_ms() + budget_ms
    cursor = instance.stores.cursors.get(_JOB)
    queue = deque(in_turn(partitions_of(instance, ()), cursor))
    total, served = TieringResult(), set[tuple[str, int]]()
    while queue:
        topic, partition = queue[0]
        left_ms = deadline_ms - instance.clock.monotonic_ms()
        if left_ms <= 0:
            instance.stores.cursors.put(_JOB, place_of(topic, partition))
            return replace(total, partitions=len(served), is_finished=False)
        done = _tier_one(instance, topic, partition, settings, min(portion_ms, left_ms))
        queue.popleft()
        if not done.is_finished:
            queue.append((topic, partition))
        served.add((topic, partition))
        total = total.plus(done)
    instance.stores.cursors.clear(_JOB)
    return replace(total, partitions=len(served))


def _tier_one(
    instance: Instance, topic: str, partition: int, settings: CompactionSettings, budget_ms: float
) -> CompactionResult:
    done = attempt_compact(instance, topic, partition, settings, budget_ms=budget_ms)
    for error_text in done.errors:
        instance.telemetry.log("tiering_failed", topic=topic, partition=partition, error=error_text)
    return done
