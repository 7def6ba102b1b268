"""Measures examples/lambda_producer.py in new processes: the import, the first event, and later ones.

Each process imports the example as Lambda does, with Python's bytecode already compiled. Its first event opens the
connection and asks for the topic's partitions. It needs the variables of the stack's `local.env`, and nothing else may
use the stack. The least of several rounds counts.
"""

import json
import os
import subprocess
import sys

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import Admin

TOPIC = "bench-lambda-producer"
RECORDS = (1, 100, 10_000)
EVENTS = 11  # in each process


@click.command(help=__doc__)
@reported("lambda_producer")
@click.option("--rounds", default=5, show_default=True, help="How many processes there are for each row.")
def main(report: Report, rounds: int) -> None:
    with Admin() as admin:
        admin.create_topic(TOPIC, partitions=3)
        try:
            _measure(1)  # compiles bytecode, and starts the service's functions
            report.show("an instance", [_least(records, rounds) for records in RECORDS])
        finally:
            admin.delete_topic(TOPIC)


def _least(records: int, rounds: int) -> Row:
    costs = [_measure(records) for _ in range(rounds)]
    least = {name: min(cost[name] for cost in costs) for name in costs[0]}
    return {
        "records_per_event": records,
        **{name: round(least[name], 2) for name in ("import_s", "import_cpu_s")},
        **{name: round(least[name]) for name in ("first_ms", "later_ms", "peak_mib")},
    }


def _measure(records: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.loads.cold_producer", str(records), str(EVENTS)]
    path = os.pathsep.join(each for each in sys.path if each)
    environment = {**os.environ, "PENSTOCK_TOPIC": TOPIC, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    cost: dict[str, float] = json.loads(done.stdout)
    return cost


if __name__ == "__main__":
    main()
