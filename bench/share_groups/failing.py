"""Measure what records that fail for ever cost the others: runs with and without them, in turns.

A failing record is released at each try, and is dead-lettered after the last. With the longest handlers, of the times
that `--work-ms` gives, the median rate must be at least 0.8 of the one without failures. Each failing record must be in
the dead-letter topic once, after exactly its tries. With shorter handlers the machine's CPU is the bound.
"""

import logging
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import click

from bench.meters.counting import CountingTransport
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.share_groups.workers import SharedTopic, dead_letter_number, shared_topic
from penstock import ShareConsumer
from penstock.http.transport import Transport, open_transport
from penstock.share_model import ShareRecord

CONFIG = {"deliveries_max": 5, "retry_backoff_ms_min": 100, "retry_backoff_ms_max": 1_000}
RECORD_BYTES = 100
CONSUMERS, CONCURRENCY = 4, 4
RATIO_MIN = 0.8


class _FailedError(Exception):
    """The handler raises it for a failing record."""


@dataclass(slots=True)
class Run:
    """One run, as its handlers see it. Of `each` records one fails for ever; 0: none does."""

    records: int
    each: int
    work_ms: float
    tries: Counter[int] = field(default_factory=Counter)
    begun_s: float = 0.0
    good_left: int = 0
    seconds: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.good_left = self.records - len(self.failing)

    @property
    def failing(self) -> list[int]:
        """The numbers of the records that fail."""
        return list(range(0, self.records, self.each)) if self.each else []

    def handle(self, record: ShareRecord) -> None:
        """A handler. It notes when the last good record is done."""
        number = int(record.value or b"")
        time.sleep(self.work_ms / 1_000)
        fails = self.each > 0 and number % self.each == 0
        with self.lock:
            self.begun_s = self.begun_s or time.monotonic()
            self.tries[number] += 1
            if not fails and self.tries[number] == 1:
                self.good_left -= 1
                if not self.good_left:
                    self.seconds = time.monotonic() - self.begun_s
        if fails:
            raise _FailedError

    def row(self, dead: Counter[int], deliveries: set[int]) -> Row:
        """`dead` counts the dead letters by offset, and `deliveries` are the counts in their headers."""
        failing = self.failing
        tries = [self.tries[number] for number in failing]
        return {
            "failing_records": len(failing),
            "good_records_per_s": round((self.records - len(failing)) / self.seconds),
            "tries_min": min(tries, default=None),
            "tries_max": max(tries, default=None),
            "dead_letters": dead.total(),
            "wrong_dead_letters": sum((dead - Counter(failing)).values()) + sum((Counter(failing) - dead).values()),
            "deliveries_in_headers": ", ".join(map(str, sorted(deliveries))),
            "good_handled_again": sum(count - 1 for number, count in self.tries.items() if number not in failing),
        }


@click.command(help=__doc__)
@reported("share_failing")
@click.option("--records", default=4_000, show_default=True, type=click.IntRange(1), help="Of each run.")
@click.option("--one-in", default=100, show_default=True, type=click.IntRange(2), help="One record in so many fails.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often the two take turns.")
@click.option("--work-ms", default=(20.0, 5.0), show_default=True, multiple=True, help="That a handler takes.")
def main(report: Report, records: int, one_in: int, rounds: int, work_ms: tuple[float, ...]) -> None:
    logging.getLogger("penstock.share").setLevel(logging.CRITICAL)  # it tells of each failing handler
    report.conditions.append(
        f"One partition, {CONSUMERS} consumers of {CONCURRENCY} threads in one process, {CONFIG['deliveries_max']} "
        "deliveries at most."
    )
    medians: list[Row] = []
    for handler_ms in work_ms:
        rows: list[Row] = []
        for number in range(rounds):
            for each in (0, one_in) if number % 2 else (one_in, 0):
                run = Run(records=records, each=each, work_ms=handler_ms)
                rows.append(_measure(run))
        report.show(f"runs_of_{handler_ms:g}_ms_a_record", rows)
        report.judge(holds=all(is_right(row) for row in rows))
        medians.append({"ms_a_record": handler_ms, **medians_of(rows)})
    report.show("good_records_a_second", medians)
    [longest] = [row["ratio"] for row in medians if row["ms_a_record"] == max(work_ms)]
    report.judge(holds=float(longest or 0) >= RATIO_MIN)


def medians_of(rows: Sequence[Row]) -> Row:
    """The median rates with failing records and without, and their ratio."""
    with_failures = _median_rate(row for row in rows if row["failing_records"])
    without = _median_rate(row for row in rows if not row["failing_records"])
    return {"with_failures": with_failures, "without": without, "ratio": round(with_failures / without, 2)}


def _median_rate(rows: Iterable[Row]) -> float:
    return statistics.median(float(row["good_records_per_s"] or 0) for row in rows)


def _measure(run: Run) -> Row:
    with shared_topic() as shared:
        group = shared.create_group(dead_letter_topic=shared.dead_letter_topic, **CONFIG)
        shared.send(run.records, RECORD_BYTES)
        transport = CountingTransport(open_transport())
        _handle_all(shared, group, run, transport)
        letters = shared.dead_letters()
    dead = Counter(dead_letter_number(each, "offset") for each in letters)
    calls = {call: transport.counts(f"/v1/share-groups/{group}/{call}").requests for call in ("acquire", "acknowledge")}
    return run.row(dead, {dead_letter_number(each, "deliveries") for each in letters}) | {
        "acquires": calls["acquire"],
        "acknowledgements_alone": calls["acknowledge"],
    }


def _handle_all(shared: SharedTopic, group: str, run: Run, transport: Transport) -> None:
    consumers = [ShareConsumer(group_id=group, transport=transport) for _ in range(CONSUMERS)]
    threads = [
        threading.Thread(target=each.run, args=(run.handle,), kwargs={"concurrency": CONCURRENCY}) for each in consumers
    ]
    for thread in threads:
        thread.start()
    try:
        shared.wait_until_finished(group)
    finally:
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join()


def is_right(row: Row) -> bool:
    """Each failing record had its tries and is dead-lettered once, and no other record is."""
    if not row["failing_records"]:
        return row["dead_letters"] == 0
    tries = CONFIG["deliveries_max"]
    return (
        (row["tries_min"], row["tries_max"]) == (tries, tries)
        and row["wrong_dead_letters"] == 0
        and row["deliveries_in_headers"] == str(tries)
    )
