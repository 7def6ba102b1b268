"""The log: a real text goes line by line into a topic. Two processes read it back, and nothing may have changed."""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.counting import CountingTransport, Counts
from bench.demo.corpus import read_corpus
from bench.report.recording import Report
from bench.report.result import Row
from penstock import Admin, Consumer, Producer, RecordMetadata, TopicPartition
from penstock.http.transport import open_transport
from penstock_core.records.partitioner import partition_for_key

PARTITIONS = 6
CONSUMER_PROCESSES = 2
ZONES = 3
MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Leg:
    """One direction: the records, their bytes, the time and the cost."""

    records: int
    megabytes: float
    seconds: float
    counts: Counts

    @property
    def storage_calls(self) -> int:
        return self.counts.storage_calls.total()


def show_log(report: Report, folder: Path, lines: int) -> None:
    """Sends the corpus in `folder`, reads it back, and judges that every record came back in its place."""
    console, corpus = report.console, folder / "corpus"
    topic = f"stdlib-lines-{time.time_ns() // 1_000_000:x}"
    with Admin() as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    produced = _produce(topic, corpus, lines, console)
    consumed, files = _consume(topic, lines, folder, console)
    difference = _compare(corpus, files)
    report.show(f"topic {topic}, {PARTITIONS} partitions", [_row("produced", produced), _row("consumed", consumed)])
    if difference is None:
        console.print("[bold green]Every record came back, in its place.[/]")
    else:
        console.print(f"[bold red]A record differs:[/] {difference}")
    report.judge(holds=difference is None)


def _produce(topic: str, corpus: Path, lines: int, console: Console) -> Leg:
    transport = CountingTransport(open_transport())
    failed: list[BaseException] = []

    def on_delivery(error: BaseException | None, _metadata: RecordMetadata | None) -> None:
        if error is not None:
            failed.append(error)

    text_bytes = 0
    with _progress(console) as progress:
        task = progress.add_task(f"produce to {topic}", total=lines)
        started = time.perf_counter()
        with Producer(transport=transport, on_delivery=on_delivery) as producer:
            for count, (key, value) in enumerate(read_corpus(corpus), start=1):
                producer.send(topic, value, key=key)
                text_bytes += len(key) + len(value)
                if count % 1_000 == 0:
                    progress.update(task, completed=count)
        seconds = time.perf_counter() - started
        progress.update(task, completed=lines)
    if failed:
        raise failed[0]
    return Leg(records=lines, megabytes=text_bytes / MB, seconds=seconds, counts=transport.counts("/v1/produce"))


def _consume(topic: str, lines: int, folder: Path, console: Console) -> tuple[Leg, Sequence[Path]]:
    shares = [list(range(first, PARTITIONS, CONSUMER_PROCESSES)) for first in range(CONSUMER_PROCESSES)]
    files = [folder / f"partition-{partition}" for partition in range(PARTITIONS)]
    with (
        _progress(console) as progress,
        multiprocessing.Manager() as manager,
        ProcessPoolExecutor(CONSUMER_PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        ready = manager.Barrier(CONSUMER_PROCESSES + 1)
        done = manager.dict()
        task = progress.add_task(f"consume with {CONSUMER_PROCESSES} processes", total=lines)
        futures = [pool.submit(_consume_share, topic, share, str(folder), ready, done) for share in shares]
        ready.wait()
        started = time.perf_counter()
        while not all(future.done() for future in futures):
            progress.update(task, completed=sum(done.values()))
            time.sleep(0.1)
        seconds = time.perf_counter() - started
        results = [future.result() for future in futures]
        progress.update(task, completed=sum(records for records, _, _ in results))
    counts = Counts()
    for _, _, part in results:
        counts.add(part)
    records = sum(records for records, _, _ in results)
    megabytes = sum(size for _, size, _ in results) / MB
    return Leg(records=records, megabytes=megabytes, seconds=seconds, counts=counts), files


def _consume_share(topic: str, share: Sequence[int], folder: str, ready: Any, done: Any) -> tuple[int, int, Counts]:
    """Reads its partitions to their ends, in a process of its own, into a file each, with a line per record."""
    transport = CountingTransport(open_transport())
    partitions = [TopicPartition(topic, partition) for partition in share]
    records = size = 0
    outs = {partition: (Path(folder) / f"partition-{partition}").open("wb") for partition in share}
    with Consumer(transport=transport, max_poll_records=10_000) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        ready.wait()
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for record in consumer.poll(timeout_ms=5_000):
                key, value = record.key or b"", record.value or b""
                outs[record.partition].write(b"%d\t%b\t%b\n" % (record.offset, key, value))
                records += 1
                size += len(key) + len(value)
            done[share[0]] = records
    for out in outs.values():
        out.close()
    return records, size, transport.counts("/v1/fetch")


def _compare(corpus: Path, files: Sequence[Path]) -> str | None:
    """The first difference between the records that went in and the records that came back, or None."""
    expected = [path.with_suffix(".expected") for path in files]
    outs = [path.open("wb") for path in expected]
    offsets = [0] * PARTITIONS
    for key, value in read_corpus(corpus):
        partition = partition_for_key(key, PARTITIONS)
        outs[partition].write(b"%d\t%b\t%b\n" % (offsets[partition], key, value))
        offsets[partition] += 1
    for out in outs:
        out.close()
    for number, (wanted, got) in enumerate(zip(expected, files, strict=True)):
        for offset, (one, other) in enumerate(zip_longest(_lines(wanted), _lines(got))):
            if one != other:
                return f"partition {number}, offset {offset}: sent {one!r:.200}, read {other!r:.200}"
    return None


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as lines:
        yield from lines


def _row(name: str, leg: Leg) -> Row:
    calls = ", ".join(f"{count:,} {call}" for call, count in sorted(leg.counts.storage_calls.items()))
    return {
        "leg": name,
        "records": leg.records,
        "mb": round(leg.megabytes, 2),
        "seconds": round(leg.seconds, 2),
        "records_per_s": round(leg.records / leg.seconds),
        "mb_per_s": round(leg.megabytes / leg.seconds, 2),
        "requests": leg.counts.requests,
        "segments_written": leg.counts.storage_calls["s3.PutObject"] // ZONES,
        "storage_calls": calls,
        "storage_calls_per_mb": round(leg.storage_calls / leg.megabytes, 2),
    }


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
