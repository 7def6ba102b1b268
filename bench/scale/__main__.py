"""Simulates Penstock on AWS from 1 MB/s to 1 GB/s: latency, the nearest limit, and the price.

It needs no stack. latencies.py and limits.py have the numbers from outside, with their sources.
"""

from collections.abc import Iterator
from dataclasses import replace

import click

from bench.report.recording import Report, reported
from bench.scale import limits
from bench.scale.latencies import Latencies
from bench.scale.limits import NEW_ACCOUNT, RAISED
from bench.scale.scenario import Scenario
from bench.scale.simulate import Outcome, simulate
from penstock.http.named_transport import TRANSPORT_NAMES

MB = 1_000_000
BASE = Scenario(name="base", bytes_per_s=MB, partitions=10, producers=10, consumers=10)
"""1 MB/s of records of 1 KB, 10 producers, 10 partitions, a group of 10."""


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
    for title, cases in (
        ("By rate", _by_rate()),
        ("By partitions, 10 MB/s", _by_partitions()),
        ("By producers, 10 MB/s", _by_producers()),
        ("By consumers, 10 MB/s", _by_consumers()),
        ("A million records of 1 KB a second", _million()),
        ("A new account", _new_account()),
        ("Storage profiles", _profiles()),
        ("By transport, records that travel alone", _transports()),
    ):
        outcomes = [_run(replace(case, seconds=seconds), seed, report) for case in cases]
        report.show(title, [outcome.row() for outcome in outcomes])
    report.show("The limits", list(limits.rows()))
    report.show("The latencies", list(Latencies().rows()))


def _run(case: Scenario, seed: int, report: Report) -> Outcome:
    report.console.print(f"simulating {case.name}, a slice of 1/{case.slices()}", style="dim")
    return simulate(case, seed=seed)


def _by_rate() -> Iterator[Scenario]:
    for rate, clients in ((1, 10), (10, 10), (100, 100), (1_000, 1_000)):
        yield replace(
            BASE,
            name=f"{rate:,} MB/s, {clients:,} of each client, {clients:,} partitions",
            bytes_per_s=rate * MB,
            partitions=clients,
            producers=clients,
            consumers=clients,
        )


def _by_partitions() -> Iterator[Scenario]:
    for count in (1, 10, 100, 1_000, 10_000):
        yield replace(BASE, name=f"{count:,} partitions", bytes_per_s=10 * MB, partitions=count)


def _by_producers() -> Iterator[Scenario]:
    for count in (1, 10, 100, 1_000, 10_000):
        yield replace(BASE, name=f"{count:,} producers", bytes_per_s=10 * MB, partitions=100, producers=count)
    yield replace(
        BASE,
        name="10,000 producers, linger_ms=1000",
        bytes_per_s=10 * MB,
        partitions=100,
        producers=10_000,
        linger_ms=1_000,
    )


def _by_consumers() -> Iterator[Scenario]:
    for count in (1, 10, 100, 1_000, 10_000):
        yield replace(
            BASE, name=f"{count:,} consumers", bytes_per_s=10 * MB, partitions=max(100, count), consumers=count
        )


def _million() -> Iterator[Scenario]:
    base = replace(BASE, bytes_per_s=1_000 * MB, partitions=1_000, producers=1_000, consumers=1_000)
    yield replace(base, name="linger_ms=5, default limits")
    yield replace(base, name="linger_ms=100, default limits", linger_ms=100)
    yield replace(
        base,
        name="linger_ms=100, raised limits",
        linger_ms=100,
        limits=RAISED,
    )
    yield replace(
        base,
        name="100 producers, linger_ms=100, default limits",
        producers=100,
        partitions=500,
        consumers=500,
        linger_ms=100,
    )


def _new_account() -> Iterator[Scenario]:
    for kb in (10, 100, 1_000, 10_000):
        yield replace(
            BASE,
            name=f"{kb:,} KB/s, 10 instances",
            bytes_per_s=kb * 1_000,
            limits=NEW_ACCOUNT,
        )
    yield replace(
        BASE,
        name="1,000 KB/s, 1 of each client, linger_ms=100",
        partitions=1,
        producers=1,
        consumers=1,
        linger_ms=100,
        limits=NEW_ACCOUNT,
    )


def _profiles() -> Iterator[Scenario]:
    for profile in ("express3", "express2", "standard1"):
        yield replace(BASE, name=profile, profile=profile)


def _transports() -> Iterator[Scenario]:
    """No record waits for another one: 100 producers send 5 a second each, and no linger."""
    for profile in ("express3", "standard1"):
        for transport in TRANSPORT_NAMES:
            yield replace(
                BASE,
                name=f"{transport}, {profile}",
                bytes_per_s=MB / 2,
                partitions=100,
                producers=100,
                consumers=100,
                linger_ms=0,
                profile=profile,
                transport=transport,
            )


if __name__ == "__main__":
    main()
