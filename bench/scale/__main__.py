"""Simulates Penstock on AWS from 1 MB/s to 1 GB/s: latency, the nearest limit, and the price.

It needs no stack. latencies.py and scenario.py have the numbers from outside, with their sources.
"""

from dataclasses import replace

import click

from bench.report.recording import Report, reported
from bench.scale.latencies import Latencies
from bench.scale.scenario import NEW_ACCOUNT, RAISED, Scenario, limit_rows
from bench.scale.simulate import Outcome, simulate
from penstock.http.named_transport import CARRIER_NAMES

MB = 1_000_000
BASE = Scenario(name="base", bytes_per_s=MB, partitions=10, producers=10, consumers=10)
"""1 MB/s of records of 1 KB, 10 producers, 10 partitions, a group of 10."""
_TEN = replace(BASE, bytes_per_s=10 * MB, partitions=100)
_MILLION = replace(BASE, bytes_per_s=1_000 * MB, partitions=1_000, producers=1_000, consumers=1_000)
_ALONE = replace(BASE, bytes_per_s=MB / 2, partitions=100, producers=100, consumers=100, linger_ms=0)
CASES = {
    "By rate": [
        replace(
            BASE,
            name=f"{rate:,} MB/s, {clients:,} of each client, {clients:,} partitions",
            bytes_per_s=rate * MB,
            partitions=clients,
            producers=clients,
            consumers=clients,
        )
        for rate, clients in ((1, 10), (10, 10), (100, 100), (1_000, 1_000))
    ],
    "By producers, 10 MB/s": [
        *(replace(_TEN, name=f"{count:,} producers", producers=count) for count in (1, 10, 100, 1_000, 10_000)),
        replace(_TEN, name="10,000 producers, linger_ms=1000", producers=10_000, linger_ms=1_000),
    ],
    "A million records of 1 KB a second": [
        replace(_MILLION, name="linger_ms=5, default limits"),
        replace(_MILLION, name="linger_ms=100, default limits", linger_ms=100),
        replace(_MILLION, name="linger_ms=100, raised limits", linger_ms=100, limits=RAISED),
        replace(
            _MILLION,
            name="100 producers, linger_ms=100, default limits",
            producers=100,
            partitions=500,
            consumers=500,
            linger_ms=100,
        ),
    ],
    "A new account": [
        *(
            replace(BASE, name=f"{kb:,} KB/s, 10 instances", bytes_per_s=kb * 1_000, limits=NEW_ACCOUNT)
            for kb in (10, 100, 1_000, 10_000)
        ),
        replace(
            BASE,
            name="1,000 KB/s, 1 of each client, linger_ms=100",
            partitions=1,
            producers=1,
            consumers=1,
            linger_ms=100,
            limits=NEW_ACCOUNT,
        ),
    ],
    "By transport, records that travel alone": [  # 100 producers send 5 a second each
        replace(_ALONE, name=f"{transport}, {profile}", profile=profile, transport=transport)
        for profile in ("express3", "standard1")
        for transport in CARRIER_NAMES
    ],
}


@click.command(help=__doc__)
@reported("scale")
@click.option("--seconds", default=10.0, show_default=True, help="Simulated seconds of each case, after the warm-up.")
@click.option("--seed", default=1, show_default=True, help="The draws of the latencies.")
def main(report: Report, seconds: float, seed: int) -> None:
    report.conditions += [
        "A simulation: Penstock has not run on AWS. Calls are counted, CPU is measured, latencies are published or "
        "assumed, as the last tables say.",
        "Records of 1 KB, uncompressed, without keys, profile express3 and linger_ms=5, unless the case says "
        "otherwise. Latencies are from a record's arrival in the producer.",
    ]
    for title, cases in CASES.items():
        outcomes = [_run(replace(case, seconds=seconds), seed, report) for case in cases]
        report.show(title, [outcome.row() for outcome in outcomes])
    report.show("The limits", list(limit_rows()))
    report.show("The latencies", list(Latencies().rows()))


def _run(case: Scenario, seed: int, report: Report) -> Outcome:
    report.console.print(f"simulating {case.name}, a slice of 1/{case.slices()}", style="dim")
    return simulate(case, seed=seed)


if __name__ == "__main__":
    main()
