"""The work that streams, queues and schedules start in AWS: delays, repairs, retention, trail, tier, clean, sweep.

One thread runs all of it, one job at a time, more often than the deployed schedules
(infra/penstock_cdk/service/schedules.py). The jobs keep their own budgets, so none holds up the others for long.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, PartitionKey
from penstock_core.limits import (
    AUDIT_RETENTION_MS_DEFAULT,
    COMPACTION_BYTES_PER_DAY_DEFAULT,
    HEADS_AT_ONCE,
    SCRUB_BYTES,
)
from penstock_core.log.repair import NamedRef, Repair, repairs_due
from penstock_service.adapters.memory.messages import MemoryRepairQueue
from penstock_service.adapters.tables.tables import Tables
from penstock_service.audit.settle_audit import settle_audit
from penstock_service.compaction.clean_topics import clean_topics
from penstock_service.compaction.tier import tier
from penstock_service.groups.expire_offsets import expire_offsets
from penstock_service.instance.instance import Instance
from penstock_service.repair.recover_zones import recover_zones
from penstock_service.repair.repair_segment import repair_segment, zones_to_repair
from penstock_service.repair.scrub import scrub
from penstock_service.retention.keep_items import keep_items
from penstock_service.retention.retain import retain
from penstock_service.retention.sweep import sweep
from penstock_service.schedules.run_schedules import run_schedules
from penstock_service.timers.promote_due import promote_due

_BUDGET_MS = 10_000.0  # of a job: a server that stops waits for one step of it at most
_TICK_MS = 1_000
_EXPIRED_AT_ONCE = 10_000  # items: the tables are locked meanwhile

logger = logging.getLogger("penstock.dev")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of the deployed service, and the time between two runs of it here."""

    name: str
    interval_ms: int
    run: Callable[[Instance], object]


def replicate(instance: Instance) -> None:
    """Make the copies that the tails' refs owe, as `penstock_handlers.replicate` does from the log table's stream."""
    for repair in [*_queued(instance)]:
        try:
            repair_segment(instance, repair)
        except PenstockError as error:
            instance.telemetry.log("repair_postponed", segment=repair.segment_id.hex(), error=str(error))
            instance.stores.repair_queue.send(repair)
    for repair in _owed(instance):
        repair_segment(instance, repair)


def expire_items(instance: Instance, tables: Tables) -> None:
    """Remove items whose TTL is over, as DynamoDB does.

    Raised retentions go first: a laptop may have slept since a raise, for longer than the items' TTL. So no item goes
    while a walk has still to copy some.
    """
    kept = keep_items(instance, budget_ms=_BUDGET_MS)
    if kept.is_finished and not kept.failures:
        tables.expire(_EXPIRED_AT_ONCE)


JOBS = (
    Job(name="promote", interval_ms=1_000, run=lambda instance: promote_due(instance, budget_ms=_BUDGET_MS)),
    Job(name="schedules", interval_ms=1_000, run=lambda instance: run_schedules(instance, budget_ms=_BUDGET_MS)),
    Job(name="replicate", interval_ms=5_000, run=replicate),
    Job(name="recover_zones", interval_ms=10_000, run=lambda instance: recover_zones(instance, _BUDGET_MS)),
    Job(name="retain", interval_ms=60_000, run=lambda instance: retain(instance, budget_ms=_BUDGET_MS)),
    Job(
        name="audit",
        interval_ms=1_000,
        run=lambda instance: settle_audit(instance, AUDIT_RETENTION_MS_DEFAULT, budget_ms=_BUDGET_MS),
    ),
    Job(name="expire_offsets", interval_ms=60_000, run=lambda instance: expire_offsets(instance, budget_ms=_BUDGET_MS)),
    Job(
        name="scrub",
        interval_ms=3_600_000,
        run=lambda instance: scrub(instance, budget_ms=_BUDGET_MS, budget_bytes=SCRUB_BYTES),
    ),
    Job(name="tier", interval_ms=3_600_000, run=lambda instance: tier(instance, budget_ms=_BUDGET_MS)),
    Job(
        name="clean",
        interval_ms=3_600_000,
        run=lambda instance: clean_topics(
            instance, budget_ms=_BUDGET_MS, bytes_per_day=COMPACTION_BYTES_PER_DAY_DEFAULT
        ),
    ),
    Job(name="sweep", interval_ms=3_600_000, run=lambda instance: sweep(instance, budget_ms=_BUDGET_MS)),
)


class Background:
    """Runs the jobs in a thread until it is closed. `settle` is called after each job.

    One more job is `expire_items`.
    """

    def __init__(self, instance: Instance, tables: Tables, settle: Callable[[], None]) -> None:
        self._instance = instance
        self._settle = settle
        self._stopping = threading.Event()
        expire = Job(name="expire_items", interval_ms=60_000, run=lambda each: expire_items(each, tables))
        self._jobs = (*JOBS, expire)
        self._due_ms = {job.name: monotonic_ms() + job.interval_ms for job in self._jobs}
        self._thread = threading.Thread(target=self._loop, name="penstock-background", daemon=True)
        self._thread.start()

    def run_due(self, now_ms: int) -> list[str]:
        """Run each job whose time has come, and return their names. A job that fails runs again at its next time."""
        due = [job for job in self._jobs if self._due_ms[job.name] <= now_ms]
        for job in due:
            if self._stopping.is_set():
                break
            self._due_ms[job.name] = now_ms + job.interval_ms
            try:
                job.run(self._instance)
                self._settle()
            except PenstockError as error:
                logger.warning("%s failed, and runs again in %d s: %s", job.name, job.interval_ms // 1_000, error)
            except Exception:
                logger.exception("%s failed by a defect, and runs again in %d s", job.name, job.interval_ms // 1_000)
        self._report()
        return [job.name for job in due]

    def close(self) -> None:
        """Wait for the job that runs, then end the thread."""
        self._stopping.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopping.wait(_TICK_MS / 1_000):
            self.run_due(monotonic_ms())

    def _report(self) -> None:
        """Log what requests and jobs have noted. The counts are metrics in AWS; here nobody reads them."""
        _, entries = self._instance.telemetry.take()
        for name, facts in entries:
            logger.warning("%s %s", name, facts)


def _queued(instance: Instance) -> Iterator[Repair]:
    """The repairs that reads and the scrub have asked for."""
    queue = instance.stores.repair_queue
    while isinstance(queue, MemoryRepairQueue) and queue.repairs:
        yield queue.repairs.pop(0)


def _owed(instance: Instance) -> Iterator[Repair]:
    wanted = zones_to_repair(instance)
    keys = [
        PartitionKey(topic.topic_id, Partition(number))
        for topic in instance.stores.topics.list()
        for number in range(topic.partitions)
    ]
    for start in range(0, len(keys), HEADS_AT_ONCE):
        for key, head in instance.stores.log.heads(keys[start : start + HEADS_AT_ONCE]).items():
            live = [located for located in head.located_tail() if located.end_offset > head.log_start_offset]
            refs = [NamedRef(key=key, located=located) for located in live]
            yield from repairs_due(refs, instance.stores.zone_names, wanted)
