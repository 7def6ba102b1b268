"""Turns of the systems: client processes send for a time, then as many read what was sent. And one record at a time.

The processes begin together. A rate is the records of all clients by the time from the first's begin to the last's end.
Reading ends when the records do, or when the time is over.
"""

import multiprocessing
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from typing import Any

from bench.report.result import Row
from bench.rivals.systems import Client, Seat, System
from bench.turns import take_turns

_FIRST_S = 20  # until the first record: a function's instance may start
_IDLE_S = 1.5  # without a record: there are no more
_PER_TURN = 10
_LATE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """The work of one client, in monotonic seconds, which all processes of a machine share."""

    records: int
    begun_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one turn."""

    record_bytes: int
    clients: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Records a second of all clients, each way."""

    sent_per_s: float
    received_per_s: float


_barrier: Any = None


@contextmanager
def pool_of(clients: int) -> Iterator[Pool]:
    """Processes that have loaded all systems. Each takes one piece of work at a time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.rivals.__main__"])
    barrier = context.Barrier(clients)
    with context.Pool(clients, initializer=_begin, initargs=(barrier,)) as pool:
        yield pool


def run_turn(system: System, load: Load, pool: Pool) -> Turn:
    """Sends, receives, on a topic of its own."""
    with _fresh_topic(system) as topic:
        work = [(system, topic, load, number) for number in range(load.clients)]
        sent = pool.starmap(_send, work, chunksize=1)
        received = pool.starmap(_receive, work, chunksize=1)
    return Turn(sent_per_s=rate(sent), received_per_s=rate(received))


def rate(stints: Sequence[Stint]) -> float:
    """The records of all stints a second. Clients that found none do not count."""
    worked = [each for each in stints if each.records]
    if not worked:
        return 0.0
    seconds = max(each.ended_s for each in worked) - min(each.begun_s for each in worked)
    return sum(each.records for each in worked) / seconds


def latencies(systems: Sequence[System], samples: int, record_bytes: int = 100) -> list[Row]:
    """p50 and p99 of one record at a time: until it is acknowledged, and until a waiting reader has it."""
    with ExitStack() as stack:
        sides = [stack.enter_context(_one_at_a_time(system, os.urandom(record_bytes))) for system in systems]
        turns = take_turns(sides, max(2, samples // _PER_TURN))
    rows: list[Row] = []
    for system, taken in zip(systems, turns, strict=True):
        delays = [each for turn in taken for each in turn]
        acknowledged, delivered = (_cuts(seconds) for seconds in zip(*delays, strict=True))
        rows.append(
            {
                "system": system.name,
                "acknowledged_p50_ms": acknowledged[0],
                "acknowledged_p99_ms": acknowledged[1],
                "delivered_p50_ms": delivered[0],
                "delivered_p99_ms": delivered[1],
                "records": len(delays),
            }
        )
    return rows


@contextmanager
def _fresh_topic(system: System) -> Iterator[str]:
    topic = f"bench-{secrets.token_hex(4)}"
    system.make(topic)
    try:
        yield topic
    finally:
        system.drop(topic)


@contextmanager
def _one_at_a_time(system: System, value: bytes) -> Iterator[Callable[[], list[tuple[float, float]]]]:
    with _fresh_topic(system) as topic:
        client = system.connect(topic, Seat(is_prompt=True))
        yield lambda: [_delay(system.name, client, value) for _ in range(_PER_TURN)]
        client.close()


def _delay(name: str, client: Client, value: bytes) -> tuple[float, float]:
    """The seconds from a send until the record was acknowledged, and until the reader had it."""
    begun_s = time.perf_counter()
    client.send([value])
    client.flush()
    acknowledged_s = time.perf_counter() - begun_s
    while not client.receive():
        if time.perf_counter() > begun_s + _LATE_S:
            raise TimeoutError(f"{name}: a record did not come within {_LATE_S} s")
    return acknowledged_s, time.perf_counter() - begun_s


def _cuts(seconds: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return round(cuts[49] * 1_000, 1), round(cuts[98] * 1_000, 1)


def _begin(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _send(system: System, topic: str, load: Load, number: int) -> Stint:
    client = system.connect(topic, Seat(number=number, of=load.clients))
    values = [os.urandom(load.record_bytes) for _ in range(client.chunk)]  # no compression shrinks them
    client.send(values)
    client.flush()
    _barrier.wait()
    begun_s, records = time.monotonic(), 0
    while time.monotonic() < begun_s + load.seconds:
        client.send(values)
        records += len(values)
    client.flush()
    ended_s = time.monotonic()
    client.close()
    return Stint(records=records, begun_s=begun_s, ended_s=ended_s)


def _receive(system: System, topic: str, load: Load, number: int) -> Stint:
    client = system.connect(topic, Seat(number=number, of=load.clients))
    _barrier.wait()
    begun_s = ended_s = time.monotonic()
    records = 0
    while ended_s < begun_s + load.seconds:
        found = client.receive()
        now_s = time.monotonic()
        if found:
            records, ended_s = records + found, now_s
        elif now_s > ended_s + (_IDLE_S if records else _FIRST_S):
            break
    client.close()
    return Stint(records=records, begun_s=begun_s, ended_s=ended_s)
