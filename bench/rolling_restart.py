"""Restart every member of a group in turn while records flow: which partitions move, and how long each stands still.

Members are threads of one process, each with a consumer of its own, which has its own threads and connections: a
restart closes it and makes another. What a process takes to start is in `--down-ms`. Twice over: with static members,
of which nothing should move, and with dynamic ones, whose partitions must go to others, and a share to who joins.
A partition stands still from the last record that was read before it changed hands to the first one after. The history
checker judges what was read: exit code 0 says that it found no anomaly and that nothing moved which need not.
Runs on the local stack that `make run` or `penstock local up` has started.
"""

import json
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.group_kills import events
from bench.group_member import GroupMember, MemberSpec
from penstock import Admin, Producer
from penstock.transport import open_transport
from tests.chaos.recording import RecordingTransport
from tests.history.__main__ import HistoryFile
from tests.history.checker import check
from tests.history.format import Function, Outcome, Poll
from tests.history.recorder import Recorder

PATIENCE_S = 180  # a busy machine's
SESSION_MS = 45_000
_START_EACH_S = 1.0  # all at once would be as many cold starts at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every partition gets a record each `period_ms`; a member is down for `down_ms`, and handles what a poll brings
    for `handling_ms`."""

    members: int
    partitions: int
    heartbeat_ms: int
    period_ms: int
    down_ms: int
    handling_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A partition's last record before it changed hands, and the first one after."""

    before: str  # the member's life, "<number>.<life>"
    after: str
    from_ns: int
    to_ns: int

    @property
    def seconds(self) -> float:
        return (self.to_ns - self.from_ns) / 1e9


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Standstills in seconds: of partitions whose member went (`left`), that were given to one that came (`given`),
    and that the same static member has again (`kept`); `flow_s_p50` is the time between two reads otherwise. `came_s`:
    from the start of a member until it has all of its share. `produce_s`: how long a produce took meanwhile, which
    tells what is the machine's."""

    kind: str
    members: int
    partitions: int
    moved: int
    must_move: int
    left_s: tuple[float, float]  # p50, max
    given_s: tuple[float, float]
    kept_s: tuple[float, float]
    flow_s_p50: float
    came_s: tuple[float, float]
    produce_s: tuple[float, float]
    anomalies: dict[str, int]

    @property
    def is_right(self) -> bool:
        return self.moved <= self.must_move and not self.anomalies


class Seat:
    """One of the group's members, over its lives."""

    def __init__(self, number: int, spec: Callable[[str, int], MemberSpec], recorder: Recorder) -> None:
        self.number = number
        self._spec, self._recorder = spec, recorder
        self._life = 0
        self.start()

    def start(self) -> None:
        self._life += 1
        self._is_over = threading.Event()
        self.member = GroupMember(self._spec(f"{self.number}.{self._life}", self.number), self._recorder)
        self._thread = threading.Thread(
            target=self.member.run, args=(self._is_over.is_set,), name=f"seat-{self.number}"
        )
        self._thread.start()

    def stop(self) -> None:
        """Until its consumer is closed."""
        self._is_over.set()
        self._thread.join()

    def is_alive(self) -> bool:
        return self._thread.is_alive()


def run(plan: Plan, folder: Path, console: Console, *, is_static: bool) -> Figures:
    """The whole of it for members of one kind, on a topic of its own; the history stays in `folder`."""
    kind = "static" if is_static else "dynamic"
    topic = f"rolling-{kind}-{secrets.token_hex(4)}"

    def spec(name: str, number: int) -> MemberSpec:
        return MemberSpec(
            name=name,
            topic=topic,
            group=topic,
            session_ms=SESSION_MS,
            heartbeat_ms=plan.heartbeat_ms,
            instance_id=f"seat-{number}" if is_static else None,
            commit_each_ms=2_000,
            handling_ms=plan.handling_ms,
        )

    history = folder / f"{kind}.history.jsonl"
    came_s: list[float] = []
    must_move = 0
    is_sending = threading.Event()
    sent: list[int] = []
    is_sending.set()
    with Admin() as admin, Recorder.open(history) as recorder:
        admin.create_topic(topic, partitions=plan.partitions)
        sender = threading.Thread(target=_send, args=(plan, topic, recorder, is_sending, sent), name="sender")
        sender.start()
        seats: list[Seat] = []
        try:
            for number in range(plan.members):
                seats.append(Seat(number, spec, recorder))
                time.sleep(_START_EACH_S)
            _wait(seats, plan)
            time.sleep(2 * plan.period_ms / 1_000)  # all partitions are read by whom they were given to at first
            began_ns = time.monotonic_ns()
            for seat in seats:
                held = seat.member.held
                seat.stop()
                time.sleep(plan.down_ms / 1_000)
                seat.start()
                began_s = time.monotonic()
                must_move += 0 if is_static else held + plan.partitions // plan.members
                _wait(seats, plan)
                came_s.append(time.monotonic() - began_s)
                console.print(f"{kind} member {seat.number} is back: {came_s[-1]:.1f} s")
            time.sleep(2 * plan.period_ms / 1_000)  # records for who came last
            is_sending.clear()
            sender.join()
            _until(seats, lambda: sum(seat.member.read for seat in seats) == sum(sent), "everything is read")
        finally:
            is_sending.clear()
            sender.join()
            _all(seats, Seat.stop)
    return _judged(plan, kind, history, began_ns, must_move, came_s)


def _send(plan: Plan, topic: str, recorder: Recorder, is_sending: threading.Event, sent: list[int]) -> None:
    transport = RecordingTransport(open_transport(), recorder, "producer")
    number = 0
    with Producer(transport=transport) as producer:
        while is_sending.is_set():
            for partition in range(plan.partitions):
                producer.send(topic, b"%d" % number, partition=partition)
                number += 1
            time.sleep(plan.period_ms / 1_000)
    sent.append(number)


def _wait(seats: Sequence[Seat], plan: Plan) -> None:
    """Until every partition is held, by members of whom each has its share."""
    least, most = plan.partitions // len(seats), -(-plan.partitions // len(seats))

    def is_shared() -> bool:
        held = [seat.member.held for seat in seats]
        return sum(held) == plan.partitions and least <= min(held) and max(held) <= most

    _until(seats, is_shared, "every member has its share")


def _until(seats: Sequence[Seat], holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        if not all(seat.is_alive() for seat in seats):
            raise click.ClickException("a member has ended by itself: see above")
        if time.monotonic() > deadline_s:
            held = [seat.member.held for seat in seats]
            raise click.ClickException(f"not in {PATIENCE_S} s: {what}; the members hold {held}")
        time.sleep(0.02)


def _all(seats: Sequence[Seat], what: Callable[[Seat], None]) -> None:
    threads = [threading.Thread(target=what, args=(seat,)) for seat in seats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _judged(plan: Plan, kind: str, history: Path, began_ns: int, must_move: int, came_s: Sequence[float]) -> Figures:
    last: dict[int, tuple[str, int]] = {}
    changes: list[Change] = []
    flow_s: list[float] = []
    ended_ns: dict[str, int] = {}
    begun_ns: dict[int | None, int] = {}
    produce_s: list[float] = []
    for event in events(history):
        ended_ns[event.process] = event.time_ns
        if event.function is Function.SEND and event.outcome is Outcome.INVOKE:
            begun_ns[event.id] = event.time_ns
        elif event.function is Function.SEND:
            produce_s.append((event.time_ns - begun_ns.pop(event.id)) / 1e9)
        for op in event.ops if event.outcome is Outcome.OK else ():
            if isinstance(op, Poll) and op.records:
                before, at_ns = last.get(op.where[1], ("", 0))
                if before == event.process:
                    flow_s.append((event.time_ns - at_ns) / 1e9)
                elif at_ns >= began_ns:
                    changes.append(Change(before=before, after=event.process, from_ns=at_ns, to_ns=event.time_ns))
                last[op.where[1]] = event.process, event.time_ns
    kept = [each for each in changes if kind == "static" and _number(each.before) == _number(each.after)]
    moved = [each for each in changes if each not in kept]
    left = [each for each in moved if ended_ns[each.before] < each.to_ns]
    given = [each for each in moved if each not in left]
    return Figures(
        kind=kind,
        members=plan.members,
        partitions=plan.partitions,
        moved=len(moved),
        must_move=must_move,
        left_s=_spread([each.seconds for each in left]),
        given_s=_spread([each.seconds for each in given]),
        kept_s=_spread([each.seconds for each in kept]),
        flow_s_p50=_spread(flow_s)[0],
        came_s=_spread(came_s),
        produce_s=_spread(produce_s),
        anomalies={str(kind): count for kind, count in check(HistoryFile(history)).found.items()},
    )


def _number(life: str) -> str:
    return life.partition(".")[0]


def _spread(seconds: Sequence[float]) -> tuple[float, float]:
    return (round(statistics.median(seconds), 2), round(max(seconds), 2)) if seconds else (0.0, 0.0)


@click.command(help=__doc__)
@click.option("--members", default=20, show_default=True, type=click.IntRange(2), help="How many restart.")
@click.option("--partitions", default=40, show_default=True, type=click.IntRange(2), help="How many they share.")
@click.option("--heartbeat-ms", default=3_000, show_default=True, help="Between two heartbeats of a member.")
@click.option("--period-ms", default=1_000, show_default=True, help="Between two records of a partition.")
@click.option("--down-ms", default=2_000, show_default=True, help="Between the end of a member and its next start.")
@click.option("--handling-ms", default=0, show_default=True, help="What a member does with the records of a poll.")
@click.option("--kind", type=click.Choice(["static", "dynamic"]), help="Only members of this kind.")
@click.option("--history", type=click.Path(file_okay=False, path_type=Path), help="Keep the histories in this folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(kind: str | None, history: Path | None, as_json: bool, **options: int) -> None:
    plan = Plan(**options)
    console = Console(stderr=as_json)
    with tempfile.TemporaryDirectory() as temporary:
        folder = history or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = [
            run(plan, folder, console, is_static=each == "static")
            for each in ("static", "dynamic")
            if kind in (None, each)
        ]
    if as_json:
        click.echo(json.dumps([asdict(figures) for figures in found]))
    else:
        table = Table("", *(figures.kind for figures in found), title=f"{plan.members} members restarted in turn")
        for name in list(asdict(found[0]))[1:]:
            table.add_row(name.replace("_", " "), *(str(getattr(figures, name)) for figures in found))
        console.print(table)
    raise SystemExit(0 if all(figures.is_right for figures in found) else 1)


if __name__ == "__main__":
    main()
