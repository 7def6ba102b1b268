"""Measures the loading of each API function's asset in a new process: imports, and storage clients.

This is the part of a cold start that Penstock's code decides. AWS adds the start of the sandbox and of Python. CPU
seconds are those of this machine, with Python's bytecode already compiled; a function with less than 1,769 MB has less
than one core. The best of several rounds counts.

"""

import json
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from pathlib import Path

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.turns import take_turns
from penstock_cdk.assets import functions_asset
from penstock_cdk.settings import settings_of
from penstock_cdk.sources import installed_sources

LOAD = Path(__file__).parent / "loads" / "cold_function.py"
FUNCTIONS = ("produce", "fetch", "transactions", "groups", "share", "admin", "upkeep")
NO_STACK = {
    "AWS_LAMBDA_FUNCTION_NAME": "penstock",  # so that the import makes clients
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "PENSTOCK_TOPICS_TABLE": "topics",
    "PENSTOCK_LOG_TABLE": "log",
    "PENSTOCK_GROUPS_TABLE": "groups",
    "PENSTOCK_REPAIR_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/1/repair",
    "PENSTOCK_ZONES": "a=zone-a,b=zone-b,c=zone-c",
    "PENSTOCK_ARCHIVE": "",
    "PENSTOCK_WAKE_UPS": "a.example.com,b.example.com",
    "PENSTOCK_TIMERS": "https://sqs.us-east-1.amazonaws.com/1/timers,rule,arn:aws:sqs:us-east-1:1:timers,promote",
    "POWERTOOLS_SERVICE_NAME": "penstock",
    "POWERTOOLS_METRICS_NAMESPACE": "Penstock",
}


@click.command(help=__doc__)
@reported("cold_start")
@click.option("--rounds", default=5, show_default=True, help="How often each function is loaded.")
def main(report: Report, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        asset = Path(name)
        with zipfile.ZipFile(functions_asset(installed_sources(), settings=settings_of("local")).path) as packed:
            packed.extractall(asset)
        turns = take_turns([partial(_load, function, asset) for function in FUNCTIONS], rounds)
        rows = [_row(function, costs) for function, costs in zip(FUNCTIONS, turns, strict=True)]
    report.show("functions", rows)


def _command(function: str) -> list[str]:
    return [sys.executable, "-S", "-s", str(LOAD), function]  # no package but the asset's


def _load(function: str, asset: Path) -> dict[str, float]:
    environment = {**NO_STACK, "PYTHONPATH": str(asset)}
    done = subprocess.run(_command(function), env=environment, capture_output=True, text=True, check=True)
    cost: dict[str, float] = json.loads(done.stdout)
    return cost


def _row(function: str, costs: list[dict[str, float]]) -> Row:
    """The least of each figure."""
    least = {name: min(cost[name] for cost in costs) for name in costs[0]}
    return {
        "function": function,
        **{name: round(least[name], 2) for name in ("cpu_s", "wall_s")},
        "modules": round(least["modules"]),
        "peak_mib": round(least["peak_mib"]),
    }


if __name__ == "__main__":
    main()
