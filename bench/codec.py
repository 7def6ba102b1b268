"""What the codec does on one core: records a second, and what a batch costs whatever the number of its records.

Each figure is the best of several rounds, so that another program's work shows as little as it can.
"""

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from penstock_core.record_batch import Compression, parse_header, stamp, validate
from penstock_core.records import BatchBuilder, NewRecord, decode, encode

NOW_MS = 1_790_000_000_000
MB = 1_000_000
BATCH_BYTES = MB
BATCHES = 20  # in what is decoded at once, as in a fetch
Row = dict[str, Any]


@click.command(help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--rounds", default=15, show_default=True, help="How often each step is timed.")
def main(as_json: bool, rounds: int) -> None:
    report = {
        "records": [
            row
            for value_bytes in (100, 1_024)
            for compression in Compression
            for row in measure_records(value_bytes, compression, rounds)
        ],
        "batches": [row for record_count in (1, 10_000) for row in measure_batch(record_count, rounds)],
    }
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    console = Console()
    for title, rows in report.items():
        console.print(to_table(title, rows))


def measure_records(value_bytes: int, compression: Compression, rounds: int) -> list[Row]:
    """Append and build, and iterate over what was decoded, through the public functions."""
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
    common = {"value_bytes": value_bytes, "compression": compression.name.lower(), "batch_bytes": len(batch)}
    return [
        common
        | {"step": step, "records_per_s": round(count / seconds), "mb_per_s": round(count * value_bytes / seconds / MB)}
        for step, count, seconds in (
            ("encode", len(values), encode_s),
            ("decode", len(values) * BATCHES, decode_s),
        )
    ]


def measure_batch(record_count: int, rounds: int) -> list[Row]:
    """What a handler does to a batch of `BATCH_BYTES`, about the same size for any number of records."""
    values = make_values(BATCH_BYTES // record_count, record_count)
    batch = bytearray(encode([NewRecord(NOW_MS, None, value) for value in values]))
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("parse_header", lambda: parse_header(batch)),
        ("stamp", lambda: stamp(batch, 0)),
        ("validate", lambda: validate(batch)),
    )
    rows = []
    for step, call in steps:
        seconds = best_seconds(call, rounds * 20)
        rows.append(
            {
                "records_per_batch": record_count,
                "batch_bytes": len(batch),
                "step": step,
                "us_per_batch": round(seconds * 1e6, 1),
                "mb_per_s": round(len(batch) / seconds / MB),
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


def to_table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name, justify="right" if isinstance(rows[0][name], (int, float)) else "left")
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, (int, float)) else str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    main()
