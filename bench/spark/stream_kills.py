"""Kills a streaming query at random moments while its topic grows, and compares the sink with the topic.

The query runs in a process of its own, with its JVM and its Python workers (`bench/spark/killed_query.py`). Each kill
is a SIGKILL: of all these processes at once, or of the driver and its JVM only. In the second case the Python workers
stay behind, perhaps in the middle of a transaction. The next life starts at once, from the same checkpoint.

At the end the sink must hold each offset once, with its value, in the order of its partition. The bench runs twice:
into files (Spark's own sink, exactly once by its log of files), and into another topic, with one transaction per
micro-batch. It needs the local stack that `make run` or `penstock local up` starts. Exit code 0: the sinks equal the
topics.
"""

import os
import random
import secrets
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.processes import Process
from bench.report.recording import Report, reported
from bench.spark.killed_query import FILES, TOPIC, Noted, Query, environment_of_stack
from bench.spark.local_spark import local_session
from penstock import Admin, Consumer, Producer, TopicPartition

PARTITIONS = 4
BURSTS_PER_S = 20
PATIENCE_S = 300  # for the next micro-batch
_POLL_S = 0.1
FLAWS = ("missing", "twice", "foreign", "out_of_order", "orphans_left")
_MICRO_BATCHES = 4  # of the first life: they show how long one takes

Row = tuple[int, int, str]  # partition, offset, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The kills of one query. `seed` chooses their moments, and whether a kill spares the Python workers."""

    kills: int
    records_per_s: int
    offsets_max: int
    seed: int


@dataclass(slots=True, kw_only=True)
class Kill:
    """One kill."""

    noted: Noted
    is_written: bool  # the sink holds the unended micro-batch already
    orphans: list[Process]


def run(kind: str, plan: Plan, folder: Path, console: Console) -> dict[str, int]:
    """Runs one query over its lives, with topics of its own: the findings for its sink.

    `of_these_written` counts kills in a micro-batch that the sink held already.
    """
    own = secrets.token_hex(4)
    source, copy = f"stream-{own}", f"stream-{own}-copy"
    is_over = threading.Event()
    began_s = time.monotonic()
    query = Query(
        kind=kind,
        source=source,
        sink=copy if kind == TOPIC else str(folder / "copy"),
        folder=folder,
        environment={**os.environ, **environment_of_stack()},
        offsets_max=plan.offsets_max,
    )
    with Admin() as admin, ThreadPoolExecutor(1) as pool:
        for topic in (source, copy):
            admin.create_topic(topic, partitions=PARTITIONS)
        appending = pool.submit(_append, source, plan.records_per_s, is_over)
        try:
            kills = _kill_again_and_again(query, plan, admin, console)
            is_over.set()
            records = appending.result()
            last = _until(query, records=records)
        finally:
            is_over.set()
            orphans = query.kill(spares_workers=False)
        left = [each for each in (*orphans, *(each for kill in kills for each in kill.orphans)) if each.is_alive]
        rows = _files(folder / "copy") if kind == FILES else _copies(copy)
        found = judge(_values(source), rows)
        if found["records"] != records:
            raise click.ClickException(f"{found['records']:,} of {records:,} records that were sent are in the topic")
        for topic in (source, copy):
            admin.delete_topic(topic)
    unended = [kill for kill in kills if kill.noted.begun > kill.noted.ended]
    return {
        **found,
        "micro_batches": last.ended + 1,
        "kills": len(kills),
        "kills_in_a_micro_batch": len(unended),
        "of_these_written": sum(kill.is_written for kill in unended),
        "orphans": sum(len(kill.orphans) for kill in kills),
        "orphans_left": len(left),
        "seconds": round(time.monotonic() - began_s),
    }


def judge(source: Mapping[int, Sequence[str]], runs: Sequence[Sequence[Row]]) -> dict[str, int]:
    """Compares the runs of the sink's rows with the source.

    Counts rows that the sink lacks (`missing`), has more than once (`twice`) or has without the source (`foreign`).
    `out_of_order` counts the rows whose offset is not above the one before in the same run and partition.
    """
    wanted = {(partition, offset, value) for partition, values in source.items() for offset, value in enumerate(values)}
    found = Counter(row for rows in runs for row in rows)
    out_of_order = 0
    for rows in runs:
        last: dict[int, int] = {}
        for partition, offset, _ in rows:
            out_of_order += offset <= last.get(partition, -1)
            last[partition] = offset
    return {
        "records": len(wanted),
        "missing": len(wanted - found.keys()),
        "twice": sum(count > 1 for count in found.values()),
        "foreign": len(found.keys() - wanted),
        "out_of_order": out_of_order,
    }


def _append(topic: str, records_per_s: int, is_over: threading.Event) -> int:
    """Sends records until `is_over`, and returns their number. A value begins with the record's offset."""
    began_s = time.monotonic()
    number = 0
    with Producer() as producer:
        while not is_over.wait(max(0.0, began_s + number / records_per_s - time.monotonic())):
            futures = []
            for _ in range(records_per_s // BURSTS_PER_S + 1):
                value = b"%d %s" % (number // PARTITIONS, secrets.token_hex(40).encode())
                futures.append(producer.send(topic, value, partition=number % PARTITIONS))
                number += 1
            for future in futures:
                future.result()
    return number


def _kill_again_and_again(query: Query, plan: Plan, admin: Admin, console: Console) -> list[Kill]:
    """Kills and restarts the query. The first life shows how long a micro-batch takes.

    Half of the kills come before a life has ended its first micro-batch, which is usually the one that the life before
    has left. The other kills come within some micro-batches after it.
    """
    chance = random.Random(plan.seed)
    kills: list[Kill] = []
    query.start()
    started_s = _until_started(query)
    ended_s = []
    for number in range(_MICRO_BATCHES):
        _until(query, ended=number)
        ended_s.append(time.monotonic() - started_s)
    while len(kills) < plan.kills:
        if chance.random() < 0.5:
            kill_at_s = started_s + chance.uniform(0, ended_s[0])
        else:
            _until(query, ended=kills[-1].noted.ended + 1 if kills else 0)
            kill_at_s = time.monotonic() + chance.uniform(0, ended_s[-1] - ended_s[0])
        while time.monotonic() < kill_at_s:
            _look(query)
        orphans = query.kill(spares_workers=chance.random() < 0.5)
        noted = query.noted()
        query.start()
        is_written = noted.begun > noted.ended and query.is_written(noted.begun, admin)
        kills.append(Kill(noted=noted, is_written=is_written, orphans=orphans))
        console.print(f"{query.kind}: killed in micro-batch {noted.begun}, {noted.ended} ended, {len(orphans)} orphans")
        started_s = _until_started(query)
    return kills


def _until_started(query: Query) -> float:
    deadline_s = time.monotonic() + PATIENCE_S
    while not query.has_started:
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"the query has not started in {PATIENCE_S} s")
        _look(query)
    return time.monotonic()


def _until(query: Query, *, ended: int = -1, records: int = 0) -> Noted:
    """Waits until the query has ended that micro-batch and read so many records. Raises if it stands still."""
    before, deadline_s = None, 0.0
    while (noted := query.noted()).ended < ended or noted.records < records:
        if noted != before:
            before, deadline_s = noted, time.monotonic() + PATIENCE_S
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"the query stands still, at {noted}")
        _look(query)
    return noted


def _look(query: Query) -> None:
    """Checks that the query has not ended by itself, after a moment."""
    time.sleep(_POLL_S)
    _ = query.has_started


def _values(topic: str) -> dict[int, list[str]]:
    """The values of each partition, by offset."""
    values: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    for partition, offset, value in _read(topic):
        if offset != len(values[partition]):
            raise click.ClickException(
                f"{topic}: partition {partition} has offset {offset} at {len(values[partition])}"
            )
        values[partition].append(value)
    return values


def _copies(topic: str) -> list[list[Row]]:
    """The rows of the topic that the query wrote: one run for each partition."""
    runs: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
    for partition, _, text in _read(topic):
        offset, _, value = text.partition(" ")
        runs[partition].append((partition, int(offset), value))
    return list(runs.values())


def _read(topic: str) -> Iterator[Row]:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer() as consumer:
        left = sum(consumer.end_offsets(partitions).values())
        consumer.assign(partitions)
        while left:
            for record in consumer.poll():
                yield record.partition, record.offset, (record.value or b"").decode()
                left -= 1


def _files(folder: Path) -> list[list[Row]]:
    """The rows of the files that the sink's log names: one run for each file."""
    spark = local_session()
    try:
        rows: list[Any] = (
            spark.read.parquet(str(folder))
            .selectExpr("_metadata.file_path file", "_metadata.row_index number", "partition", "offset", "value")
            .orderBy("file", "number")
            .collect()
        )
    finally:
        spark.stop()
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row["file"], []).append((row["partition"], row["offset"], row["value"]))
    return list(runs.values())


@click.command(help=__doc__)
@reported("stream_kills")
@click.option("--kills", default=10, show_default=True, type=click.IntRange(0), help="How often it is killed.")
@click.option("--records-per-s", default=100, show_default=True, type=click.IntRange(1), help="How fast they come.")
@click.option("--offsets-max", default=2_000, show_default=True, type=click.IntRange(1), help="Most of a micro-batch.")
@click.option("--sink", "sinks", multiple=True, default=(FILES, TOPIC), type=click.Choice([FILES, TOPIC]))
@click.option("--seed", default=0, show_default=True, help="Chooses the moments.")
def main(report: Report, sinks: tuple[str, ...], **options: int) -> None:
    found: dict[str, dict[str, int]] = {}
    for sink in sinks:
        with tempfile.TemporaryDirectory() as folder:
            found[sink] = run(sink, Plan(**options), Path(folder), report.console)
    report.show("kills", [{"sink": sink, **row} for sink, row in found.items()])
    report.judge(holds=not any(row[name] for row in found.values() for name in FLAWS))


if __name__ == "__main__":
    main()
