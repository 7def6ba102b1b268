"""Compares the CPU that the handlers of two deployed local stacks spend on the same warm requests.

    python -m localstack up --state-dir ../before/stack --port 4702    # in the earlier checkout
    python -m localstack up --state-dir .penstock --port 4703
    python -m bench.compare ../before/stack/local.env .penstock/local.env

One stack is usually of an earlier checkout. The same requests go to both in turns, so other work of the machine falls
on both. The functions report their CPU time and their storage calls. A ratio divides the second stack's median by the
first one's.
"""

import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
from botocore.credentials import Credentials

from bench.meters.counting import CountingTransport, Counts
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.stack import batch_of, fetch_once, produce_once
from penstock import Admin
from penstock.configuration import Configuration
from penstock.http.transport import HttpTransport
from penstock_core.records.codec import NewRecord, encode
from penstock_core.records.record_batch import Compression


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch that goes to each of some partitions; `records` are in it."""

    name: str
    batch: bytes
    records: int = 1
    partitions: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request: CPU and storage calls by the function's account, and the time that the client waited."""

    cpu_ms: float
    wall_ms: float
    storage_calls: int


@click.command(help=__doc__)
@reported("compare")
@click.argument("env_files", nargs=2, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--rounds", default=40, show_default=True, help="How often the two stacks take turns.")
def main(report: Report, env_files: tuple[Path, Path], rounds: int) -> None:
    transports = [_transport(path) for path in env_files]
    rows = [row for case in _cases() for row in _compare(transports, case, rounds)]
    report.show("requests", sorted(rows, key=lambda row: str(row["request"])))


def _cases() -> list[Case]:
    small = encode([NewRecord(time.time_ns() // 1_000_000, None, b"x" * 100)], Compression.NONE)
    return [
        Case(name="1 record of 100 B", batch=small),
        Case(name="6 records to 6 partitions", batch=small, partitions=6),
        Case(name="1 MB in 1 record", batch=batch_of(1, 1_000_000)),
        Case(name="1 MB in 10,000 records", batch=batch_of(10_000, 1_000_000), records=10_000),
    ]


def _compare(transports: Sequence[CountingTransport], case: Case, rounds: int) -> list[Row]:
    """A row for produce and one for fetch. The stack that comes first changes from round to round."""
    samples: dict[str, tuple[list[Sample], list[Sample]]] = {"produce": ([], []), "fetch": ([], [])}
    with ExitStack() as stack:
        admins = [stack.enter_context(Admin(transport=transport)) for transport in transports]
        topics = [f"compare-{secrets.token_hex(4)}" for _ in transports]
        for admin, topic in zip(admins, topics, strict=True):
            admin.create_topic(topic, partitions=case.partitions)
        for number in range(rounds):
            for side in (0, 1) if number % 2 else (1, 0):
                to, topic, offset = transports[side], topics[side], number * case.records
                produced = _timed(partial(produce_once, to, topic, case.partitions, case.batch))
                samples["produce"][side].append(produced)
                samples["fetch"][side].append(_timed(partial(fetch_once, to, topic, case.partitions, offset)))
        for admin, topic in zip(admins, topics, strict=True):
            admin.delete_topic(topic)
    return [_row(f"{request}: {case.name}", *sides) for request, sides in samples.items()]


def _timed(request: Callable[[], Counts]) -> Sample:
    started_s = time.perf_counter()
    counts = request()
    wall_ms = (time.perf_counter() - started_s) * 1_000
    return Sample(cpu_ms=counts.cpu_ms, wall_ms=wall_ms, storage_calls=counts.storage_calls.total())


def _transport(env_file: Path) -> CountingTransport:
    values = dict(line.split("=", 1) for line in env_file.read_text().splitlines())
    credentials = Credentials(values["AWS_ACCESS_KEY_ID"], values["AWS_SECRET_ACCESS_KEY"])
    return CountingTransport(
        HttpTransport(Configuration(url=values["PENSTOCK_URL"], region=values["AWS_REGION"], credentials=credentials))
    )


def _row(name: str, before: Sequence[Sample], after: Sequence[Sample]) -> Row:
    cpu_before, cpu_after = (statistics.median(each.cpu_ms for each in side) for side in (before, after))
    wall_before, wall_after = (statistics.median(each.wall_ms for each in side) for side in (before, after))
    calls_before, calls_after = (statistics.mean(each.storage_calls for each in side) for side in (before, after))
    return {
        "request": name,
        "cpu_before_ms": round(cpu_before, 2),
        "cpu_after_ms": round(cpu_after, 2),
        "cpu_ratio": round(cpu_after / cpu_before, 2),
        "wall_ratio": round(wall_after / wall_before, 2),
        "storage_calls_before": round(calls_before, 2),
        "storage_calls_after": round(calls_after, 2),
    }


if __name__ == "__main__":
    main()
