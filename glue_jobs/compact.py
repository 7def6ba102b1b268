"""The job `compact`: merges small refs into large ones of the archive tier, and cleans topics that want that.

Each partition is one task's; what is done with it is penstock_broker/compact.py. For small stores Spark can be left
out: then one process takes the partitions one after the other. Runs may overlap: a lease keeps them apart.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial

from penstock_broker.adapters.aws import Storage
from penstock_broker.compact import Compacted, compact, partitions_of
from penstock_core import limits
from penstock_core.compaction import CompactionSettings
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_spark.job import job_parser, parse_job, spark_session, tell
from penstock_spark.storage import open_broker

COUNTED = (  # what the result line adds up; metrics are made of it (infra/compaction_metrics.py)
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
    """One run. Raises INTERNAL at its end if some pages could not be rewritten, UNKNOWN_TOPIC, and INVALID_REQUEST for
    a partition that the topics do not have."""
    parser = job_parser("compact", "Merges small refs of the log into large ones of the archive tier.")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; may come often")
    parser.add_argument("--partition", action="append", default=[], type=_whole, help="only this; may come often")
    parser.add_argument("--dry-run", action="store_true", help="count what would be merged; change nothing")
    parser.add_argument("--no-spark", action="store_true", help="in this process, one partition after the other")
    parser.add_argument("--age-ms-min", type=_whole, default=limits.COMPACTION_AGE_MS_DEFAULT, help="of segments")
    parser.add_argument("--refs-min", type=_positive, default=limits.COMPACTION_REFS_MIN_DEFAULT, help="of one merge")
    parser.add_argument(
        "--dirty-share-min", type=_share, default=limits.COMPACTION_DIRTY_SHARE_DEFAULT, help="to clean keys from"
    )
    parser.add_argument(
        "--keys-max", type=_positive, default=limits.COMPACTION_KEYS_MAX_DEFAULT, help="in memory, per partition"
    )
    parser.add_argument("--budget-ms", type=_positive, help="of each partition; what is left is the next run's")
    options, storage = parse_job(parser, argv)
    settings = CompactionSettings(
        age_ms_min=options.age_ms_min,
        refs_min=options.refs_min,
        dirty_share_min=options.dirty_share_min,
        keys_max=options.keys_max,
    )
    wanted = _wanted(storage, options.topic, options.partition)
    budget_ms = float("inf") if options.budget_ms is None else float(options.budget_ms)
    run = partial(_compact_all, storage=storage, settings=settings, budget_ms=budget_ms, is_dry_run=options.dry_run)
    started_s = time.perf_counter()
    if options.no_spark:
        done = [*run(wanted)]
    else:
        with spark_session("compact") as spark:
            spread = spark.sparkContext.parallelize(wanted, max(1, len(wanted)))
            done = spread.mapPartitions(run).collect()
    for each in done:
        tell("compacted", **asdict(each))
    failures = sum(each.failures for each in done)
    tell(
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


def _wanted(storage: Storage, topics: Sequence[str], partitions: Sequence[int]) -> list[tuple[str, int]]:
    found = [(name, int(partition)) for name, partition in partitions_of(open_broker(storage), topics)]
    unknown = set(partitions) - {partition for _, partition in found}
    if unknown:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST, f"--partition {min(unknown)}: no topic that is to be compacted has it"
        )
    return [each for each in found if not partitions or each[1] in partitions]


def _compact_all(
    wanted: Iterable[tuple[str, int]],
    *,
    storage: Storage,
    settings: CompactionSettings,
    budget_ms: float,
    is_dry_run: bool,
) -> Iterator[Compacted]:
    for topic, partition in wanted:
        done = Compacted(topic=topic, partition=partition)
        try:
            done = compact(open_broker(storage), topic, partition, settings, budget_ms=budget_ms, is_dry_run=is_dry_run)
        except PenstockError as error:
            if error.code.category is not Category.NOT_FOUND:  # deleted since
                done.failures, done.errors = 1, [str(error)]
        yield done


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _positive(text: str) -> int:
    if _whole(text) == 0:
        raise argparse.ArgumentTypeError("0 is too small: give 1 or more")
    return int(text)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1")
    return share


if __name__ == "__main__":
    main(sys.argv[1:])
