"""The job `sweep`: removes what no live ref names, makes copies that are missing, and reads all copies if asked to.

For stores that the scheduled functions `sweep` and `scrub` do not get through in their time; those stay, and both may
run at once. How it is spread, and why that is safe: penstock_spark/sweeping.py.
"""

import argparse
import sys
from collections.abc import Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import LOG_START_GRACE_MS, SWEEP_GRACE_MS
from penstock_spark.job import job_parser, parse_job, spark_session, tell
from penstock_spark.sweeping import Counts, begin_round, scrub_store, sweep_store


def main(argv: Sequence[str]) -> None:
    """One run. Raises INTERNAL at its end if something in it could not be done."""
    parser = job_parser("sweep", "Removes segments that no live ref names, and makes copies that zones miss.")
    parser.add_argument("--checksums", action="store_true", help="also read every copy, and heal what is bad")
    parser.add_argument(
        "--dry-run", action="store_true", help="count what would go and what is missing; change nothing"
    )
    parser.add_argument("--grace-ms", type=_duration_ms, default=SWEEP_GRACE_MS, help="spare what is younger")
    parser.add_argument(
        "--log-start-grace-ms", type=_duration_ms, default=LOG_START_GRACE_MS, help="for which readers may linger"
    )
    options, storage = parse_job(parser, argv)
    if options.checksums and options.dry_run:
        parser.error("--dry-run changes nothing, and --checksums heals: give one of them")
    with spark_session("sweep") as spark:
        this, portions = begin_round(
            storage,
            grace_ms=options.grace_ms,
            log_start_grace_ms=options.log_start_grace_ms,
            is_dry_run=options.dry_run,
        )
        tell("marking", partitions=sum(len(keys) for _, keys in portions))
        counts, lines = sweep_store(spark.sparkContext, this, portions)
        scrubbed: Counts = {}
        if options.checksums:
            tell("scrubbing", **counts)
            scrubbed, more = scrub_store(spark.sparkContext, this, portions)
            lines += more
    for line in lines:
        tell(**line)
    failures = counts.get("failures", 0) + scrubbed.get("failures", 0)
    tell("result", job="sweep", is_dry_run=options.dry_run, swept=counts, scrubbed=scrubbed, failures=failures)
    if failures:
        raise PenstockError(
            ErrorCode.INTERNAL, f"{failures} lists, deletes, copies or refs failed: the lines above say why"
        )


def _duration_ms(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of milliseconds")
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1:])
