"""Measure `penstock kafka` with librdkafka, on the local stack that `make run` or `penstock local up` starts.

All records have 100 random bytes and are not compressed. Nothing else should use the machine: client, gateway,
functions and emulator share it. CPU seconds are those of a million records.
"""

from collections.abc import Callable

import click

from bench.kafka import added_latency, connections, throughput
from bench.report.recording import Report, reported
from bench.report.result import Row

_LATENCY, _MEMORY = "produce of one record", "memory"


@click.command(help=__doc__)
@reported("kafka")
@click.option("--records", default=600_000, show_default=True, type=click.IntRange(1_000), help="Of each run.")
@click.option("--samples", default=200, show_default=True, type=click.IntRange(2), help="Of the latency.")
@click.option("--connections", "connection_count", default=1_000, show_default=True, type=click.IntRange(1))
def main(report: Report, records: int, samples: int, connection_count: int) -> None:
    parts: dict[str, Callable[[], list[Row]]] = {
        "librdkafka alone, with its mock broker": lambda: throughput.of_the_client(records),
        "gateway and a service that does nothing": lambda: throughput.of_the_gateway(records),
        "gateway and local stack": lambda: _with_bars(throughput.of_the_stack(records)),
        "gateway with the service embedded, and the stack's storage": lambda: throughput.of_the_stack(
            records, "embedded"
        ),
        _LATENCY: lambda: added_latency.rows(samples),
        _MEMORY: lambda: connections.rows(connection_count),
    }
    for title, part in parts.items():
        with report.console.status(title):
            rows = part()
        report.show(title, rows)


def _with_bars(rows: list[Row]) -> list[Row]:
    return [{**row, "bar_per_s": throughput.BARS[str(row["request"])]} for row in rows]


if __name__ == "__main__":
    main()
