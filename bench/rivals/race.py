"""Turns of the systems: client processes send for a time, then as many read what was sent.

The processes begin together. A rate is the records of all clients by the time from the first's begin to the last's end.
Reading ends when the records do, or when the time is over.
"""

import multiprocessing
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from typing import Any

from bench.rivals.systems import Seat, System

_FIRST_S = 20  # until the first record: a function's instance may start
_IDLE_S = 1.5  # without a record: there are no more


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


@contextmanager
def _fresh_topic(system: System) -> Iterator[str]:
    topic = f"bench-{secrets.token_hex(4)}"
    system.make(topic)
    try:
        yield topic
    finally:
        system.drop(topic)


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
