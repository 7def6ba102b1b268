"""Measures delayed records on the deployed local stack while functions die: early, lost, twice, and how late.

A producer delays records by 5 to 60 s. Meanwhile processes of the functions that take and deliver them are killed. A
consumer notes when each record comes. It needs the variables of the stack's `local.env`.
"""

import random
import statistics
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from uuid import uuid4

import click

from bench.meters.processes import Process, tree
from bench.report.recording import Report, reported
from bench.report.result import Row
from localstack.places import DEFAULT_STATE_DIR, Places
from localstack.stack import status
from penstock import Admin, Consumer, Producer
from penstock.http.transport import open_transport

PARTITIONS = 6
_GIVE_UP_S = 120.0
_KILLED = ("produce", "promote")


@click.command(help=__doc__)
@reported("delays")
@click.option("--records", default=10_000, show_default=True, help="How many records to delay.")
@click.option("--shortest", default=5.0, show_default=True, help="The shortest delay, in seconds.")
@click.option("--longest", default=60.0, show_default=True, help="The longest delay, in seconds.")
@click.option("--kill-every", default=1.0, show_default=True, help="Seconds between two kills; 0 kills nothing.")
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    default=DEFAULT_STATE_DIR,
    show_default=True,
    help="The stack's: its emulator's children are the functions.",
)
def main(report: Report, records: int, shortest: float, longest: float, kill_every: float, state_dir: Path) -> None:
    emulator = status(Places(state_dir)).pid
    if emulator is None:
        raise click.UsageError(f"no stack runs in {state_dir}: `penstock local up` first")
    transport = open_transport()
    admin = Admin(transport=transport)
    topic = f"delays-{uuid4().hex[:8]}"
    admin.create_topic(topic, partitions=PARTITIONS)
    killer = _Killer(emulator, kill_every)
    try:
        with report.console.status("delaying records"), killer:
            row = _measure(topic, records, (shortest, longest))
    finally:
        admin.delete_topic(topic)
    report.show("delayed records while functions die", [{**row, "kills": killer.kills}])


def _measure(topic: str, records: int, delays_s: tuple[float, float]) -> Row:
    due_ms: dict[bytes, int] = {}
    waits_ms: dict[bytes, int] = {}  # since when each record waits in the service
    came: Counter[bytes] = Counter()
    late_ms: dict[bytes, int] = {}
    with Consumer(topic) as consumer, Producer(linger_ms=50) as producer:
        consumer.poll(timeout_ms=2_000)
        sent, started = [], time.monotonic()
        for number in range(records):
            value = str(number).encode()
            delay_ms = int(random.uniform(*delays_s) * 1_000)
            sent.append(producer.send(topic, value, partition=number % PARTITIONS, delay_ms=delay_ms))
            sent[-1].add_done_callback(partial(_note, waits_ms, value))
            due_ms[value] = sent[-1].batch.timer.deliver_at_ms  # type: ignore[union-attr]  # it has one
        failed, sending_s, ends_s = 0, 0.0, time.time() + delays_s[1] + 2 * _GIVE_UP_S
        while (not sending_s or len(came) < records - failed) and time.time() < ends_s:
            for record in consumer.poll(timeout_ms=500):
                came[record.value or b""] += 1
                late_ms[record.value or b""] = _now_ms() - due_ms[record.value or b""]
            if not sending_s and all(each.done() for each in sent):
                failed = sum(each.exception() is not None for each in sent)
                sending_s = time.monotonic() - started
        for record in consumer.poll(timeout_ms=3_000):  # what comes twice comes soon
            came[record.value or b""] += 1
    # A record that was sent late, because the stack is slow or its function died, says nothing of the delivery.
    in_time = [late for value, late in late_ms.items() if waits_ms[value] <= due_ms[value]]
    cuts = statistics.quantiles(in_time, n=100)
    return {
        "records": records,
        "sending_s": round(sending_s, 1),
        "refused": failed,
        "waited_in_time": len(in_time),
        "early": sum(each < 0 for each in late_ms.values()),
        "lost": records - failed - len(came),
        "twice": sum(count > 1 for count in came.values()),
        "late_p50_ms": round(cuts[49]),
        "late_p99_ms": round(cuts[98]),
        "late_max_ms": max(in_time),
    }


class _Killer:
    """Kills a process of one of the functions again and again, in a thread."""

    def __init__(self, emulator: int, every_s: float) -> None:
        self.kills = 0
        self._emulator = emulator
        self._every_s = every_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        if self._every_s:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self._every_s:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            found = [each for each in tree(self._emulator) if _is_killed(each)]
            if found:
                random.choice(found).kill()
                self.kills += 1


def _is_killed(process: Process) -> bool:
    """True for a worker of one of the functions that take or deliver delayed records."""
    try:
        command = Path(f"/proc/{process.pid}/cmdline").read_text()
    except OSError:
        return False
    return any(f"ministack-lambda-penstock-{name}-" in command for name in _KILLED)


def _note(times_ms: dict[bytes, int], value: bytes, _: object) -> None:
    times_ms[value] = _now_ms()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
