"""Kill workers of a share group while they work, and let the history checker judge what happened to each record (G11).

A random worker gets kill -9 every second, and another one takes its place. All workers write histories. Exit code 0:
the checker found no anomaly, so each record was accepted or is a dead letter, none came again after its acceptance was
answered, and no two workers held one at once.
"""

import multiprocessing
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import click

from bench.group_kills import anomalies
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.share_groups.shared_topic import SharedTopic, shared_topic
from penstock import Producer, ShareConsumer
from penstock.http.transport import open_transport
from penstock.model.share import ShareRecord
from penstock_core.limits import SHARE_DELIVERIES_DEFAULT
from tests.chaos.clients.values import name_of
from tests.chaos.recording import RecordingTransport
from tests.history.__main__ import HistoryFile
from tests.history.checker import Options, check
from tests.history.format import DeadLetters, Drained, Function, Share
from tests.history.recorder import Recorder, merge
from tests.support.dead_letters import dead_letter_of

CONFIG = {"lock_ms": 15_000, "retry_backoff_ms_min": 100, "retry_backoff_ms_max": 1_000}


@click.command(help=__doc__)
@reported("share_kills")
@click.option("--records", default=20_000, show_default=True, type=click.IntRange(1), help="Of one partition.")
@click.option("--workers", default=20, show_default=True, type=click.IntRange(1), help="Processes at a time.")
@click.option("--kills", default=20, show_default=True, type=click.IntRange(0), help="One a second.")
@click.option("--work-ms", default=20.0, show_default=True, help="That a worker takes for a record.")
@click.option("--seed", default=0, show_default=True, help="Chooses the victims.")
@click.option("--history", type=click.Path(file_okay=False, path_type=Path), help="Keep the histories in this folder.")
def main(
    report: Report, records: int, workers: int, kills: int, work_ms: float, seed: int, history: Path | None
) -> None:
    report.conditions.append(f"One partition, locks of {CONFIG['lock_ms'] // 1_000} s.")
    chance = random.Random(seed)
    victims = [chance.randrange(workers) for _ in range(kills)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = history or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with shared_topic() as shared, Recorder.open(folder / "operator.history.jsonl") as recorder:
            group = _prepare(shared, recorder, records)
            fleet = Fleet(group, folder, workers=workers, work_ms=work_ms)
            try:
                seconds, left = _work(shared, recorder, group, fleet, victims)
                fleet.end()
            finally:
                fleet.clean_up()
            _read_dead_letters(shared, recorder)
        merge(sorted(folder.glob("*.history.jsonl")), folder / "history.jsonl")
        judged = check(HistoryFile(folder / "history.jsonl"), Options(allow_unseen=True))
    kind = anomalies(judged.found)
    row: Row = {"records": records, "kills": kills, "unfinished_at_the_last_kill": left, "anomalies": kind}
    operations = {"history_operations": judged.counts.operations}
    report.show("kills", [{**row, **operations, "seconds": round(seconds, 1)}])
    report.judge(holds=kind == "none" and left > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One life of a worker, which handles one record after the other."""

    name: str
    group: str
    folder: Path
    work_ms: float


def work(spec: WorkerSpec) -> None:
    """Work until SIGTERM or a kill."""

    def handle(_: ShareRecord) -> None:
        time.sleep(spec.work_ms / 1_000)

    with Recorder.open(spec.folder / f"{spec.name}.history.jsonl") as recorder:
        transport = RecordingTransport(open_transport(), recorder, spec.name)
        ShareConsumer(group_id=spec.group, transport=transport).run(handle, concurrency=1)


class Fleet:
    """The living workers of a group. A new one takes the place of one that is killed.

    A fork server starts them: it has imported all that they need, so a new worker takes no second of CPU.
    """

    def __init__(self, group: str, folder: Path, *, workers: int, work_ms: float) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self._group, self._folder, self._work_ms = group, folder, work_ms
        self._born = 0
        self._alive: list[tuple[str, BaseProcess]] = []
        for _ in range(workers):
            self._start()

    def kill(self, place: int) -> None:
        """Send SIGKILL, and start another worker."""
        _, process = self._alive.pop(place)
        process.kill()
        process.join()
        self._start()

    def end(self) -> None:
        """Ask all workers to stop, and wait until they have."""
        for _, process in self._alive:
            process.terminate()
        for name, process in self._alive:
            process.join()
            if process.exitcode != 0:
                raise click.ClickException(f"worker {name} ended with code {process.exitcode}: see above")
        self._alive = []

    def clean_up(self) -> None:
        """Kill what still lives."""
        for _, process in self._alive:
            process.kill()
            process.join()

    def _start(self) -> None:
        spec = WorkerSpec(name=f"w{self._born}", group=self._group, folder=self._folder, work_ms=self._work_ms)
        self._born += 1
        process = self._context.Process(target=work, args=(spec,), daemon=True)
        process.start()
        self._alive.append((spec.name, process))


def _prepare(shared: SharedTopic, recorder: Recorder, records: int) -> str:
    """Create the group, and send all records with their numbers as values."""
    group = shared.create_group(dead_letter_topic=shared.dead_letter_topic, **CONFIG)
    share = Share(
        topics=(shared.name,), deliveries_max=SHARE_DELIVERIES_DEFAULT, dead_letter_topic=shared.dead_letter_topic
    )
    recorder.done("operator", Function.SHARE, [share], group=group)
    with Producer(transport=RecordingTransport(open_transport(), recorder, "producer")) as producer:
        sent = [producer.send(shared.name, b"%d" % number) for number in range(records)]
        producer.flush()
    if any(each.exception() is not None for each in sent):
        raise click.ClickException("a record was not acknowledged: see above")
    return group


def _work(
    shared: SharedTopic, recorder: Recorder, group: str, fleet: Fleet, victims: Sequence[int]
) -> tuple[float, int]:
    """Kill while the workers work. The seconds until all is finished, and the records left at the last kill."""
    drained = recorder.invoke("operator", Function.DRAINED, group=group)
    records = left = shared.unfinished(group)
    shared.wait_until_below(group, records)  # the workers have started
    began_s = time.monotonic()
    for number, place in enumerate(victims, start=1):
        time.sleep(max(0.0, began_s + number - time.monotonic()))
        left = shared.unfinished(group)
        fleet.kill(place)
    shared.wait_until_finished(group)
    recorder.ok(drained, [Drained(shared.name)])
    return time.monotonic() - began_s, left


def _read_dead_letters(shared: SharedTopic, recorder: Recorder) -> None:
    letters = tuple(
        dead_letter_of(each.offset, name_of(each.value), each.key, each.headers) for each in shared.dead_letters()
    )
    recorder.done("operator", Function.DEAD_LETTERS, [DeadLetters((shared.dead_letter_topic, 0), letters)])
