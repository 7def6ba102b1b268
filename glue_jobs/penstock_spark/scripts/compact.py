"""The job `compact`: merges small refs into large ones of the archive tier, and cleans topics with that setting.

Each partition is one task; penstock_service/compaction/compact.py does its work. A small store needs no Spark: then one
process takes the partitions one after the other. Runs may overlap, because a lease keeps them apart.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from penstock_core import limits
from penstock_core.compaction.merging import CompactionSettings
from penstock_core.errors import ErrorCode, PenstockError
from penstock_service.adapters.aws import Storage
from penstock_service.compaction.compact import CompactionResult, attempt_compact, partitions_of
from penstock_spark.arguments import positive_number, share, whole_number
from penstock_spark.job import job_parser, log_event, parse_job, spark_session
from penstock_spark.storage import open_instance

COUNTED = (  # the result line adds these up, and infra/penstock_cdk/alarms/compaction_metrics.py makes metrics of it
    "runs",
    "refs_before",
    "refs_after",
    "bytes_before",
    "bytes_after",
    "refused",
    "failures",
    "batches_left_whole",
    "are_keys_left",
)


def main(argv: Sequence[str]) -> None:
    """Run once.

    Raises INTERNAL at the end if some pages could not be rewritten, UNKNOWN_TOPIC, and INVALID_REQUEST for a partition
    that the topics do not have.
    """
    parser = job_parser("compact", "Merges small refs of the log into large ones of the archive tier.")
    _add_options(parser)
    options, storage = parse_job(parser, argv)
    settings = CompactionSettings(
        age_ms_min=options.age_ms_min,
        refs_min=options.refs_min,
        dirty_share_min=options.dirty_share_min,
        keys_max=options.keys_max,
    )
    chosen = _chosen_partitions(storage, options.topic, options.partition)
    budget_ms = float("inf") if options.budget_ms is None else float(options.budget_ms)
    run = partial(_compact_all, storage=storage, settings=settings, budget_ms=budget_ms, is_dry_run=options.dry_run)
    started_s = time.perf_counter()
    if options.no_spark:
        done = [*run(chosen)]
    else:
        with spark_session("compact") as spark:
            tasks = spark.sparkContext.parallelize(chosen, max(1, len(chosen)))
            done = tasks.mapPartitions(run).collect()
    for each in done:
        log_event("compacted", **asdict(each))
    failures = sum(each.failures for each in done)
    log_event(
        "result",
        job="compact",
        is_dry_run=options.dry_run,
        seconds=round(time.perf_counter() - started_s, 3),
        partitions=len(done),
        held=sum(each.is_held for each in done),
        unfinished=sum(not each.is_finished for each in done),
        **{name: sum(getattr(each, name) for each in done) for name in COUNTED},
    )
    if failures:
        raise PenstockError(ErrorCode.INTERNAL, f"{failures} runs of pages failed: the lines above say why")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", action="append", default=[], help="only this topic; repeat it for several topics")
    parser.add_argument(
        "--partition", action="append", default=[], type=whole_number, help="only this partition; may be repeated"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="count the refs that a run would merge, and change nothing"
    )
    parser.add_argument("--no-spark", action="store_true", help="work in this process, one partition after the other")
    parser.add_argument(
        "--age-ms-min",
        type=whole_number,
        default=limits.COMPACTION_AGE_MS_DEFAULT,
        help="merge segments from this age on",
    )
    parser.add_argument(
        "--refs-min",
        type=positive_number,
        default=limits.COMPACTION_REFS_MIN_DEFAULT,
        help="merge runs of at least so many refs",
    )
    parser.add_argument(
        "--dirty-share-min",
        type=share,
        default=limits.COMPACTION_DIRTY_SHARE_DEFAULT,
        help="clean a partition once this share of its bytes is not cleaned",
    )
    parser.add_argument(
        "--keys-max",
        type=positive_number,
        default=limits.COMPACTION_KEYS_MAX_DEFAULT,
        help="keys in memory per partition, at most",
    )
    parser.add_argument("--budget-ms", type=positive_number, help="time for each partition; the next run does the rest")


def _chosen_partitions(storage: Storage, topics: Sequence[str], partitions: Sequence[int]) -> list[tuple[str, int]]:
    found = [(name, int(partition)) for name, partition in partitions_of(open_instance(storage), topics)]
    unknown = set(partitions) - {partition for _, partition in found}
    if unknown:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"--partition {min(unknown)}: none of the topics to compact has it"
        )
    return [each for each in found if not partitions or each[1] in partitions]


def _compact_all(
    chosen: Iterable[tuple[str, int]],
    *,
    storage: Storage,
    settings: CompactionSettings,
    budget_ms: float,
    is_dry_run: bool,
) -> Iterator[CompactionResult]:
    for topic, partition in chosen:
        try:
            result = attempt_compact(
                open_instance(storage), topic, partition, settings, budget_ms=budget_ms, is_dry_run=is_dry_run
            )
        except Exception as error:  # the partition's edge: the others are compacted whatever it is
            result = CompactionResult(topic=topic, partition=partition)
            result = result.failed(PenstockError(ErrorCode.INTERNAL, f"{type(error).__name__}: {error!s:.500}"))
        yield result


if __name__ == "__main__":
    main(sys.argv[1:])
