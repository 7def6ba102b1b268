"""The job `analyze`: what is in the topics hour by hour, how far groups are behind, and a report of both.

All results lie in one folder (docs/jobs.md): `hours/` with a file per hour, `lag/` and `runs/` with one per run, and
`report.html`. A run goes on where the runs before it have ended, so each record is read once or, in hours that may
still get some, twice. A run that dies leaves no note: the next does its work again.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from penstock_spark.analysis.folder import open_folder
from penstock_spark.analysis.hourly import count_hours, hour_text, write_hours
from penstock_spark.analysis.lag import measure_lag, write_lag
from penstock_spark.analysis.measure import HOUR_MS, measured
from penstock_spark.analysis.report import render
from penstock_spark.analysis.runs import EARLIEST, LAST, NOW, choose_window, last_complete, note_run
from penstock_spark.analysis.summary import summarize
from penstock_spark.job import job_parser, parse_job, spark_session, tell
from penstock_spark.storage import open_broker

REPORT = "report.html"
RESULTS = "reports"
DAY_MS = 24 * HOUR_MS
RUNS_IN_TREND = 60


def main(argv: Sequence[str]) -> None:
    """One run."""
    parser = job_parser("analyze", "Counts records by topic, partition and hour, measures lag, and writes a report.")
    parser.add_argument(
        "--output", help=f"folder, or s3://bucket/prefix, of the results; else {RESULTS} in the bucket of --results"
    )
    parser.add_argument(
        "--from", dest="from_hour", default=LAST, help="first hour, as 2026-11-21T14; or last (default), or earliest"
    )
    parser.add_argument("--to", dest="to_hour", default=NOW, help="hour to end before; or now (default)")
    parser.add_argument(
        "--late-hours", type=_whole, default=1, help="for how long hours may still get records, and are counted again"
    )
    parser.add_argument("--report-days", type=_whole, default=7, help="how many days the report goes back")
    options, storage = parse_job(parser, argv)
    if not options.output and storage.results is None:
        parser.error("say where the results go: --output FOLDER, --output s3://bucket/prefix or --results BUCKET")
    folder = open_folder(options.output or f"s3://{storage.results}/{RESULTS}", storage)
    broker = open_broker(storage)
    now_ms = broker.clock.now_ms()
    run = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3] + "Z"
    late_ms = options.late_hours * HOUR_MS
    complete_to_ms = last_complete(folder)
    window = choose_window(options.from_hour, options.to_hour, complete_to_ms=complete_to_ms, now_ms=now_ms)
    tell("counting", from_hour=EARLIEST if not window.from_ms else hour_text(window.from_ms))
    topics: dict[str, int] = {topic.name: topic.partitions for topic in broker.topics.list()}
    with spark_session("analyze") as spark:
        from pyspark import StorageLevel

        records = measured(spark, storage, window).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            written = write_hours(count_hours(records), folder, topics)
        finally:
            records.unpersist()
    lags = measure_lag(broker, broker.clock.now_ms())
    write_lag(folder, run, lags)
    summary = summarize(
        folder,
        from_ms=window.to_ms - options.report_days * DAY_MS,
        to_ms=window.to_ms,
        topics=topics,
        lags=lags,
        runs_max=RUNS_IN_TREND,
    )
    document = render(summary, title="Penstock: topics and groups", run_ms=now_ms, place=folder.place)
    folder.put(REPORT, document.encode())
    note = note_run(folder, run, window, complete_to_ms=complete_to_ms, now_ms=now_ms, late_ms=late_ms)
    tell(
        "result",
        job="analyze",
        **written,
        group_partitions=len(lags),
        complete_to=hour_text(note.complete_to_ms),
        report=f"{folder.place}/{REPORT}",
    )


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 to 9999")
    return int(text)


if __name__ == "__main__":
    main(sys.argv[1:])
