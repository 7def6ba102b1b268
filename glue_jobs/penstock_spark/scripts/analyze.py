"""The job `analyze`: hourly figures of the topics, and the lag of the groups.

All results lie in one place (docs/reference/analyze.md): `hours/` with a file per hour, `lag/` and `runs/` with a file
per run. A run continues where the earlier runs ended. So it reads each record once, or twice in hours
that may still receive records. A run that dies leaves no note, and the next run does its work again.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_spark.analysis.hourly import count_hours, hour_text, write_hours
from penstock_spark.analysis.lag import measure_lag, write_lag
from penstock_spark.analysis.measure import HOUR_MS, SkippedBatch, TimeWindow, measured_records, skipped_batches
from penstock_spark.analysis.runs import EARLIEST, LAST, NOW, choose_window, last_complete, note_run
from penstock_spark.arguments import hour_count
from penstock_spark.job import (
    add_on_undecodable,
    describe_failure,
    job_parser,
    log_event,
    parse_job,
    spark_session,
)
from penstock_spark.result_store import open_results, results_uri
from penstock_spark.storage import open_instance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORTS = "reports"  # the folder in the bucket for results, unless --output names another place


def main(argv: Sequence[str]) -> None:
    """Run once.

    Raises UNKNOWN_TOPIC, INVALID_REQUEST for wrong hours or an empty range of hours, and STORAGE_UNAVAILABLE if the
    results cannot be written. All three come before the first record is read. Raises INTERNAL at the end if a topic
    failed. The other topics are counted then, and no hour counts as complete: the next run counts them again.
    """
    parser = job_parser("analyze", "Counts records by topic, partition and hour, and measures the lag of groups.")
    _add_options(parser)
    options, storage = parse_job(parser, argv)
    uri = results_uri(options.output, storage, REPORTS)
    results = open_results(uri, storage)
    instance = open_instance(storage)
    only = sorted({instance.topic_cache.read_through(name).name for name in options.topic})
    now_ms = instance.clock.now_ms()
    run = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3] + "Z"
    complete_to_ms = last_complete(results, only)
    window = choose_window(options.from_hour, options.to_hour, complete_to_ms=complete_to_ms, now_ms=now_ms)
    lags = measure_lag(instance, now_ms)
    write_lag(results, run, lags)
    log_event("counting", from_hour=EARLIEST if not window.from_ms else hour_text(window.from_ms), topics=only or "all")
    topics = {
        str(each.name): each.partitions for each in instance.stores.topics.list() if not only or each.name in only
    }
    with spark_session("analyze") as spark:
        counting = _Counting(spark, storage, uri, window, topics, skips_undecodable=options.on_undecodable == "skip")
        counting.count(only)
    note = note_run(
        results,
        run,
        window,
        topics=only,
        complete_to_ms=complete_to_ms,
        now_ms=now_ms,
        late_ms=options.late_hours * HOUR_MS,
        is_complete=not counting.failed,
    )
    log_event(
        "result",
        job="analyze",
        **counting.written,
        **counting.skipped_facts(),
        failed=counting.failed,
        group_partitions=len(lags),
        complete_to=hour_text(note.complete_to_ms),
    )
    if counting.failed:
        raise PenstockError(
            ErrorCode.INTERNAL,
            f"{len(counting.failed)} topics failed, and the hours lack their new records: the lines above name them",
        )


class _Counting:
    """Counts the window's records into the files of the hours.

    All topics are counted together. If that fails, each is counted alone, so that one bad topic does not stop the
    others. Counting a topic twice changes nothing (hourly.py).
    """

    def __init__(
        self,
        spark: "SparkSession",
        storage: Storage,
        uri: str,
        window: TimeWindow,
        topics: Mapping[str, int],
        *,
        skips_undecodable: bool,
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._uri = uri
        self._window = window
        self._topics = topics
        self._skips = skips_undecodable
        self._skipped: set[SkippedBatch] = set()
        self.failed: list[str] = []
        self.written: dict[str, int] = {"hours": 0, "rows": 0, "records": 0}

    def count(self, only: Sequence[str]) -> None:
        """Count these topics, or all if none is named."""
        names = sorted(self._topics)
        if self._is_counted(names[0] if len(names) == 1 else "all together", only):
            return
        if len(names) == 1:
            self.failed = names
            return
        self.failed = [name for name in names if not self._is_counted(name, [name])]

    def skipped_facts(self) -> dict[str, int]:
        """Undecodable batches that were left out, and the offsets that they cover."""
        offsets = sum(end - start for _, _, start, end in self._skipped)
        return {"skipped_batches": len(self._skipped), "skipped_offsets": offsets}

    def _is_counted(self, label: str, names: Sequence[str]) -> bool:
        try:
            done = self._count(names)
        except Exception as error:  # the topic's edge: Spark raises its own for what a worker raised
            log_event("failed", topic=label, error=describe_failure(error))
            return False
        self.written["hours"] = max(self.written["hours"], done["hours"])
        self.written["rows"] += done["rows"]
        self.written["records"] += done["records"]
        return True

    def _count(self, names: Sequence[str]) -> dict[str, int]:
        from pyspark import StorageLevel

        skipped = skipped_batches(self._spark.sparkContext) if self._skips else None
        measured = measured_records(self._spark, self._storage, self._window, names, skipped)
        records = measured.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            written = write_hours(count_hours(records), self._uri, self._storage, self._topics)
        finally:
            records.unpersist()
        self._skipped |= skipped.value if skipped is not None else set()
        return written


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_on_undecodable(parser)
    parser.add_argument("--topic", action="append", default=[], help="only this topic; repeat it for several topics")
    parser.add_argument("--output", help="s3://bucket/prefix or a folder; else reports/ in the bucket --results")
    parser.add_argument(
        "--from",
        dest="from_hour",
        default=LAST,
        help="first hour, such as 2026-11-21T14; or last (default), or earliest",
    )
    parser.add_argument("--to", dest="to_hour", default=NOW, help="the hour after the last one; or now (default)")
    parser.add_argument(
        "--late-hours",
        type=hour_count,
        default=1,
        help="the hours at the end that later runs count again (default 1)",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
