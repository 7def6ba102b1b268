"""Simulates many idempotent producers on one partition: the tail, the head, and the write units of the key.

It runs the service's own appends, rolls and evictions on tables in memory, in simulated time. Each call to storage
takes time, and transactions of another writer hold the head now and then. A write that DynamoDB refuses costs write
units too.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.errors import PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import KIB
from penstock_core.storage.head_item import head_item, producer_item
from penstock_core.storage.item import item_bytes
from penstock_core.storage.page_item import page_item
from penstock_core.transaction import Move
from penstock_service.adapters.dynamodb.driver_errors import AnsweredError
from penstock_service.adapters.memory.service import memory_stores
from penstock_service.adapters.tables.tables import InterposedTables, Strain, Tables
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.ports.log import LogIndex
from penstock_service.ports.runtime import Runtime
from penstock_service.records.append_in_sequence import append_in_sequence
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from penstock_service.segments.put_segment import StoredSegment
from tests.simulation.engine.executor import SimulatedExecutor
from tests.simulation.engine.scheduler import Scheduler
from tests.simulation.engine.time_and_chance import SchedulerClock, SimulatedEntropy
from tests.support.refs import one_sequence, ref_at

KEY = PartitionKey(TopicId("0f" * 10), Partition(0))
CALL_MS = 7.5  # so that a roll, which is two writes one after the other, takes 15 ms
TRANSACTION_MS = 20.0  # at most, in which a transaction of another writer holds the head
TAIL_MAX, HEAD_BYTES_MAX, UNITS_PER_S_MAX, REFUSED_MAX = 64, 3 * KIB, 1_000, 0.01  # the bounds of the design


@click.command(help=__doc__)
@reported("crowded_head")
@click.option("--producers", default=(20, 100, 500), show_default=True, multiple=True, help="One run for each.")
@click.option("--appends-per-s", default=150, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=60, show_default=True, type=click.IntRange(1), help="Of simulated time.")
@click.option("--transactions-per-s", default=2, show_default=True, help="Of another writer, which hold the head.")
def main(report: Report, producers: Sequence[int], appends_per_s: int, seconds: int, transactions_per_s: int) -> None:
    rows: list[Row] = []
    for count in producers:
        crowd = _Crowd(count, appends_per_s, seconds, transactions_per_s)
        crowd.run()
        rows.append(crowd.row())
        report.judge(holds=crowd.holds())
    report.show("one_partition", rows)


class _Crowd:
    """One run: producers that each send one append at a time, and what it costs."""

    def __init__(self, producers: int, appends_per_s: int, seconds: int, transactions_per_s: int) -> None:
        self.producers, self.appends_per_s, self.seconds = producers, appends_per_s, seconds
        self.transactions_per_s = transactions_per_s
        self.scheduler = Scheduler(seed=producers)
        self.clock = SchedulerClock(self.scheduler)
        self.entropy = SimulatedEntropy(self.scheduler)
        self.conflicts = 0
        tables = Tables(self.clock.now_ms, strain=Strain(hold=self._hold))
        stores = memory_stores(
            tables=InterposedTables(tables, self._count_conflicts), clock=self.clock, entropy=self.entropy
        )
        self.transactions = stores.transactions
        stores.log.create_head(KEY)
        self.metered = _MeteredLog(stores.log, self.scheduler)
        stores = replace(stores, log=self.metered)
        runtime = Runtime(clock=self.clock, entropy=self.entropy, executor=SimulatedExecutor(self.scheduler))
        self.instance = Instance.new(stores, runtime)
        self.latencies_ms: list[float] = []
        self.errors: Counter[str] = Counter()
        self.tails: list[int] = []
        self.head_bytes: list[int] = []

    def run(self) -> None:
        mean_ms = 1_000.0 * self.producers / self.appends_per_s
        for producer_id in range(self.producers):
            delay_ms = self.scheduler.random.uniform(0.0, mean_ms)
            self.scheduler.spawn(f"p{producer_id}", partial(self._produce, producer_id, mean_ms), delay_ms=delay_ms)
        if self.transactions_per_s:
            self.scheduler.spawn("transactions", self._transact)
        self.scheduler.run()

    def _produce(self, producer_id: int, mean_ms: float) -> None:
        sequence = 0
        due_ms = self.scheduler.now_ms
        while due_ms < 1_000.0 * self.seconds:
            self.scheduler.pause(max(0.0, due_ms - self.scheduler.now_ms))
            began_ms = self.scheduler.now_ms
            try:
                self._append(producer_id, sequence)
            except PenstockError as error:
                self.errors[error.code.value] += 1
            else:
                sequence += 1
                self.latencies_ms.append(self.scheduler.now_ms - began_ms)
            due_ms += self.scheduler.random.expovariate(1.0 / mean_ms)

    def _append(self, producer_id: int, number: int) -> None:
        window = UpdateWindow.open(self.clock)
        sequence = one_sequence(2**62 + producer_id, number)
        ref = ref_at(self.clock.now_ms(), sequence, length=1_000)
        stored = StoredSegment(segment_id=ref.segment_id, zones=0b111, unconfirmed_zones=0, window=window)
        outcome = append_in_sequence(self.instance, KEY, ref, stored, sequence, b"")
        if outcome.head is not None:
            self.tails.append(len(outcome.head.tail))
            self.head_bytes.append(item_bytes(head_item(KEY, outcome.head)))
            grown = GrownHead(key=KEY, head=outcome.head, added_producer=outcome.added_producer)
            shorten_heads(self.instance, window, [grown])

    def _transact(self) -> None:
        while self.scheduler.now_ms < 1_000.0 * self.seconds:
            self.scheduler.pause(self.scheduler.random.expovariate(self.transactions_per_s / 1_000.0))
            self.transactions.move(Move(refs={KEY: [ref_at(self.clock.now_ms(), length=1_000)]}))
            self.metered.charge(2 * _units(self.metered.head_bytes()))

    def _hold(self) -> None:
        self.clock.sleep_ms(self.scheduler.random.uniform(0.0, TRANSACTION_MS))

    def _count_conflicts(self, _operation: str, _arguments: object, apply: Callable[[], dict[str, Any]]) -> Any:
        try:
            return apply()
        except AnsweredError as error:
            codes = {error.code, *(reason["Code"] for reason in error.reasons)}
            self.conflicts += not codes.isdisjoint(("TransactionConflictException", "TransactionConflict"))
            raise

    def row(self) -> Row:
        """The figures of the run."""
        units = self.metered.units_by_second[: self.seconds]
        counts = self.instance.telemetry.take()[0]
        return {
            "producers": self.producers,
            "appends": len(self.latencies_ms),
            "tail_refs_max": max(self.tails),
            "head_bytes_mean": round(statistics.mean(self.head_bytes)),
            "head_bytes_max": max(self.head_bytes),
            "write_units_per_s_mean": round(statistics.mean(units)),
            "write_units_per_s_max": round(max(units)),
            "looks_refused_percent": round(100 * self.metered.looks_refused / len(self.latencies_ms), 2),
            "appends_failed": sum(self.errors.values()),
            "conflicts": self.conflicts,
            "rolls_failed": counts["rolls_failed"],
            "evictions_failed": counts["evictions_failed"],
            "append_ms_p50": round(statistics.median(self.latencies_ms), 1),
            "append_ms_p99": round(statistics.quantiles(self.latencies_ms, n=100)[-1], 1),
        }

    def holds(self) -> bool:
        """Tells if the run stayed within the design's bounds."""
        return (
            max(self.tails) < TAIL_MAX
            and statistics.mean(self.head_bytes) < HEAD_BYTES_MAX
            and statistics.mean(self.metered.units_by_second[: self.seconds]) < UNITS_PER_S_MAX
            and self.metered.looks_refused <= REFUSED_MAX * len(self.latencies_ms)
            and not self.errors
        )


class _MeteredLog:
    """The log, with a time for each call, and the write units of the partition's key by second."""

    def __init__(self, log: LogIndex, scheduler: Scheduler) -> None:
        self._log = log
        self._scheduler = scheduler
        self.units_by_second: list[float] = []
        self.looks_refused = 0

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name, getattr(self._log, name))

    def head_bytes(self) -> int:
        """The size of the head now."""
        return item_bytes(head_item(KEY, self._log.heads([KEY])[KEY]))

    def charge(self, units: float) -> None:
        """Adds write units to this second."""
        second = int(self._scheduler.now_ms / 1_000.0)
        self.units_by_second += [0.0] * (second + 1 - len(self.units_by_second))
        self.units_by_second[second] += units

    def _call(self, name: str, effect: Callable[..., Any], *arguments: Any) -> Any:
        self._scheduler.pause(CALL_MS * self._scheduler.random.uniform(0.35, 0.65))
        before = self.head_bytes()
        result = effect(*arguments)
        if name not in ("heads", "evicted_producer"):
            self.charge(_units(self._written_bytes(name, arguments, before)))
        if name == "append_in_sequence":
            looked_at, sequence = arguments[4], arguments[3]
            is_refused = not result.is_appended and looked_at is not None
            self.looks_refused += is_refused and sequence.producer_id not in result.head.producers
        self._scheduler.pause(CALL_MS * self._scheduler.random.uniform(0.35, 0.65))
        return result

    def _written_bytes(self, name: str, arguments: Sequence[Any], head_before: int) -> int:
        if name in ("put_page", "replace_page"):
            return item_bytes(page_item(arguments[0], arguments[-1]))
        if name == "put_evicted":
            return item_bytes(producer_item(arguments[0], arguments[1], arguments[2], arguments[3]))
        return max(head_before, self.head_bytes())


def _units(size: int) -> int:
    """Write units of an item: one for each KiB that has begun."""
    return -(-size // KIB)


if __name__ == "__main__":
    main()
