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
from pathlib import Path

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock_cdk.assets import functions_asset
from penstock_cdk.settings import settings_of
from penstock_cdk.sources import installed_sources

LOAD = Path(__file__).parent / "loads" / "cold_function.py"
FUNCTIONS = ("produce", "fetch", "records_produce", "records_fetch", "transactions", "topics", "groups")
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
    "POWERTOOLS_SERVICE_NAME": "penstock",
    "POWERTOOLS_METRICS_NAMESPACE": "Penstock",
}


@click.command(help=__doc__)
@reported("cold_start")
@click.option("--rounds", default=5, show_default=True, help="How often each function is loaded.")
def main(report: Report, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(functions_asset(installed_sources(), settings=settings_of("local")).path) as asset:
            asset.extractall(folder)
        report.show("functions", [_load(function, rounds, Path(folder)) for function in FUNCTIONS])


def _load(function: str, rounds: int, asset: Path) -> Row:
    """The least of each figure."""
    command = [sys.executable, "-S", "-s", str(LOAD), function]  # no package but the asset's
    costs: list[dict[str, float]] = []
    for _ in range(rounds + 1):  # the first reads the files from the disk
        environment = {**NO_STACK, "PYTHONPATH": str(asset)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        costs.append(json.loads(done.stdout))
    least = {name: min(cost[name] for cost in costs[1:]) for name in costs[0]}
    return {
        "function": function,
        **{name: round(least[name], 2) for name in ("cpu_s", "wall_s")},
        "modules": round(least["modules"]),
        "peak_mib": round(least["peak_mib"]),
    }


if __name__ == "__main__":
    main()
