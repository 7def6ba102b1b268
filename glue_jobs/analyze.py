"""The job `analyze`: what is in the topics hour by hour, how far groups are behind, and a report of both.

All results lie in one place (docs/jobs.md): `hours/` with a file per hour, `lag/` and `runs/` with one per run, and
the report. A run goes on where the runs before it have ended, so each record is read once or, in hours that may
still get some, twice. A run that dies leaves no note: the next does its work again.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock_spark.analysis.hourly import count_hours, hour_text, write_hours
from penstock_spark.analysis.lag import measure_lag, write_lag
from penstock_spark.analysis.measure import HOUR_MS, measured
from penstock_spark.analysis.report import render
from penstock_spark.analysis.runs import EARLIEST, LAST, NOW, choose_window, last_complete, note_run
from penstock_spark.analysis.summarize import summarize
from penstock_spark.job import job_parser, parse_job, spark_session, tell
from penstock_spark.result_store import open_results, results_uri
from penstock_spark.storage import open_broker

REPORTS = "reports"  # of the bucket for results, unless a job is told where
REPORT, REPORT_OF_TOPICS = "report.html", "report-topics.html"
DAY_MS = 24 * HOUR_MS
RUNS_IN_TREND = 60
REPORT_DAYS_MAX = 366  # a get for each hour of them


def main(argv: Sequence[str]) -> None:
    """One run. Raises UNKNOWN_TOPIC, INVALID_REQUEST for hours that are none or lie the wrong way round, and
    STORAGE_UNAVAILABLE where results cannot be written: all three before any record is read."""
    parser = job_parser("analyze", "Counts records by topic, partition and hour, measures lag, and writes a report.")
    parser.add_argument("--topic", action="append", default=[], help="only this topic; may come often")
    parser.add_argument("--output", help="s3://bucket/prefix or a folder; else reports/ in the bucket --results")
    parser.add_argument(
        "--from", dest="from_hour", default=LAST, help="first hour, as 2026-11-21T14; or last (default), or earliest"
    )
    parser.add_argument("--to", dest="to_hour", default=NOW, help="hour to end before; or now (default)")
    parser.add_argument(
        "--late-hours", type=_whole, default=1, help="for how long hours may still get records, and are counted again"
    )
    parser.add_argument("--report-days", type=_days, default=7, help="how many days the report goes back")
    options, storage = parse_job(parser, argv)
    uri = results_uri(options.output, storage, REPORTS)
    results = open_results(uri, storage)
    broker = open_broker(storage)
    only = sorted({broker.directory.look_up(name).name for name in options.topic})
    now_ms = broker.clock.now_ms()
    run = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3] + "Z"
    complete_to_ms = last_complete(results, only)
    window = choose_window(options.from_hour, options.to_hour, complete_to_ms=complete_to_ms, now_ms=now_ms)
    lags = measure_lag(broker, now_ms)
    write_lag(results, run, lags)
    tell("counting", from_hour=EARLIEST if not window.from_ms else hour_text(window.from_ms), topics=only or "all")
    topics = {str(each.name): each.partitions for each in broker.topics.list() if not only or each.name in only}
    with spark_session("analyze") as spark:
        from pyspark import StorageLevel

        records = measured(spark, storage, window, only).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            written = write_hours(count_hours(records), uri, storage, topics)
        finally:
            records.unpersist()
    summary = summarize(
        results,
        from_ms=window.to_ms - options.report_days * DAY_MS,
        to_ms=window.to_ms,
        topics=topics,
        only=only,
        lags=lags,
        runs_max=RUNS_IN_TREND,
    )
    report = REPORT_OF_TOPICS if only else REPORT
    document = render(summary, title="Penstock: topics and groups", run_ms=now_ms, place=results.uri("").rstrip("/"))
    results.put(report, document.encode())
    note = note_run(
        results,
        run,
        window,
        topics=only,
        complete_to_ms=complete_to_ms,
        now_ms=now_ms,
        late_ms=options.late_hours * HOUR_MS,
    )
    tell(
        "result",
        job="analyze",
        **written,
        group_partitions=len(lags),
        complete_to=hour_text(note.complete_to_ms),
        report=results.uri(report),
    )


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to 9999")
    return int(text)


def _days(text: str) -> int:
    if not 1 <= _whole(text) <= REPORT_DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text} days: give 1 to {REPORT_DAYS_MAX}")
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1:])
