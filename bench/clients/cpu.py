"""Measures how many records a CPU second of the SDK's producer and consumer carries. The service costs nothing.

The transport answers from this process at once. CPU is that of all threads (`time.process_time`), so other programs of
the machine change it little. It needs no stack.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import click

from bench.harness.turns import spread, take_turns
from bench.loads.traced_client import VALUE, AnswersAtOnce
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Consumer, Producer, TopicPartition
from penstock.testing import MemoryPenstock

PARTITIONS = 4
COMPRESSIONS = ("none", "zstd")
NO_KEY, DISTINCT_KEYS, POLL = "send, no key", "send, distinct keys", "poll"
BARS = {NO_KEY: 500_000, DISTINCT_KEYS: 400_000, POLL: 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Records that one side sends or reads in a round."""

    name: str
    compression: str
    records: int


@click.command(help=__doc__)
@reported("client_cpu")
@click.option("--records", default=300_000, show_default=True, type=click.IntRange(1_000), help="Of 100 B, each round.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="How often all take turns.")
@click.option("--quick", is_flag=True, help="100,000 records, three rounds.")
def main(report: Report, records: int, rounds: int, quick: bool) -> None:
    records, rounds = (100_000, 3) if quick else (records, rounds)
    keys = [b"customer-%d" % number for number in range(records)]
    works = [
        Work(name=name, compression=compression, records=records)
        for compression in COMPRESSIONS
        for name in (NO_KEY, DISTINCT_KEYS, POLL)
    ]
    with _services(records) as transports:
        sides: list[Callable[[], float]] = [
            partial(_poll, transports[work.compression], work)
            if work.name == POLL
            else partial(_send, transports[work.compression], work, keys if work.name == DISTINCT_KEYS else None)
            for work in works
        ]
        found = take_turns(sides, rounds)
    report.show("records of 100 B", [row_of(work, seconds) for work, seconds in zip(works, found, strict=True)])


def row_of(work: Work, cpu_s: Sequence[float]) -> Row:
    """Rates of a CPU second, and the bar of that work without compression."""
    rates = spread(work.records / each for each in cpu_s)
    bar = BARS[work.name] if work.compression == "none" else None
    return {
        "work": work.name,
        "compression": work.compression,
        "records_per_cpu_s": round(rates.median),
        "span": rates.words(),
        "cpu_us_per_record": round(1e6 / rates.median, 2),
        "bar_per_cpu_s": bar,
        "holds": None if bar is None else "yes" if rates.median >= bar else "no",
    }


@contextmanager
def _services(records: int) -> Iterator[dict[str, AnswersAtOnce]]:
    """A transport for each compression, with a topic of that name. Its first partition has records to read."""
    transports: dict[str, AnswersAtOnce] = {}
    with MemoryPenstock() as service:
        for compression in COMPRESSIONS:
            service.create_topic(compression, partitions=PARTITIONS)
            transports[compression] = AnswersAtOnce(service.transport)
            with Producer(transport=transports[compression], compression_type=compression) as producer:
                for _ in range(records):
                    producer.send(compression, VALUE, partition=0)
            transports[compression].is_storing = False
        yield transports


def _send(transport: AnswersAtOnce, work: Work, keys: Sequence[bytes] | None) -> float:
    """The CPU seconds of a producer from its first record to its close."""
    begun_s = time.process_time()
    with Producer(transport=transport, compression_type=work.compression) as producer:
        if keys is None:
            for _ in range(work.records):
                producer.send(work.compression, VALUE)
        else:
            for key in keys:
                producer.send(work.compression, VALUE, key=key)
    return time.process_time() - begun_s


def _poll(transport: AnswersAtOnce, work: Work) -> float:
    """The CPU seconds of a consumer of one partition. The transport knows all answers after the warm-up."""
    begun_s, left = time.process_time(), work.records
    with Consumer(transport=transport) as consumer:
        consumer.assign([TopicPartition(work.compression, 0)])
        while left > 0:
            left -= len(consumer.poll())
    return time.process_time() - begun_s


if __name__ == "__main__":
    main()
