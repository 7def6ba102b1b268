"""What archiving and replaying cost in CPU, on one core: no Spark, no network, storage in memory and a folder.

Beside `bench.archive`, this tells what the code takes from what Spark, HTTP and the emulator take. One partition,
batches of 256 KiB in appends of 1 MiB; values are random, so they do not compress. Best of several rounds.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.archive import MB, SIZES, to_table
from penstock_broker.adapters.aws import Storage
from penstock_broker.adapters.memory import memory_broker
from penstock_broker.broker import Broker
from penstock_broker.create_topic import create_topic
from penstock_broker.produce import ProduceEntry, produce
from penstock_core.errors import PenstockError
from penstock_core.limits import MIB
from penstock_core.quorum import Acks
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, encode
from penstock_core.topic import Topic
from penstock_spark.archive_files import archive_group
from penstock_spark.archive_table import ParquetTable, TableKind, claim_table, find_plan
from penstock_spark.archiving import archive_topic
from penstock_spark.replay_lane import Target, replay_lane
from penstock_spark.replay_source import ParquetRows, Selection, windows_of
from penstock_spark.replaying import run_replay
from penstock_spark.result_store import open_results

BATCH_BYTES = 256 * 1024
NOWHERE = Storage(topics_table="", log_table="", groups_table="", repair_queue_url="", zones=(), archive="")


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--mb", default=50, show_default=True, help="How many MB of values.")
@click.option("--rounds", default=3, show_default=True)
def main(as_json: bool, mb: int, rounds: int) -> None:
    rows = [row for value_bytes in (1_024, 100) for row in measure(value_bytes, mb, rounds)]
    click.echo(json.dumps(rows, indent=2)) if as_json else Console().print(to_table("one core", rows))


def measure(value_bytes: int, mb: int, rounds: int) -> list[dict[str, Any]]:
    """MB of values and records for a second of CPU time, of each step."""
    seconds: dict[str, float] = {}
    for _ in range(rounds):
        broker = memory_broker()
        source, target = (create_topic(broker, name, 1, {}) for name in ("source", "target"))
        records = fill(broker, source, value_bytes, mb * MB // value_bytes)
        with tempfile.TemporaryDirectory() as folder:
            for step, run in (
                ("archive", lambda: archive(broker, source, folder)),  # noqa: B023 - runs at once
                ("replay", lambda: replay(broker, source, target, folder)),  # noqa: B023
            ):
                seconds[step] = min(cpu_seconds(run), seconds.get(step, float("inf")))
    return [
        {
            "step": f"{step}, {value_bytes} B",
            "MB/s": round(records * value_bytes / MB / taken),
            "records/s": round(records / taken),
        }
        for step, taken in seconds.items()
    ]


def fill(broker: Broker, topic: Topic, value_bytes: int, count: int) -> int:
    """How many records were appended."""
    chance, now_ms, per_batch = random.Random(1), broker.clock.now_ms(), BATCH_BYTES // value_bytes
    batch = encode(
        [NewRecord(now_ms, b"key-%d" % (each % 1_000), chance.randbytes(value_bytes)) for each in range(per_batch)]
    )
    for _ in range(0, count, 4 * per_batch):
        [result] = produce(broker, [ProduceEntry(topic=topic.name, partition=0, data=batch * 4)], Acks.QUORUM)
        if isinstance(result, PenstockError):
            raise result
    return -(-count // (4 * per_batch)) * 4 * per_batch


def archive(broker: Broker, topic: Topic, folder: str) -> None:
    """As the job does it, in this process."""
    lake = open_results(folder, NOWHERE)
    table = ParquetTable(lake, claim_table(lake, topic, TableKind.PARQUET))
    archive_topic(
        broker,
        lake,
        topic,
        table,
        lambda name, plan: [archive_group(broker, lake, name, plan, group) for group in plan.groups],
        SIZES,
        lambda event, **facts: None,  # noqa: ARG005
    )


def replay(broker: Broker, source: Topic, target: Topic, folder: str) -> None:
    """As the job does it, in this process."""
    lake = open_results(folder, NOWHERE)
    table = ParquetTable(lake, claim_table(lake, source, TableKind.PARQUET))
    plans = [find_plan(lake, table.name, each) for each in range(1, table.committed().number + 1)]
    rows, selection = ParquetRows(uri=folder, storage=NOWHERE, table=table.name), Selection()
    to = Target(
        replay_id=Path(folder).name,
        topic=target.name,
        topic_id=target.topic_id,
        partitions=1,
        by_key=False,
        compression=Compression.NONE,
        records_per_second=None,
        allows_expired=False,
    )
    windows = windows_of([each for each in plans if each is not None], selection, 32 * MIB)
    run_replay(
        windows,
        lambda lanes: [replay_lane(broker, rows, selection, to, each) for each in lanes],
        1024 * MIB,
        lambda event, **facts: None,  # noqa: ARG005
    )


def cpu_seconds(step: Callable[[], None]) -> float:
    """Of this process, all threads."""
    started = time.process_time()
    step()
    return time.process_time() - started


if __name__ == "__main__":
    main()
