"""What one task reads of a topic of many partitions that nobody has compacted: a get for each request, or many.

A request appends to all partitions at once, so what it stored lies side by side in one segment. Storage calls and
seconds, in turns, on the local stack that `make run` or `penstock local up` has started.
"""

import json
import os
import time
from typing import Any

import click
from rich.console import Console

from bench.stack import to_table
from penstock_broker.adapters.aws import aws_broker
from penstock_broker.adapters.storage_calls import StorageCalls
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.delete_topic import delete_topic
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.quorum import Acks
from penstock_core.records import NewRecord, encode
from penstock_spark.options import ReadOptions, parse_read_options
from penstock_spark.planning import plan_slices
from penstock_spark.reading import read_slices
from penstock_spark.slices import Slice
from penstock_spark.snapshot import choose_offsets
from penstock_spark.storage import find_storage

TOPIC = "bench-shared-gets"
RECORD_BYTES = 1_000
MB = 1_000_000


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--partitions", default=50, show_default=True, type=click.IntRange(1, 100))
@click.option("--requests", default=40, show_default=True, type=click.IntRange(1), help="Each to all partitions.")
@click.option("--records", default=4, show_default=True, type=click.IntRange(1), help="Of a request and partition.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often each is read.")
def main(as_json: bool, partitions: int, requests: int, records: int, rounds: int) -> None:
    calls = StorageCalls()
    broker = aws_broker(find_storage(), calls)
    create_topic(broker, TOPIC, partitions, {})
    try:
        for _ in range(requests):
            _append(broker, partitions, records)
        options = parse_read_options({"subscribe": TOPIC}, is_stream=False)
        tasks = plan_slices(broker, choose_offsets(broker, options), partition_bytes=options.partition_bytes)
        rows = [
            {"gets": name, **_read(broker, calls, options, tasks, shares)}
            for _ in range(rounds)
            for name, shares in (("one per partition", False), ("shared", True))
        ]
    finally:
        delete_topic(broker, TOPIC)
    if as_json:
        click.echo(json.dumps(rows))
    else:
        Console().print(to_table(f"{partitions} partitions, {requests} requests", rows))


def _append(broker: Broker, partitions: int, records: int) -> None:
    """Until every partition has it: an emulator on a busy machine is late now and then."""
    now_ms = int(time.time() * 1_000)
    data = encode([NewRecord(now_ms, None, os.urandom(RECORD_BYTES)) for _ in range(records)])
    left = [ProduceEntry(topic=TOPIC, partition=number, data=data) for number in range(partitions)]
    while left:
        results = produce(broker, left, Acks.QUORUM)
        left = [entry for entry, result in zip(left, results, strict=True) if isinstance(result, PenstockError)]


def _read(
    broker: Broker, calls: StorageCalls, options: ReadOptions, tasks: list[tuple[Slice, ...]], shares: bool
) -> dict[str, Any]:
    before, began_s = calls.snapshot(), time.perf_counter()
    read = sum(
        len(stored.data)
        for slices in tasks
        for stored in read_slices(
            broker, slices, range_bytes=options.range_bytes, fails_on_data_loss=True, shares_ranges=shares
        )
    )
    seconds = time.perf_counter() - began_s
    return {
        "MB": round(read / MB, 1),
        "GetObject": calls.since(before).get("s3.GetObject", 0),
        "seconds": round(seconds, 2),
    }


if __name__ == "__main__":
    main()
