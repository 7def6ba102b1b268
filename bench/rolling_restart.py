"""Restarts every member of a group in turn while records flow, and measures how long partitions pause when they move.

Members are threads of one process. Each has a consumer of its own, with its own threads and connections, and a restart
closes it and makes another. `--down-ms` stands for the start of a process. The bench runs twice. With static members no
partition should move. With dynamic members the partitions of a leaving member go to others, and a joining member gets
its share.

A partition pauses from the last record before it changes hands to the first record after. The history checker judges
all reads. Exit code 0: it found no anomaly, and no more partitions moved than must move. It needs the local stack that
`make run` or `penstock local up` starts.
"""

import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from bench.group_kills import anomalies, events
from bench.group_member import GroupMember, MemberSpec
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin, Producer
from penstock.http.transport import open_transport
from tests.chaos.recording import RecordingTransport
from tests.history.__main__ import HistoryFile
from tests.history.checker import check
from tests.history.format import Outcome, Poll
from tests.history.recorder import Recorder

PATIENCE_S = 180  # enough for a busy machine
SESSION_MS = 45_000
_START_EACH_S = 1.0  # not all at once: that would be as many cold starts at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Each partition gets a record every `period_ms`, and a member is down for `down_ms`."""

    members: int
    partitions: int
    heartbeat_ms: int
    period_ms: int
    down_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The pause of a partition: from its last record before it changed hands to the first record after."""

    before: str  # the member's life, "<number>.<life>"
    after: str
    from_ns: int
    to_ns: int

    @property
    def seconds(self) -> float:
        return (self.to_ns - self.from_ns) / 1e9


class Seat:
    """One member of the group, over its lives."""

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
        """Ends the member and waits until its consumer is closed."""
        self._is_over.set()
        self._thread.join()

    def is_alive(self) -> bool:
        return self._thread.is_alive()


def run(plan: Plan, folder: Path, console: Console, *, is_static: bool) -> Row:
    """Restarts members of one kind, on a topic of its own: the findings. The history stays in `folder`."""
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
        )

    history = folder / f"{kind}.history.jsonl"
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
            time.sleep(2 * plan.period_ms / 1_000)  # until the first owners have read all partitions
            began_ns = time.monotonic_ns()
            moves = _restart(seats, plan, console, is_static=is_static)
            time.sleep(2 * plan.period_ms / 1_000)  # records for the member that came last
            is_sending.clear()
            sender.join()
            _until(seats, lambda: sum(seat.member.read for seat in seats) == sum(sent), "everything is read")
        finally:
            is_sending.clear()
            sender.join()
            _all(seats, Seat.stop)
    return _judged(plan, kind, history, began_ns, moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """The partitions that the restarts had to move, and the seconds that each member took to get its share."""

    must_move: int
    came_s: Sequence[float]


def _restart(seats: Sequence[Seat], plan: Plan, console: Console, *, is_static: bool) -> Moves:
    """Restarts each member in turn. A dynamic one gives away what it holds, and then takes its share."""
    came_s: list[float] = []
    must_move = 0
    for seat in seats:
        held = seat.member.held
        seat.stop()
        time.sleep(plan.down_ms / 1_000)
        seat.start()
        began_s = time.monotonic()
        must_move += 0 if is_static else held + plan.partitions // plan.members
        _wait(seats, plan)
        came_s.append(time.monotonic() - began_s)
        console.print(f"member {seat.number} is back: {came_s[-1]:.1f} s")
    return Moves(must_move=must_move, came_s=came_s)


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
    """Waits until the members hold all partitions and each has its share."""
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


def _judged(plan: Plan, kind: str, history: Path, began_ns: int, moves: Moves) -> Row:
    """The findings, with pauses in seconds, median and longest.

    `left` are partitions whose member left, `given` those that moved to a member that came, and `kept` those that the
    same static member has again. `came` runs from the start of a member until it has its share.
    """
    changes, ended_ns = _changes(history, began_ns)
    kept = [each for each in changes if kind == "static" and _number(each.before) == _number(each.after)]
    moved = [each for each in changes if each not in kept]
    left = [each for each in moved if ended_ns[each.before] < each.to_ns]
    given = [each for each in moved if each not in left]
    return {
        "kind": kind,
        "members": plan.members,
        "partitions": plan.partitions,
        "moved": len(moved),
        "must_move": moves.must_move,
        **_spread("left", [each.seconds for each in left]),
        **_spread("given", [each.seconds for each in given]),
        **_spread("kept", [each.seconds for each in kept]),
        **_spread("came", moves.came_s),
        "anomalies": anomalies(check(HistoryFile(history)).found),
    }


def _changes(history: Path, began_ns: int) -> tuple[list[Change], dict[str, int]]:
    """The changes of hands of partitions, and the last event of each process."""
    changes: list[Change] = []
    ended_ns: dict[str, int] = {}
    last: dict[int, tuple[str, int]] = {}
    for event in events(history):
        ended_ns[event.process] = event.time_ns
        for op in event.ops if event.outcome is Outcome.OK else ():
            if isinstance(op, Poll) and op.records:
                before, at_ns = last.get(op.where[1], ("", 0))
                if before != event.process and at_ns >= began_ns:
                    changes.append(Change(before=before, after=event.process, from_ns=at_ns, to_ns=event.time_ns))
                last[op.where[1]] = event.process, event.time_ns
    return changes, ended_ns


def _number(life: str) -> str:
    return life.partition(".")[0]


def _spread(name: str, seconds: Sequence[float]) -> Row:
    """The median and the longest, as two columns of a table."""
    median, longest = (round(statistics.median(seconds), 2), round(max(seconds), 2)) if seconds else (None, None)
    return {f"{name}_p50_s": median, f"{name}_max_s": longest}


@click.command(help=__doc__)
@reported("rolling_restart")
@click.option("--members", default=20, show_default=True, type=click.IntRange(2), help="How many restart.")
@click.option("--partitions", default=40, show_default=True, type=click.IntRange(2), help="How many they share.")
@click.option("--heartbeat-ms", default=3_000, show_default=True, help="Between two heartbeats of a member.")
@click.option("--period-ms", default=1_000, show_default=True, help="Between two records of a partition.")
@click.option("--down-ms", default=2_000, show_default=True, help="Between the end of a member and its next start.")
@click.option("--kind", type=click.Choice(["static", "dynamic"]), help="Only members of this kind.")
@click.option("--history", type=click.Path(file_okay=False, path_type=Path), help="Keep the histories in this folder.")
def main(report: Report, kind: str | None, history: Path | None, **options: int) -> None:
    plan = Plan(**options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = history or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = [
            run(plan, folder, report.console, is_static=each == "static")
            for each in ("static", "dynamic")
            if kind in (None, each)
        ]
    report.show("restarts", found)
    report.judge(holds=all(int(str(row["moved"])) <= int(str(row["must_move"])) for row in found))
    report.judge(holds=all(row["anomalies"] == "none" for row in found))


if __name__ == "__main__":
    main()
