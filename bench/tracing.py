"""Measures the CPU of a record in producer and consumer, with and without OpenTelemetry.

The service answers at once and its work does not count. Each figure is of a process of its own; the modes take turns,
and each has the least of its rounds. With `--before`, a checkout from before there was tracing takes part.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import click

from bench.report.recording import Report, reported

MODES = ("not imported", "no provider", "sampled out", "a span for each batch", "a span for each record")
BEFORE = "before there was tracing"
_ROOT = Path(__file__).parents[1]
_LOAD = _ROOT / "bench" / "loads" / "traced_client.py"


@click.command(help=__doc__)
@reported("tracing")
@click.option("--records", default=50_000, show_default=True, type=click.IntRange(1), help="Of 100 B, one partition.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="How often each mode is run.")
@click.option("--before", type=click.Path(exists=True, file_okay=False, path_type=Path), help="An older checkout.")
def main(report: Report, records: int, rounds: int, before: Path | None) -> None:
    modes = MODES if before is None else (BEFORE, *MODES)
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in modes}
    for _ in range(rounds):
        for mode in modes:
            found[mode].append(_measure(mode, records, before if mode == BEFORE and before else _ROOT))
    report.show(
        "CPU of a record",
        [
            {
                "OpenTelemetry": mode,
                "produce µs": round(min(each["produce"] for each in found[mode]), 2),
                "poll µs": round(min(each["poll"] for each in found[mode]), 2),
            }
            for mode in modes
        ],
    )


def _measure(mode: str, records: int, checkout: Path) -> dict[str, float]:
    path = os.pathsep.join(str(checkout / each) for each in ("functions", "sdk"))
    done = subprocess.run(
        [sys.executable, str(_LOAD), "not imported" if mode == BEFORE else mode, str(records)],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


if __name__ == "__main__":
    main()
