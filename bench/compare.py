"""Two deployed local stacks side by side, such as one of an earlier checkout: what handlers spend on warm requests.

    python -m localstack up --state-dir ../before/stack --port 4702    # in the earlier checkout
    python -m localstack up --state-dir .penstock --port 4703
    python -m bench.compare ../before/stack/local.env .penstock/local.env

The same requests go to both in turns, so that whatever else the machine does falls on both; CPU time is the
functions' own account. Ratios are of medians, the second to the first.
"""

import json
import secrets
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from botocore.credentials import Credentials
from rich.console import Console
from rich.table import Table

from bench.counting import CountingTransport
from bench.stack import batch_of, fetch_once, produce_once
from penstock import Admin
from penstock.configuration import Configuration
from penstock.transport import HttpTransport
from penstock_core.record_batch import Compression
from penstock_core.records import NewRecord, encode

Sample = tuple[float, float]  # CPU and wall, milliseconds


@click.command(help=__doc__)
@click.argument("env_files", nargs=2, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--rounds", default=40, show_default=True, help="How often the two take turns.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def main(env_files: tuple[Path, Path], rounds: int, as_json: bool) -> None:
    transports = [_transport(path) for path in env_files]
    small = encode([NewRecord(time.time_ns() // 1_000_000, None, b"x" * 100)], Compression.NONE)
    samples: dict[str, list[list[Sample]]] = {}
    with ExitStack() as stack:
        admins = [stack.enter_context(Admin(transport=transport)) for transport in transports]
        for name, batch, partitions in (
            ("1 record of 100 B", small, 1),
            ("6 records to 6 partitions", small, 6),
            ("1 MB in 1 record", batch_of(1, 1_000_000), 1),
            ("1 MB in 10,000 records", batch_of(10_000, 1_000_000), 1),
        ):
            topics = [f"compare-{secrets.token_hex(4)}" for _ in transports]
            for admin, topic in zip(admins, topics, strict=True):
                admin.create_topic(topic, partitions=partitions)
            records = 10_000 if "10,000" in name else 1
            for number in range(rounds):
                for side in (0, 1) if number % 2 else (1, 0):
                    transport, topic = transports[side], topics[side]
                    for request in ("produce", "fetch"):
                        started_s = time.perf_counter()
                        if request == "produce":
                            answer = produce_once(transport, topic, partitions, batch)
                        else:
                            answer = fetch_once(transport, topic, partitions, number * records)
                        wall_ms = (time.perf_counter() - started_s) * 1_000
                        found = samples.setdefault(f"{request}: {name}", [[], []])
                        found[side].append((answer["cpu_ms"], wall_ms))
            for admin, topic in zip(admins, topics, strict=True):
                admin.delete_topic(topic)
    rows = [_row(name, *found) for name, found in sorted(samples.items())]
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = Table(*rows[0], title=f"{rounds} rounds")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=140).print(table)


def _transport(env_file: Path) -> CountingTransport:
    values = dict(line.split("=", 1) for line in env_file.read_text().splitlines())
    credentials = Credentials(values["AWS_ACCESS_KEY_ID"], values["AWS_SECRET_ACCESS_KEY"])
    return CountingTransport(
        HttpTransport(Configuration(url=values["PENSTOCK_URL"], region=values["AWS_REGION"], credentials=credentials))
    )


def _row(name: str, before: list[Sample], after: list[Sample]) -> dict[str, Any]:
    medians = [[statistics.median(values) for values in zip(*side, strict=True)] for side in (before, after)]
    (cpu_before, wall_before), (cpu_after, wall_after) = medians
    return {
        "request": name,
        "CPU ms before": round(cpu_before, 2),
        "CPU ms after": round(cpu_after, 2),
        "CPU ratio": round(cpu_after / cpu_before, 2),
        "wall ratio": round(wall_after / wall_before, 2),
    }


if __name__ == "__main__":
    main()
