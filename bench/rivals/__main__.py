"""Compares Penstock with Kinesis on the same emulator. It needs a running local stack."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from urllib.parse import urlsplit

import click

from bench.report.recording import Report, reported
from bench.report.result import Row
from bench.rivals.race import Load, Turn, pool_of, run_turn
from bench.rivals.systems import Kinesis, Penstock, System
from bench.turns import spread, take_turns
from penstock.configuration import find_configuration

SIZES = (100, 1_000)
MB = 1_000_000
BARS = (("Kinesis", 100, 8.0), ("Kinesis", 1_000, 2.5))
"""Penstock must reach so many times the other's records a second, each way, at that size of a record."""
_OURS = ("Penstock", "Penstock embedded")

Rates = Mapping[tuple[int, int], Mapping[str, Sequence[Turn]]]
"""The turns by size, clients and system."""


@click.command(help=__doc__)
@reported("rivals")
@click.option("--seconds", default=4.0, show_default=True, help="Of each turn, to send and to receive.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="How often all take turns.")
@click.option("--clients", default=(1, 4), show_default=True, multiple=True, type=click.IntRange(1))
@click.option("--quick", is_flag=True, help="One client, short turns: a look in less than two minutes.")
def main(report: Report, seconds: float, rounds: int, clients: Sequence[int], quick: bool) -> None:
    if quick:
        seconds, rounds, clients = 0.7, 1, (1,)
        report.conditions.append("A quick look: one client, one round, turns of 0.7 s.")
    port = urlsplit(find_configuration().url).port
    if port is None:
        raise click.ClickException("PENSTOCK_URL is no local stack: `penstock local up` starts one")
    plain, embedded = _OURS
    systems: list[System] = [
        Penstock(name=plain),
        Penstock(name=embedded, carrier="embedded"),
        Kinesis(port=port),
    ]
    rates: dict[tuple[int, int], dict[str, list[Turn]]] = {}
    for size, count in product(SIZES, clients):
        load = Load(record_bytes=size, clients=count, seconds=seconds)
        turns = rates[size, count] = _race(systems, load, rounds)
        report.show(f"{size} B, {count} to send, then {count} to receive", rate_rows(load, turns))
    report.show("Penstock by the others", bar_rows(rates))


def _race(systems: Sequence[System], load: Load, rounds: int) -> dict[str, list[Turn]]:
    """The turns by system."""
    with pool_of(load.clients) as pool:
        sides: list[Callable[[], Turn]] = [partial(run_turn, system, load, pool) for system in systems]
        turns = take_turns(sides, rounds)
    return {system.name: turn for system, turn in zip(systems, turns, strict=True)}


def rate_rows(load: Load, turns: Mapping[str, Sequence[Turn]]) -> list[Row]:
    """A row for each system: medians over its turns, and their span."""
    rows: list[Row] = []
    for name, mine in turns.items():
        sent = spread(turn.sent_per_s for turn in mine)
        received = spread(turn.received_per_s for turn in mine)
        rows.append(
            {
                "system": name,
                "sent_records_per_s": round(sent.median),
                "sent_span": sent.words(),
                "sent_mb_per_s": _mb(sent.median, load),
                "received_records_per_s": round(received.median),
                "received_span": received.words(),
                "received_mb_per_s": _mb(received.median, load),
            }
        )
    return rows


def bar_rows(rates: Rates) -> list[Row]:
    """Penstock's rate by the other's, by clients, next to the bar. A system that did not run has no row."""
    rows: list[Row] = []
    for (other, size, bar), mine in product(BARS, _OURS):
        for (record_bytes, clients), turns in rates.items():
            if record_bytes != size or other not in turns or mine not in turns:
                continue
            ours, theirs = turns[mine], turns[other]
            sent = _times([each.sent_per_s for each in ours], [each.sent_per_s for each in theirs])
            received = _times([each.received_per_s for each in ours], [each.received_per_s for each in theirs])
            rows.append(
                {
                    "system": mine,
                    "compared_with": other,
                    "record": f"{size} B",
                    "clients": clients,
                    "bar_times": bar,
                    "sent_times": sent,
                    "received_times": received,
                    "holds": "yes" if min(sent, received) >= bar else "no",
                }
            )
    return rows


def _times(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of ours by the median of theirs, 0 if they did nothing."""
    median = spread(theirs).median
    return round(spread(ours).median / median, 1) if median else 0.0


def _mb(records_per_s: float, load: Load) -> float:
    return round(records_per_s * load.record_bytes / MB, 2)


if __name__ == "__main__":
    main()
