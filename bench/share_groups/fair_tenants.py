"""One tenant sends 100 times the others: see how long the others wait, alone, with fair sharing, and without it.

The shipped code on a service in memory. 50 tenants send at random times, and 20 workers take the records. The quiet
tenants alone are 0.7 of what the workers can do, or half of it, or they send all at once; with the noisy one it is
three times that. A record waits from its send until an acquire has handed it out. Waits are in simulated time: an
acquire takes 20 ms, and a job 50 ms on average. So they do not depend on the load of this machine. `ideal` is a
scheduler that knows all tenants and all that is in work, at no cost, and leaves no worker idle.

Throughput is that of 20 threads on a backlog with the same tenants, in real time; four instances take the calls in
turn, as functions do. Its figures are ratios of one run. Exit code 0: quiet tenants wait at most twice as long as
alone, or a fifth longer than with the ideal scheduler, and the throughput holds with jobs of 50 ms. While workers have
time, a quiet tenant alone waits for one acquire only, and with a noisy one until a worker is done.
"""

import os
import random
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from queue import LifoQueue
from typing import Any

import click

from bench.report.result import Row
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.ports.runtime import Clock
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acknowledge import AckEntry
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.acquire.hand_over import HandedLock
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.share_partitions import parse_marked_lock_id
from penstock_service.topics.create_topic import create_topic

GROUP, TOPIC = "workers", "jobs"
TENANTS, WORKERS, RATIO = 50, 20, 100
NOISY = 0
IDEAL = "ideal"
ACQUIRE_MS, JOB_MS, LINGER_MS = 20.0, 50.0, 10.0
BURST = 1_000.0  # of what the workers can do: all is sent at once
WAIT_RATIO_MAX, IDEAL_RATIO_MAX, THROUGHPUT_RATIO_MIN = 2.0, 1.2, 0.9
LOADS = ((0.5, 1), (0.7, 1), (0.7, 5), (0.7, 10), (BURST, 1), (BURST, 10))  # 5 are what an SDK consumer holds


@click.command(help=__doc__)
@click.option("--seconds", default=8.0, show_default=True, help="For which the tenants send.")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(1))
@click.option("--backlog", default=2_000, show_default=True, help="Records whose throughput is measured.")
@click.option("--waits-only", is_flag=True, help="Measure no throughput.")
def main(seconds: float, partitions: int, backlog: int, waits_only: bool) -> None:
    holds = True
    for load, records_max in LOADS:
        rows = {
            name: waits(sharing, partitions, records_max, seconds, load, has_noisy=name != "alone")
            for name, sharing in (("alone", "any"), ("ideal", IDEAL), ("fair", "fair"), ("any", "any"))
        }
        for name, row in rows.items():
            click.echo(f"load {load}, max_records={records_max}, {name}: {row}")
        alone, ideal, fair, _ = (float(row["p99_ms"] or 0) for row in rows.values())
        click.echo(
            f"p99 wait of quiet tenants: {fair / alone:.2f} times that alone, {fair / ideal:.2f} times the ideal"
        )
        holds &= fair <= max(WAIT_RATIO_MAX * alone, IDEAL_RATIO_MAX * ideal)
    for job_ms in () if waits_only else (10.0, JOB_MS):
        speed = [throughput(sharing, partitions, backlog, job_ms) for sharing in ("any", "fair", "any", "fair")]
        share = (speed[1] + speed[3]) / (speed[0] + speed[2])
        told = ", ".join(f"{each:.0f}" for each in speed)
        click.echo(f"jobs of {job_ms:.0f} ms: {told} a second (any, fair, any, fair): {share:.2f}")
        holds &= job_ms < JOB_MS or share >= THROUGHPUT_RATIO_MIN
    click.echo(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    raise SystemExit(not holds)


class _SimulatedClock:
    """A clock that the bench moves."""

    def __init__(self) -> None:
        self.time_ms = 1_000_000.0

    def now_ms(self) -> int:
        return int(self.time_ms)

    def monotonic_ms(self) -> float:
        return self.time_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.time_ms += duration_ms


def waits(sharing: str, partitions: int, records_max: int, seconds: float, load: float, *, has_noisy: bool) -> Row:
    """The waits of the quiet tenants, while all send. One acquire comes after the other."""
    clock, chance = _SimulatedClock(), random.Random(5)
    queue = _Ideal(records_max, clock) if sharing == IDEAL else _Queue(sharing, partitions, records_max, clock)
    events: list[tuple[float, int, Sequence[int]]] = []  # when a worker is free, or tenants send
    for number, (at_ms, tenants) in enumerate(_sends(clock.time_ms, seconds, load, has_noisy=has_noisy)):
        heappush(events, (at_ms, -1 - number, tenants))
    entries: dict[int, Any] = {worker: [] for worker in range(WORKERS)}
    idle = [*range(WORKERS)]
    out: list[float] = []
    begun: list[float] = []
    while events and not (queue.quiet_left == 0 and all(event[1] >= 0 for event in events)):
        at_ms, worker, tenants = heappop(events)
        clock.time_ms = at_ms
        if worker < 0:
            queue.put(tenants)
            free, idle = idle, []
        else:
            free = [worker]
        for place, each in enumerate(free):
            found, entries[each] = queue.take(entries[each])
            if not found:
                idle += free[place:]
                break
            end_ms = at_ms + ACQUIRE_MS
            for tenant, sent_ms in found:
                if tenant != NOISY:
                    queue.quiet_left -= 1
                    out.append(at_ms + ACQUIRE_MS - sent_ms)
                    begun.append(end_ms - sent_ms)
                end_ms += chance.expovariate(1 / JOB_MS)
            heappush(events, (end_ms, each, ()))
    return {"quiet_records": len(out), **_figures("", out), **_figures("until_work_", begun)}


class _Ideal:
    """A queue that gives each next record to the tenant with the fewest in work, and among equals the oldest record."""

    def __init__(self, records_max: int, clock: _SimulatedClock) -> None:
        self.quiet_left = 0
        self._records_max = records_max
        self._clock = clock
        self._waiting: dict[int, deque[float]] = defaultdict(deque)
        self._in_work: Counter[int] = Counter()

    def put(self, tenants: Sequence[int]) -> None:
        """As `_Queue.put`."""
        self.quiet_left += sum(each != NOISY for each in tenants)
        for each in tenants:
            self._waiting[each].append(self._clock.time_ms)

    def take(self, done: Sequence[int]) -> tuple[list[tuple[int, float]], list[int]]:
        """As `_Queue.take`: the tenants of the records that are done end their work."""
        self._in_work.subtract(done)
        found: list[tuple[int, float]] = []
        while len(found) < self._records_max and (there := [each for each, sent in self._waiting.items() if sent]):
            tenant = min(there, key=lambda each: (self._in_work[each], self._waiting[each][0]))
            found.append((tenant, self._waiting[tenant].popleft()))
            self._in_work[tenant] += 1
        return found, [tenant for tenant, _ in found]


def _figures(name: str, found: list[float]) -> Row:
    ordered = sorted(found)
    return {f"{name}p{each}_ms": round(ordered[len(ordered) * each // 100], 1) for each in (50, 99)}


def _sends(begin_ms: float, seconds: float, load: float, *, has_noisy: bool) -> Iterator[tuple[float, Sequence[int]]]:
    """Batches of what all tenants send, each of about 10 ms."""
    chance = random.Random(3)
    quiet_ms = (JOB_MS + ACQUIRE_MS) / WORKERS / load  # between two records of all quiet tenants
    mixed = [*range(1, TENANTS), *[NOISY] * (RATIO * has_noisy)]
    gap_ms = quiet_ms * (TENANTS - 1) / len(mixed)
    seconds = 10.0 / load if load == BURST else seconds
    at_ms, batch_ms, batch = begin_ms, begin_ms + LINGER_MS, list[int]()
    while at_ms < begin_ms + 1_000 * seconds:
        at_ms += chance.expovariate(1 / gap_ms)
        if at_ms > batch_ms:
            if batch:
                yield batch_ms, batch
            batch_ms, batch = at_ms + LINGER_MS, []
        batch.append(chance.choice(mixed))


def throughput(sharing: str, partitions: int, backlog: int, job_ms: float) -> float:
    """Records a second of a backlog in which all tenants are mixed as they send."""
    queue = _Queue(sharing, partitions, 10)
    chance = random.Random(7)
    tenants = chance.choices([NOISY] * RATIO + [*range(1, TENANTS)], k=backlog)
    for at in range(0, backlog, 50):
        queue.put(tenants[at : at + 50])
    left = threading.Semaphore(0)

    def work(seed: int) -> None:
        mine, entries, found = random.Random(seed), list[AckEntry](), list[tuple[int, float]]()
        while queue.has_more(backlog):
            found, entries = queue.take(entries)
            time.sleep(sum(mine.expovariate(1 / job_ms) for _ in found) / 1_000)
        left.release()

    begun = time.monotonic()
    for seed in range(WORKERS):
        threading.Thread(target=work, args=(seed,), daemon=True).start()
    for _ in range(WORKERS):
        left.acquire()
    return backlog / (time.monotonic() - begun)


@dataclass
class _Queue:
    """A service with a topic and a share group, as its producers and workers see it."""

    sharing: str
    partitions: int
    records_max: int
    clock: Clock | None = None
    quiet_left: int = 0
    _sent: int = 0
    _taken: int = 0
    _instances: LifoQueue[Instance] = field(default_factory=LifoQueue)

    def __post_init__(self) -> None:
        self._first = memory_instance(clock=self.clock)
        for _ in range(4):
            self._instances.put(Instance.new(self._first.stores, self._first.runtime))
        create_topic(self._first, TOPIC, self.partitions, {})
        put_share_group(self._first, GROUP, [TOPIC], {"sharing": self.sharing})

    def has_more(self, records: int) -> bool:
        return self._taken < records

    def put(self, tenants: Sequence[int]) -> None:
        """A batch with a record of each of the tenants, which tells when it was sent."""
        self._sent += 1
        self.quiet_left += sum(each != NOISY for each in tenants)
        now = repr(self._first.clock.monotonic_ms()).encode()
        data = encode([NewRecord(1_000, str(each).encode(), now) for each in tenants])
        entry = ProduceEntry(topic=TOPIC, partition=self._sent % self.partitions, data=data)
        produce(self._first, [entry], Acks.QUORUM).all_ok()

    def take(self, entries: Sequence[AckEntry]) -> tuple[list[tuple[int, float]], list[AckEntry]]:
        """The tenants of the next records and when they were sent, and what accepts them."""
        acquired = self._acquire(entries)
        locks = [lock for each in acquired.partitions for lock in each.locks]
        found = [each for lock in locks for each in _records(lock)]
        self._taken += len(found)
        return found, [_accept(lock) for lock in locks]

    def _acquire(self, entries: Sequence[AckEntry]) -> Acquired:
        instance = self._instances.get()
        try:
            wish = AcquireWish(records_max=self.records_max, bytes_max=1_000_000, acknowledgements=tuple(entries))
            return acquire(instance, GROUP, wish)
        finally:
            self._instances.put(instance)


def _records(lock: HandedLock) -> list[tuple[int, float]]:
    held = {*lock.grant.records.offsets()}
    return [
        (int(record.key or b""), float(record.value or b""))
        for batch in lock.batches
        for record in decode(batch.data)
        if record.offset in held
    ]


def _accept(lock: HandedLock) -> AckEntry:
    lock_id, generation, handed_out, mark = parse_marked_lock_id(lock.client_lock_id)
    return AckEntry(
        topic=lock.partition.topic,
        partition=lock.partition.key.partition,
        client_lock_id=lock.client_lock_id,
        mark=mark,
        acknowledgement=Acknowledgement(
            lock_id=lock_id, type=AckType.ACCEPT, generation=generation, handed_out=handed_out, offsets=lock.ranges
        ),
    )


if __name__ == "__main__":
    main()
