"""Kills random consumers of a group with kill -9 while records flow, and counts what is lost and what comes twice.

The consumers are processes of one group, with at-least-once delivery, and each one starts again at once after its
death. All of them write histories, which the history checker judges. Exit code 0: the checker found no anomaly, and the
group read every acknowledged record. It needs the local stack that `make run` or `penstock local up` starts.
"""

import multiprocessing
import random
import secrets
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from bench.group_member import GroupMember, MemberSpec
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Producer
from penstock.errors import NotFoundError
from penstock.http.transport import open_transport
from penstock_core.errors import PenstockError
from tests.chaos.recording import RecordingTransport
from tests.history.__main__ import HistoryFile
from tests.history.checker import check
from tests.history.format import Assign, Committed, Event, Function, Outcome, Poll, Send
from tests.history.parsing import parse_line
from tests.history.recorder import Recorder, merge

PARTITIONS = 6
BURSTS_PER_S = 10
PATIENCE_S = 120  # for the next commit, once all records are sent
_READ = (Function.POLL, Function.ASSIGN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """A killed process, and the moment of its death on the monotonic clock."""

    name: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The kills in one group. `seed` chooses their moments and their victims."""

    records: int
    records_per_s: int
    consumers: int
    kills: int
    session_ms: int
    heartbeat_ms: int
    seed: int


def consume(spec: MemberSpec, folder: Path) -> None:
    """The entry of a process: a consumer that runs until SIGTERM or a kill."""
    ends: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ends.append(number))
    with Recorder.open(folder / f"{spec.name}.history.jsonl") as recorder:
        GroupMember(spec, recorder).run(lambda: bool(ends))


class Fleet:
    """The living consumers. A killed one comes back under a new name."""

    def __init__(self, plan: Plan, topic: str, folder: Path) -> None:
        self._plan, self._topic, self._folder = plan, topic, folder
        self._context = multiprocessing.get_context("spawn")
        self._lives: Counter[int] = Counter()
        self._alive = {number: self._start(number) for number in range(plan.consumers)}
        self.kills: list[Kill] = []

    def kill(self, number: int) -> None:
        """Sends SIGKILL and starts another consumer at once."""
        name, process = self._alive[number]
        process.kill()
        self.kills.append(Kill(name=name, at_ns=time.monotonic_ns()))
        process.join()
        self._alive[number] = self._start(number)

    def end(self) -> None:
        """Lets all consumers close. Raises ClickException for one that ends in another way."""
        for _, process in self._alive.values():
            process.terminate()
        for name, process in self._alive.values():
            process.join()
            if process.exitcode not in (0, -signal.SIGTERM):  # SIGTERM: it had not begun yet
                raise click.ClickException(f"consumer {name} ended with exit code {process.exitcode}: see above")

    def clean_up(self) -> None:
        for _, process in self._alive.values():
            process.kill()
            process.join()

    def _start(self, number: int) -> tuple[str, SpawnProcess]:
        self._lives[number] += 1
        spec = MemberSpec(
            name=f"consumer-{number}.{self._lives[number]}",
            topic=self._topic,
            group=self._topic,
            session_ms=self._plan.session_ms,
            heartbeat_ms=self._plan.heartbeat_ms,
        )
        process = self._context.Process(target=consume, args=(spec, self._folder), daemon=True)
        process.start()
        return spec.name, process


def run(plan: Plan, folder: Path, console: Console) -> Row:
    """Sends, kills and judges, on a topic of its own. The histories stay in `folder`."""
    topic = f"kills-{secrets.token_hex(4)}"
    started_s = time.monotonic()
    with Admin() as admin, Recorder.open(folder / "producer.history.jsonl") as recorder:
        admin.create_topic(topic, partitions=PARTITIONS)
        fleet = Fleet(plan, topic, folder)
        try:
            _wait_until_shared(topic, plan.consumers, admin)
            acknowledged = _send(plan, fleet, Watch(topic, admin, recorder), console)
            _wait_until_committed(Watch(topic, admin, recorder), acknowledged)
            fleet.end()
        finally:
            fleet.clean_up()
    seconds = time.monotonic() - started_s
    return _judged(plan, fleet.kills, acknowledged, folder, seconds)


def _wait_until_shared(topic: str, consumers: int, admin: Admin) -> None:
    """Waits until each consumer owns partitions, so that every victim has something to lose."""
    deadline_s = time.monotonic() + PATIENCE_S
    while len(_owners(topic, admin)) < min(consumers, PARTITIONS):
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"in {PATIENCE_S} s not every consumer was given partitions")
        time.sleep(0.2)


def _owners(group: str, admin: Admin) -> set[str]:
    try:
        return {each.owner for each in admin.describe_group(group).partitions if each.owner is not None}
    except NotFoundError:  # no member has joined yet
        return set()


def _send(plan: Plan, fleet: Fleet, watch: "Watch", console: Console) -> int:
    """Sends all records at their pace, kills meanwhile, and returns the number of acknowledged records."""
    chance = random.Random(plan.seed)
    kill_at = [int(plan.records * (number + chance.random()) / plan.kills) for number in range(plan.kills)]
    transport = RecordingTransport(open_transport(), watch.recorder, "producer")
    began_s = time.monotonic()
    with Producer(transport=transport) as producer:
        futures = []
        for number in range(plan.records):
            futures.append(producer.send(watch.topic, b"%d" % number, partition=number % PARTITIONS))
            if len(fleet.kills) < plan.kills and number >= kill_at[len(fleet.kills)]:
                fleet.kill(chance.randrange(plan.consumers))
                console.print(f"{number:,} sent, {fleet.kills[-1].name} killed")
            if number % max(1, plan.records_per_s // BURSTS_PER_S) == 0:
                time.sleep(max(0.0, began_s + number / plan.records_per_s - time.monotonic()))
            if number % plan.records_per_s == 0:
                watch.committed()
        producer.flush()
    return sum(future.exception() is None for future in futures)


@dataclass(frozen=True, slots=True)
class Watch:
    """Looks at the group's offsets from outside, and notes each look in the history."""

    topic: str  # and the group's name
    admin: Admin
    recorder: Recorder

    def committed(self) -> int:
        """The sum of the offsets that the group has committed."""
        operation = self.recorder.invoke("watch", Function.COMMITTED, group=self.topic)
        try:
            found = {each.partition: each.offset for each in self.admin.group_offsets(self.topic)}
        except PenstockError:
            self.recorder.fail(operation)
            raise
        ops = [Committed((self.topic, number), found.get(number)) for number in range(PARTITIONS)]
        self.recorder.ok(operation, ops)
        return sum(found.values())


def _wait_until_committed(watch: Watch, records: int) -> None:
    before, deadline_s = -1, 0.0
    while (committed := watch.committed()) < records:
        if committed > before:
            before, deadline_s = committed, time.monotonic() + PATIENCE_S
        if time.monotonic() > deadline_s:
            raise click.ClickException(f"{committed:,} of {records:,} records are committed, and no more come")
        time.sleep(0.2)


def _judged(plan: Plan, kills: list[Kill], acknowledged: int, folder: Path, seconds: float) -> Row:
    """The findings. `read_again_*` runs from a kill until another consumer reads from a partition of the victim."""
    history = folder / "history.jsonl"
    merge(sorted(folder.glob("*.history.jsonl")), history)
    report = check(HistoryFile(history))
    sent: set[str] = set()
    read: Counter[str] = Counter()
    for event in events(history):
        if event.outcome is Outcome.OK:
            sent.update(str(op.value) for op in event.ops if isinstance(op, Send))
            read.update(str(value) for op in event.ops if isinstance(op, Poll) for _, value in op.records)
    again_s = [seconds for kill in kills for seconds in _times_until_read_again(history, kill)]
    return {
        "records": plan.records,
        "acknowledged": acknowledged,
        "lost": len(sent - read.keys()),
        "delivered": read.total(),
        "delivered_again": read.total() - len(read),
        "kills": len(kills),
        "partitions_taken_over": len(again_s),
        "read_again_p50_s": round(statistics.median(again_s), 2) if again_s else 0.0,
        "read_again_max_s": round(max(again_s, default=0.0), 2),
        "anomalies": anomalies(report.found),
        "history_operations": report.counts.operations,
        "seconds": round(seconds, 1),
    }


def anomalies(found: Mapping[Any, int]) -> str:
    """The kinds of anomalies and their counts, or "none"."""
    return ", ".join(f"{count} {kind}" for kind, count in found.items()) or "none"


def events(history: Path) -> Iterator[Event]:
    """The events of a history, in their order."""
    for number, line in enumerate(HistoryFile(history), start=1):
        yield parse_line(number, line)


def _times_until_read_again(history: Path, kill: Kill) -> list[float]:
    """The seconds for each partition of the killed process that another consumer read again."""
    held: set[tuple[str, int]] = set()
    found: list[float] = []
    for event in events(history):
        if event.function not in _READ or event.outcome is not Outcome.OK:
            continue
        for op in event.ops:
            if isinstance(op, Assign) and event.process == kill.name:
                held = {*op.kept, *(where for where, _ in op.started)}
            elif isinstance(op, Poll) and op.records and event.time_ns > kill.at_ns and op.where in held:
                held.remove(op.where)
                found.append((event.time_ns - kill.at_ns) / 1e9)
    return found


@click.command(help=__doc__)
@reported("group_kills")
@click.option("--records", default=100_000, show_default=True, type=click.IntRange(1), help="How many are sent.")
@click.option("--records-per-s", default=1_000, show_default=True, type=click.IntRange(1), help="How fast.")
@click.option("--consumers", default=3, show_default=True, type=click.IntRange(1), help="How many processes read.")
@click.option("--kills", default=10, show_default=True, type=click.IntRange(0), help="How often a consumer is killed.")
@click.option("--session-ms", default=8_000, show_default=True, help="After which a killed consumer is gone.")
@click.option("--heartbeat-ms", default=1_000, show_default=True, help="Between two heartbeats of a member.")
@click.option("--seed", default=0, show_default=True, help="Chooses moments and victims.")
@click.option("--history", type=click.Path(file_okay=False, path_type=Path), help="Keep the histories in this folder.")
def main(report: Report, history: Path | None, **options: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = history or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        row = run(Plan(**options), folder, report.console)
    report.show("kills", [row])
    is_whole = row["acknowledged"] == row["records"] and not row["lost"]
    report.judge(holds=is_whole and row["anomalies"] == "none")


if __name__ == "__main__":
    main()
