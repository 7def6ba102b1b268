"""Measures the codec on one core: records per second, and the cost of a batch with few or many records.

Each figure is the best of several rounds, so that other programs disturb it as little as possible.
"""

import time
from collections import deque
from collections.abc import Callable

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_core.limits import VALIDATED_BYTES_MAX
from penstock_core.records.codec import BatchBuilder, NewRecord, decode, encode
from penstock_core.records.decode_budget import DecodeBudget
from penstock_core.records.record_batch import Compression, parse_header, stamp, validate
from penstock_core.records.record_check import check_records

NOW_MS = 1_790_000_000_000
MB = 1_000_000
BATCH_BYTES = MB
BATCHES = 20  # that one decode reads, as in a fetch


@click.command(help=__doc__)
@reported("codec")
@click.option("--rounds", default=15, show_default=True, help="How often each step is timed.")
def main(report: Report, rounds: int) -> None:
    records = [
        row
        for value_bytes in (100, 1_024)
        for compression in Compression
        for row in measure_records(value_bytes, compression, rounds)
    ]
    report.show("records", records)
    report.show("batches", [row for count in (1, 10_000) for row in measure_batch(count, rounds)])


def measure_records(value_bytes: int, compression: Compression, rounds: int) -> list[Row]:
    """Builds a batch record by record, and iterates over decoded batches, through the public functions."""
    values = make_values(value_bytes, BATCH_BYTES // value_bytes)
    batch = encode([NewRecord(NOW_MS, None, value) for value in values], compression)

    def build() -> bytes:
        builder = BatchBuilder(compression, batch_bytes=2 * BATCH_BYTES)
        append = builder.append
        for value in values:
            append(NOW_MS, None, value)
        return builder.build()

    fetched = batch * BATCHES
    encode_s = best_seconds(build, rounds)
    decode_s = best_seconds(lambda: deque(decode(fetched), maxlen=0), rounds)
    return [
        {
            "values": f"{value_bytes} B",
            "step": step,
            "compression": compression.name.lower(),
            "records_per_s": round(count / seconds),
            "mb_per_s": round(count * value_bytes / seconds / MB),
            "batch_bytes": len(batch),
        }
        for step, count, seconds in (
            ("encode", len(values), encode_s),
            ("decode", len(values) * BATCHES, decode_s),
        )
    ]


def measure_batch(record_count: int, rounds: int) -> list[Row]:
    """The steps of a handler on a batch of `BATCH_BYTES`, about the same size for any number of records."""
    values = make_values(BATCH_BYTES // record_count, record_count)
    batch = bytearray(encode([NewRecord(NOW_MS, None, value) for value in values]))
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("parse_header", lambda: parse_header(batch)),
        ("stamp", lambda: stamp(batch, 0)),
        ("validate", lambda: validate(batch)),
        ("check_records", lambda: check_records(batch, DecodeBudget(VALIDATED_BYTES_MAX))),
    )
    rows: list[Row] = []
    for step, call in steps:
        seconds = best_seconds(call, rounds * 20)
        rows.append(
            {
                "records_per_batch": record_count,
                "step": step,
                "us_per_batch": round(seconds * 1e6, 1),
                "mb_per_s": round(len(batch) / seconds / MB),
                "batch_bytes": len(batch),
            }
        )
    return rows


def make_values(value_bytes: int, count: int) -> list[bytes]:
    """Values like JSON documents, so that compression has something to find, but not everything."""
    return [
        (b'{"order": %d, "customer": %d, "state": "open", "note": "' % (n, n * 7919 % 10_007)).ljust(value_bytes, b".")[
            :value_bytes
        ]
        for n in range(count)
    ]


def best_seconds(call: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


if __name__ == "__main__":
    main()
