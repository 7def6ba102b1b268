"""The task `clean`: keeps the latest record of each key in topics with `cleanup_policy=compact`."""

import os
from typing import Any

from penstock_service.compaction.clean_topics import clean_topics
from penstock_service.instance.instance import Instance


def run(instance: Instance) -> dict[str, Any]:
    """Cleans within the time of `PENSTOCK_CLEAN_BUDGET_MS` and the bytes of `PENSTOCK_CLEAN_BYTES_PER_DAY`."""
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
