"""Measures one partition that many producers share: appends a second, refusals and latency, by producers and linger.

First by simulation, with the SDK's own accumulator; then on the local stack, if PENSTOCK_URL names one. Each case runs
with and without the rest that a throttled partition takes between requests.
"""

from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

import click

from bench.harness.turns import take_turns
from bench.hot_partition.on_stack import UNITS_PER_S, StackCase, measure
from bench.hot_partition.simulated import scenario_of, simulate
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock.configuration import find_configuration

PRODUCERS, LINGERS_MS = (1, 10, 100, 300, 1_000), (0, 5, 100)
STACK_PRODUCERS = (1, 8, 32)


@click.command(help=__doc__)
@reported("hot_partition")
@click.option("--seconds", default=20.0, show_default=True, help="Of each case, after its warm-up.")
@click.option("--records-per-s", default=20.0, show_default=True, help="Of each producer, 100 B.")
@click.option("--seed", default=1, show_default=True, help="The draws of the simulation.")
@click.option("--stack/--no-stack", default=True, show_default=True, help="Measure the local stack, too.")
@click.option("--quick", is_flag=True, help="Fewer cases, short: less than two minutes.")
def main(report: Report, seconds: float, records_per_s: float, seed: int, stack: bool, quick: bool) -> None:
    producers, lingers = (PRODUCERS, LINGERS_MS) if not quick else ((1, 100, 1_000), (0, 100))
    seconds = 5.0 if quick else seconds
    report.conditions.append("The simulation is of AWS, on which Penstock has not run. Records of 100 B, express3.")
    rows: list[Row] = []
    for count in producers:
        for linger_ms in lingers:
            for is_paced in (False, True):
                case = scenario_of(count, linger_ms, records_per_s, seconds, is_paced=is_paced)
                report.console.print(f"simulating {case.name}, {'with' if is_paced else 'without'} rests", style="dim")
                rows.append(simulate(case, seed, warm_up_s=5.0 if quick else 20.0))
    report.show("simulated", rows)
    if stack:
        report.conditions.append(f"The stack's rule admits {UNITS_PER_S} write units a second of a key, AWS 1,000.")
        report.show("on the stack", _on_stack((8, 32) if quick else STACK_PRODUCERS, 5.0 if quick else seconds))


def _on_stack(producers: tuple[int, ...], seconds: float) -> list[Row]:
    port = urlsplit(find_configuration().url).port
    if port is None:
        raise click.ClickException("PENSTOCK_URL is no local stack: start one with `penstock local up`, or --no-stack")
    sides: list[Callable[[], Row]] = [
        partial(
            measure,
            StackCase(producers=count, linger_ms=5, records_per_s=10.0, seconds=seconds, is_paced=is_paced),
            port,
        )
        for count in producers
        for is_paced in (False, True)
    ]
    return [samples[0] for samples in take_turns(sides, 1, has_warm_up=False)]


if __name__ == "__main__":
    main()
