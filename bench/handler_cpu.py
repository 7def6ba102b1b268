"""Measures the CPU of a warm produce and fetch in their handlers, apart from that of the calls to storage.

Each figure is of a process of its own, which calls the handler as Lambda does. DynamoDB and S3 are a server on this
machine that answers at once, over TLS; its work does not count. `--before` names an earlier checkout, which takes turns
with this one. Each figure is the least of the rounds.

The bars are for a request of 1 MiB: what the handler spends besides its calls to storage.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from bench.loads.null_aws import from_base64, null_aws
from bench.loads.warm_requests import write_warm_requests
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.turns import take_turns

SIZES = ("100 B", "64 KiB", "1 MiB")
BARS_MS = {("produce", "1 MiB"): 7, ("fetch", "1 MiB"): 3}
AFTER, BEFORE = "this checkout", "before"
WARM_UP = 20
_FOLDER = Path(__file__).parents[1]
LOAD = Path(__file__).parent / "loads" / "handler_calls.py"
_ENVIRONMENT = {
    "AWS_LAMBDA_FUNCTION_NAME": "penstock",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "token" * 100,
    "PENSTOCK_TOPICS_TABLE": "topics",
    "PENSTOCK_LOG_TABLE": "log",
    "PENSTOCK_GROUPS_TABLE": "groups",
    "PENSTOCK_REPAIR_QUEUE_URL": "https://sqs.us-east-1.amazonaws.com/1/repair",
    "PENSTOCK_ZONES": "a=zone-a,b=zone-b,c=zone-c",
    "PENSTOCK_ARCHIVE": "archive",
    "POWERTOOLS_SERVICE_NAME": "penstock",
    "POWERTOOLS_METRICS_NAMESPACE": "Penstock",
}


@click.command(help=__doc__)
@reported("handler_cpu")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often each side is run.")
@click.option("--requests", default=150, show_default=True, type=click.IntRange(1), help="In each process.")
@click.option("--before", type=click.Path(exists=True, file_okay=False, path_type=Path), help="An older checkout.")
def main(report: Report, rounds: int, requests: int, before: Path | None) -> None:
    sides = {AFTER: _FOLDER} if before is None else {BEFORE: before, AFTER: _FOLDER}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored = write_warm_requests(folder)
        with null_aws(stored["tables"], from_base64(stored), folder) as place:
            for function in ("produce", "fetch"):
                for size in SIZES:
                    calls = [
                        partial(measure, checkout, function, folder / f"{function}-{size}.json", place, requests)
                        for checkout in sides.values()
                    ]
                    samples = take_turns(calls, rounds, has_warm_up=False)
                    rows += [_row(function, size, *each) for each in zip(sides, samples, strict=True)]
    report.show("warm requests", rows)


def measure(checkout: Path, function: str, event: Path, place: Mapping[str, str], requests: int) -> dict[str, Any]:
    """Serves warm requests by a function of the checkout in a process of its own: what handler_calls.py prints."""
    done = subprocess.run(
        [sys.executable, str(LOAD), function, str(event), str(WARM_UP), str(requests)],
        capture_output=True,
        check=False,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(checkout / "functions"), **_ENVIRONMENT, **place},
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-2_000:] + done.stderr[-2_000:])
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _row(function: str, size: str, side: str, samples: list[dict[str, Any]]) -> Row:
    least = min(samples, key=lambda sample: sample["cpu_ms"])
    return {
        "request": function,
        "body": size,
        "code": side,
        "cpu_ms": round(least["cpu_ms"], 2),
        "storage_calls_ms": round(least["storage_ms"], 2),
        "handler_ms": round(least["cpu_ms"] - least["storage_ms"], 2),
        "bar_ms": BARS_MS.get((function, size), ""),
        "calls": round(least["calls"], 2),
    }


if __name__ == "__main__":
    main()
