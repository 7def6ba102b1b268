"""Measures how one task reads many partitions of a topic before compaction: with one get per request, or with many.

A request appends to all partitions at once, so its batches lie side by side in one segment. The two ways take turns. It
needs the local stack that `make run` or `penstock local up` starts.
"""

import os
import time

import click

from bench.loads.filling import append_to_all
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.records.codec import NewRecord, encode
from penstock_service.adapters.aws import aws_instance
from penstock_service.adapters.storage_calls import StorageCalls
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import delete_topic
from penstock_service.topics.create_topic import create_topic
from penstock_spark.decode.reading import read_slices
from penstock_spark.plan.options import ReadOptions, parse_read_options
from penstock_spark.plan.planning import plan_slices
from penstock_spark.plan.slices import Slice
from penstock_spark.plan.snapshot import choose_offsets
from penstock_spark.storage import find_storage

TOPIC = "bench-shared-gets"
RECORD_BYTES = 1_000
MB = 1_000_000


@click.command(help=__doc__)
@reported("shared_gets")
@click.option("--partitions", default=50, show_default=True, type=click.IntRange(1, 100))
@click.option("--requests", default=40, show_default=True, type=click.IntRange(1), help="Each to all partitions.")
@click.option("--records", default=4, show_default=True, type=click.IntRange(1), help="Records for each partition.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often each is read.")
def main(report: Report, partitions: int, requests: int, records: int, rounds: int) -> None:
    calls = StorageCalls()
    instance = aws_instance(find_storage(), calls)
    create_topic(instance, TOPIC, partitions, {})
    now_ms = instance.clock.now_ms()
    try:
        for _ in range(requests):
            batch = encode([NewRecord(now_ms, None, os.urandom(RECORD_BYTES)) for _ in range(records)])
            append_to_all(instance, TOPIC, partitions, batch)
        options = parse_read_options({"subscribe": TOPIC}, is_stream=False)
        tasks = plan_slices(instance, choose_offsets(instance, options), partition_bytes=options.partition_bytes)
        rows: list[Row] = [
            {"gets": name, **_read(instance, calls, options, tasks, shares)}
            for _ in range(rounds)
            for name, shares in (("one per partition", False), ("shared", True))
        ]
    finally:
        delete_topic(instance, TOPIC)
    report.show("gets", rows)


def _read(
    instance: Instance, calls: StorageCalls, options: ReadOptions, tasks: list[tuple[Slice, ...]], shares: bool
) -> Row:
    before, began_s = calls.snapshot(), time.perf_counter()
    read = sum(
        len(stored.data)
        for slices in tasks
        for stored in read_slices(
            instance, slices, range_bytes=options.range_bytes, fails_on_data_loss=True, shares_ranges=shares
        )
    )
    seconds = time.perf_counter() - began_s
    return {
        "mb": round(read / MB, 1),
        "get_objects": calls.since(before).get("s3.GetObject", 0),
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    main()
