"""Measures how many records a CPU second of the SDK's producer and consumer carries. The service costs nothing.

The transport answers at once, in the process of the client. CPU is that of all threads of that process
(`time.process_time`), so other programs of the machine change it little. It needs no stack. With `--before`, an older
checkout takes turns with this one.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import click

from bench.loads.client_rounds import COMPRESSIONS
from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.turns import spread, take_turns

WORKS = ("send, no key", "send, distinct keys", "send by asyncio, no key", "poll", "iterate")
BARS = {"send, no key": 500_000, "send, distinct keys": 400_000, "poll": 1_000_000}
_ROOT = Path(__file__).parents[2]


class Side:
    """A process with the packages of one checkout, which runs the rounds that it is asked for."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._answer()

    def round(self, work: str, compression: str, records: int) -> float:
        """The CPU seconds of one round."""
        assert self._process.stdin is not None
        request = {"work": work, "compression": compression, "records": records}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["cpu_s"])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of a side has ended, with exit code {self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer


@click.command(help=__doc__)
@reported("client_cpu")
@click.option("--records", default=300_000, show_default=True, type=click.IntRange(1_000), help="Of 100 B, each round.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="How often all take turns.")
@click.option("--quick", is_flag=True, help="100,000 records, three rounds.")
@click.option("--before", type=click.Path(exists=True, file_okay=False, path_type=Path), help="An older checkout.")
def main(report: Report, records: int, rounds: int, quick: bool, before: Path | None) -> None:
    records, rounds = (100_000, 3) if quick else (records, rounds)
    with ExitStack() as stack:
        checkouts = {"after": _ROOT} if before is None else {"after": _ROOT, "before": before}
        processes = {side: stack.enter_context(_side(checkout, records)) for side, checkout in checkouts.items()}
        sides = {
            (work, compression, side): partial(process.round, work, compression, records)
            for compression in COMPRESSIONS
            for work in WORKS
            for side, process in processes.items()
        }
        found = dict(zip(sides, take_turns(list(sides.values()), rounds), strict=True))
    here = {(work, compression): cpu_s for (work, compression, side), cpu_s in found.items() if side == "after"}
    report.show("records of 100 B", [row_of(*each, records, cpu_s) for each, cpu_s in here.items()])
    if before is not None:
        report.show(
            "next to the older checkout, records/CPU s",
            [compared(*each, records, found[*each, "before"], cpu_s) for each, cpu_s in here.items()],
        )


def row_of(work: str, compression: str, records: int, cpu_s: Sequence[float]) -> Row:
    """Rates of a CPU second, and the bar of that work without compression."""
    rates = spread(records / each for each in cpu_s)
    bar = BARS.get(work) if compression == "none" else None
    return {
        "work": work,
        "compression": compression,
        "records_per_cpu_s": round(rates.median),
        "span": rates.words(),
        "cpu_us_per_record": round(1e6 / rates.median, 2),
        "bar_per_cpu_s": bar,
        "holds": None if bar is None else "yes" if rates.median >= bar else "no",
    }


def compared(work: str, compression: str, records: int, before_s: Sequence[float], after_s: Sequence[float]) -> Row:
    """The median rates of two checkouts, and how many times the first one's the second one's is."""
    before, after = (records / statistics.median(each) for each in (before_s, after_s))
    return {
        "work": work,
        "compression": compression,
        "before": round(before),
        "after": round(after),
        "times": round(after / before, 2),
    }


@contextmanager
def _side(checkout: Path, records: int) -> Iterator[Side]:
    path = os.pathsep.join(str(each) for each in (checkout / "functions", checkout / "sdk", _ROOT))
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.loads.client_rounds", str(records)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    with process:  # the end of its standard input ends it
        yield Side(process)


if __name__ == "__main__":
    main()
