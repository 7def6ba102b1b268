"""Counts what AWS meters of Penstock's requests (`capture`), and prices it next to other systems (`tables`)."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import click

from bench.bill.deployment import billed_profile
from bench.bill.requests import PROFILES
from bench.money import capture as counting
from bench.report.recording import Report, reported
from bench.report.result import Row, Value, load_results
from penstock import prices
from penstock.cost.counted import counted, counted_at, function_ms
from penstock.cost.estimate import Estimate, estimate, priced
from penstock.cost.others import NAMES, estimates
from penstock.cost.workload import SECONDS_PER_MONTH, Workload
from penstock.http.named_transport import CARRIER_NAMES
from penstock_cdk.storage_profile import Profile
from penstock_core.limits import BATCH_BYTES_MAX, KIB, MIB

Measure = Callable[[Estimate, Workload], float]

GIB = 1024 * MIB
REQUESTS = {
    "1 KiB": KIB,
    "4 KiB": 4 * KIB,
    "16 KiB": 16 * KIB,
    "64 KiB": 64 * KIB,
    "256 KiB": 256 * KIB,
    "1 MiB": MIB,
    "4 MiB": BATCH_BYTES_MAX,  # of records, in a request of 4 MiB
}
TYPICAL = Workload(records_per_s=1_024, record_bytes=KIB, retention_days=1, request_bytes=64 * KIB)
"""1 MiB a second of records of 1 KiB, in requests of 64 KiB, read once and kept for a day."""
RATES = {
    "idle": 0,
    "1 KiB/s": 1,
    "10 KiB/s": 10,
    "100 KiB/s": 100,
    "1 MiB/s": KIB,
    "10 MiB/s": 10 * KIB,
    "100 MiB/s": 100 * KIB,
}
_STAGES = {"express3": "prod", "express2": "prod", "standard1": "dev"}


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
def capture() -> None:
    """Run the handlers on moto, and write the counts of all requests into the SDK."""
    document = {
        "counted_at": datetime.now(UTC).date().isoformat(),
        "command": "python -m bench.money capture",
        **counting.model_constants(),
        "many_partitions": counting.MANY_PARTITIONS,
        "many_segments": counting.MANY_SEGMENTS,
        "profiles": {name: _profile(name) for name in PROFILES},
    }
    path = files("penstock") / "cost" / "counted.json"
    text = json.dumps(document, indent=1)
    with open(str(path), "w") as file:
        file.write(text + "\n")
    click.echo(f"{path} is written: run python -m bench.money tables --write")


def _profile(name: Profile) -> dict[str, object]:
    profile = billed_profile(name)
    click.echo(f"counting {name}", err=True)
    many = counting.MANY_PARTITIONS
    found: dict[str, object] = {
        "append": {str(size): counting.count_appends(profile, size, 1) for size in counting.SIZES},
        "append_to_many": counting.count_appends(profile, 6 * KIB, many),
        "fetch": {str(size): counting.count_fetches(profile, size) for size in counting.SIZES},
        "fetch_of_many_segments": counting.count_fetches(profile, KIB, segments=counting.MANY_SEGMENTS),
        "fetch_of_many_partitions": counting.count_fetches(profile, KIB, partitions=many),
        "arming_fetch": counting.count_arming_fetches(profile, 1),
        "arming_fetch_of_many": counting.count_arming_fetches(profile, many),
        "commit": counting.count_commit(profile, 1),
        "commit_of_many": counting.count_commit(profile, many),
        "idle_member_hour": _idle_member_hour(),
        "idle_stage_usd_per_month": load_results()["bill"].find(
            "an unused stage, a month", {"stage": _STAGES[name]}, "sum_usd"
        ),
    }
    if name != "standard1":
        found["tier"] = {str(size): counting.count_tiering(profile, size) for size in (KIB, 64 * KIB, 1024 * KIB)}
    return found


@cache
def _idle_member_hour() -> counting.Counts:
    """It reads and writes no object, so it is the same for all profiles."""
    return counting.count_idle_member(billed_profile("standard1"))


@main.command()
@reported("money")
def tables(report: Report) -> None:
    """Price the counts that the SDK has, next to Kinesis, SQS, MSK and WarpStream."""
    each_ms, mib_ms = function_ms()
    report.conditions += [
        f"List prices of {prices.REGION}, {prices.DATE}, without free tiers, discounts, traffic and clients.",
        f"Penstock's calls were counted on {counted_at()} by `python -m bench.money capture`; a function's time is "
        f"assumed: {each_ms:g} ms, and {mib_ms:g} ms for each MiB.",
        "The other systems are computed from their billing rules. `penstock.prices` says which prices nobody has seen.",
    ]
    report.show("A produce request of Penstock by transport, $ per GiB", list(_transport_rows()))
    by_request = {name: replace(TYPICAL, request_bytes=size) for name, size in REQUESTS.items()}
    report.show("All systems by request, $ per GiB", _by(by_request, _per_gib))
    by_rate = {name: replace(TYPICAL, records_per_s=rate) for name, rate in RATES.items()}
    report.show("All systems by rate, $ a month", _by(by_rate, lambda month, _: month.usd))


def _transport_rows() -> Iterator[Row]:
    """Nothing but the produce request itself, by the transport that carries it."""
    for profile in PROFILES:
        for transport in CARRIER_NAMES:
            usd = {
                name: sum(line.usd for line in priced("produce", counted(profile, transport).append(size))) * GIB / size
                for name, size in REQUESTS.items()
            }
            yield {"profile": profile, "transport": transport, **{name: _round(each) for name, each in usd.items()}}


def _by(workloads: Mapping[str, Workload], value: Measure) -> list[Row]:
    """A row for each system, and a column for each workload."""
    columns = {name: _months(workload) for name, workload in workloads.items()}
    systems = [*(f"Penstock {each}" for each in PROFILES), *NAMES]
    return [
        {"system": system, **{name: _cell(months[at], workloads[name], value) for name, months in columns.items()}}
        for at, system in enumerate(systems)
    ]


def _months(workload: Workload) -> list[Estimate | str]:
    return [*(estimate(each, workload) for each in PROFILES), *estimates(workload)]


def _cell(month: Estimate | str, workload: Workload, value: Measure) -> Value:
    if isinstance(month, str):
        return "no"
    return _round(value(month, workload))


def _per_gib(month: Estimate, workload: Workload) -> float:
    return month.usd / (workload.bytes_per_s * SECONDS_PER_MONTH) * GIB


def _round(usd: float) -> float:
    return round(usd, 2) if usd >= 10 else float(f"{usd:.3g}")


if __name__ == "__main__":
    main()
