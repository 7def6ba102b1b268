"""The queue: workers count the lines of files, one is killed in its work, and two tasks can never succeed.

Each task is a record with the path of a file. A worker notes each file that it has counted, and accepts the record
after it. So a file that a killed worker had counted but not accepted is counted twice, and no file is missed.
"""

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.demo.corpus import SOURCES, read_corpus
from bench.report.recording import Report
from penstock import Admin, Consumer, ConsumerRecord, Producer, ShareConsumer, ShareRecord, TopicPartition

WORKERS = 3
HOPELESS = ("no/such/file.py", "nor/this/one.py")
DELIVERIES_MAX = 3
_ACQUIRED_RECORDS = 20
_CONFIG = {
    "deliveries_max": DELIVERIES_MAX,
    "lock_ms": 3_000,
    "retry_backoff_ms_min": 100,
    "retry_backoff_ms_max": 1_000,
}
_GIVE_UP_S = 120.0
_REASON = "penstock.dead-letter.reason"


@dataclass(frozen=True, kw_only=True)
class Shift:
    """The work that was done: how often each file was counted, its lines, and the dead letters with reasons."""

    times: Counter[str]
    lines: Mapping[str, int]
    dead: Sequence[tuple[str, str]]
    seconds: float


def show_queue(report: Report, folder: Path) -> None:
    """Hands out a task for each file of the corpus in `folder`, and judges that no task was lost."""
    expected = Counter(key.decode() for key, _ in read_corpus(folder / "corpus"))
    name = f"files-{time.time_ns() // 1_000_000:x}"
    with Admin() as admin:
        admin.create_topic(name)
        admin.create_topic(f"{name}.dead")
        admin.create_share_group(name, name, {**_CONFIG, "dead_letter_topic": f"{name}.dead"})
    with Producer() as producer:
        for path in (*expected, *HOPELESS):
            producer.send(name, path)
    shift = _work(name, folder, len(expected), report.console)
    report.show(
        f"share group {name}, 1 partition, {WORKERS} workers, one of them killed",
        [
            {
                "tasks": len(expected) + len(HOPELESS),
                "files_counted": len(shift.times),
                "counted_twice": sum(times > 1 for times in shift.times.values()),
                "lines_counted": sum(shift.lines.values()),
                "dead_letters": len(shift.dead),
                "seconds": round(shift.seconds, 2),
            }
        ],
    )
    for path, reason in shift.dead:
        report.console.print(f"dead letter after {DELIVERIES_MAX} tries: {path}: {reason or 'no reason'}", markup=False)
    holds = shift.lines == expected and sorted(path for path, _ in shift.dead) == sorted(HOPELESS)
    report.console.print(
        "[bold green]No task was lost, and the hopeless ones are dead letters.[/]"
        if holds
        else "[bold red]The work is not what it should be.[/]"
    )
    report.judge(holds=holds)


def _work(name: str, folder: Path, files: int, console: Console) -> Shift:
    """Starts the workers, kills one after a third of the work, and ends when all is counted or dead."""
    context = multiprocessing.get_context("spawn")
    notes = [folder / f"worker-{number}" for number in range(WORKERS)]
    workers: list[BaseProcess] = [context.Process(target=_count_files, args=(name, str(path))) for path in notes]
    started = time.monotonic()
    for worker in workers:
        worker.start()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns, console=console) as progress,
        Consumer() as consumer,
    ):
        consumer.assign([TopicPartition(f"{name}.dead", 0)])
        task = progress.add_task(f"count the lines of files with {WORKERS} processes", total=files)
        dead: list[tuple[str, str]] = []
        while True:
            counted = dict(pair for path in notes for pair in _noted(path))
            progress.update(task, completed=len(counted))
            if workers[0].is_alive() and 3 * len(counted) >= files:
                workers[0].kill()
            dead += [((record.value or b"").decode(), _reason(record)) for record in consumer.poll(timeout_ms=100)]
            is_done = len(counted) == files and len(dead) >= len(HOPELESS)
            if is_done or time.monotonic() - started > _GIVE_UP_S:
                break
    seconds = time.monotonic() - started
    for worker in workers:
        worker.terminate()
        worker.join()
    times = Counter(path for note in notes for path, _ in _noted(note))
    return Shift(times=times, lines=counted, dead=dead, seconds=seconds)


def _count_files(name: str, note: str) -> None:
    """A worker, in a process of its own. Until SIGTERM it notes a line for each file that it has counted."""
    logging.getLogger("penstock").setLevel(logging.CRITICAL)  # the hopeless tasks would fill the screen
    with Path(note).open("a", buffering=1) as out:

        def count(record: ShareRecord) -> None:
            path = (record.value or b"").decode()
            lines = len((SOURCES / path).read_bytes().splitlines())
            out.write(f"{path}\t{lines}\n")

        ShareConsumer(name, group_id=name, max_records=_ACQUIRED_RECORDS).run(count, concurrency=4)


def _reason(record: ConsumerRecord) -> str:
    return next(((value or b"").decode() for header, value in record.headers if header == _REASON), "")


def _noted(path: Path) -> Iterator[tuple[str, int]]:
    """The files and lines that a worker has noted. A killed worker may have left half a line."""
    if path.exists():
        for line in path.read_text().splitlines(keepends=True):
            name, _, count = line.partition("\t")
            if count.endswith("\n"):
                yield name, int(count)
