"""The function `hourly`: the tasks that read and write many segments, which schedules start each hour.

Each gives the figures of its log line.
"""

import os
from dataclasses import asdict
from typing import Any

from penstock_handlers.edge.scheduled import Task, task_entry_point
from penstock_service.compaction.clean_topics import clean_topics
from penstock_service.compaction.tier import tier
from penstock_service.instance.instance import Instance
from penstock_service.repair.scrub import scrub


# DOC The task `scrub`: each run reads a part of all copies, and heals missing and bad ones.
def run_scrub(instance: Instance) -> dict[str, Any]:
    """Reads a part of all copies, and heals missing and bad ones.

    It keeps within the time of `PENSTOCK_SCRUB_BUDGET_MS` and the bytes of `PENSTOCK_SCRUB_BYTES`.
    """
    done = scrub(
        instance,
        budget_ms=int(os.environ["PENSTOCK_SCRUB_BUDGET_MS"]),
        budget_bytes=int(os.environ["PENSTOCK_SCRUB_BYTES"]),
    )
    return asdict(done)


# DOC The task `tier`: moves segments that have grown old from the zones to the archive.
def run_tier(instance: Instance) -> dict[str, Any]:
    """Moves segments that have grown old from the zones to the archive, partition by partition.

    Reads `PENSTOCK_TIER_BUDGET_MS`.
    """
    done = tier(instance, budget_ms=int(os.environ["PENSTOCK_TIER_BUDGET_MS"]))
    return {
        "partitions_tiered": done.partitions,
        "portions_tiered": done.portions,
        "partitions_held": done.held,
        "tiered_bytes": done.bytes_moved,
        "zone_bytes_stale": done.bytes_stale,
        "tiering_failed": done.failures,
        "tiering_unfinished": int(not done.is_finished),
    }


# DOC The task `clean`: keeps the latest record of each key in topics with `cleanup_policy=compact`.
def run_clean(instance: Instance) -> dict[str, Any]:
    """Keeps the latest record of each key in topics with `cleanup_policy=compact`.

    It keeps within the time of `PENSTOCK_CLEAN_BUDGET_MS` and the bytes of `PENSTOCK_CLEAN_BYTES_PER_DAY`.
    """
    done = clean_topics(
        instance,
        budget_ms=int(os.environ["PENSTOCK_CLEAN_BUDGET_MS"]),
        bytes_per_day=int(os.environ["PENSTOCK_CLEAN_BYTES_PER_DAY"]),
    )
    return {
        "partitions_cleaned": done.passes,
        "partitions_served": done.partitions,
        "partitions_held": done.held,
        "cleaned_bytes": done.bytes_cleaned,
        "cleaning_bytes_left": done.bytes_left,
        "cleaning_bytes_too_large": done.bytes_too_large,
        "cleaning_bytes_late": done.bytes_late,
        "batches_left_whole": done.batches_left_whole,
        "cleaning_failed": done.failures,
        "cleaning_unfinished": int(not done.is_finished),
    }


handler = task_entry_point(
    {
        "scrub": Task(run_scrub),
        "tier": Task(run_tier),
        "clean": Task(run_clean, watched=("cleaning_bytes_left", "cleaning_bytes_too_large")),
    }
)
