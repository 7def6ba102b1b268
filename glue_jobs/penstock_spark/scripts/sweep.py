"""The job `sweep`: removes segments that no live ref names, makes missing copies, and reads all copies on request.

It serves stores that are too large for the scheduled functions `sweep` and `scrub` and their time limit. Those
functions keep running, and may run at the same time. penstock_spark/sweeping.py tells how the job spreads the work, and
why that is safe.
"""

import sys
from collections.abc import Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS
from penstock_spark.arguments import duration_ms
from penstock_spark.job import job_parser, log_event, parse_job, spark_session
from penstock_spark.sweeping import Counts, begin_round, scrub_store, sweep_store


def main(argv: Sequence[str]) -> None:
    """Run once. Raises INTERNAL at the end if a part of the work failed."""
    parser = job_parser("sweep", "Removes segments that no live ref names, and makes copies that zones miss.")
    parser.add_argument("--checksums", action="store_true", help="also read every copy, and heal bad ones")
    parser.add_argument("--dry-run", action="store_true", help="count garbage and missing copies, and change nothing")
    parser.add_argument("--grace-ms", type=duration_ms, default=SWEEP_GRACE_MS, help="spare younger segments")
    parser.add_argument(
        "--log-start-grace-ms",
        type=duration_ms,
        default=LOG_START_GRACE_MS,
        help="spare segments below the log start for so long, for slow readers",
    )
    options, storage = parse_job(parser, argv)
    if options.checksums and options.dry_run:
        parser.error("--dry-run changes nothing, and --checksums heals: give one of them")
    with spark_session("sweep") as spark:
        sweep_round, portions = begin_round(
            storage,
            grace_ms=options.grace_ms,
            log_start_grace_ms=options.log_start_grace_ms,
            is_dry_run=options.dry_run,
        )
        log_event("marking", partitions=sum(len(keys) for _, keys in portions))
        counts, lines = sweep_store(spark.sparkContext, sweep_round, portions)
        scrubbed: Counts = {}
        if options.checksums:
            log_event("scrubbing", **counts)
            scrubbed, more = scrub_store(spark.sparkContext, sweep_round, portions)
            lines += more
    for line in lines:
        log_event(**line)
    failures = counts.get("failures", 0) + scrubbed.get("failures", 0)
    log_event("result", job="sweep", is_dry_run=options.dry_run, swept=counts, scrubbed=scrubbed, failures=failures)
    if failures:
        raise PenstockError(
            ErrorCode.INTERNAL, f"{failures} lists, deletes, copies or refs failed: the lines above say why"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
