"""Counts what AWS meters of Penstock's requests (`capture`), and prices it next to other systems (`tables`)."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files

import click

from bench.bill.deployment import billed_profile
from bench.bill.requests import PROFILES
from bench.money import capture as counting
from bench.money import queues, real_run
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
MONTHS = {
    "a small team, with the defaults": real_run.TEAM,
    "with inline_bytes_max=0": replace(real_run.TEAM, has_items=False),
    "with linger_ms=1000, fetch_interval_ms=1000": real_run.TEAM_AT_1_S,
    "the same, and keys": replace(real_run.TEAM_AT_1_S, has_keys=True),
    "1 MiB a second, in requests of 64 KiB": TYPICAL,
    "the same, with fetch_interval_ms=1000": replace(TYPICAL, fetch_interval_ms=1_000),
}
"""A small team's month by its settings, and the typical month."""
RATES = {
    "idle": 0,
    "1 KiB/s": 1,
    "10 KiB/s": 10,
    "100 KiB/s": 100,
    "1 MiB/s": KIB,
    "10 MiB/s": 10 * KIB,
    "100 MiB/s": 100 * KIB,
}
_AT_ONCE = 3  # runs, each in a process of its own
_STAGES = {"express3": "prod", "express2": "prod", "standard1": "dev"}


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command()
def capture() -> None:
    """Run the handlers on moto, and write the counts of all requests into the SDK."""
    with ProcessPoolExecutor(_AT_ONCE + 1) as pool:
        of_all = pool.submit(_of_all_profiles)
        found = [pool.submit(_profile, name) for name in PROFILES]
        profiles = {name: each.result() | of_all.result() for name, each in zip(PROFILES, found, strict=True)}
    document = {
        "counted_at": datetime.now(UTC).date().isoformat(),
        "command": "python -m bench.money capture",
        **counting.model_constants(),
        "many_partitions": counting.MANY_PARTITIONS,
        "many_segments": counting.MANY_SEGMENTS,
        "item_record_bytes": queues.ITEM_RECORD_BYTES,
        "profiles": profiles,
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
        "acquire": queues.count_acquires(profile, 1),
        "acquire_of_many_segments": queues.count_acquires(profile, counting.MANY_SEGMENTS),
        "delivery": queues.count_deliveries(profile, 1),
        "delivery_of_many_segments": queues.count_deliveries(profile, counting.MANY_SEGMENTS),
        **queues.count_items(profile),
        **queues.count_mirrors(profile),
        "idle_stage_usd_per_month": load_results()["bill"].find(
            "an unused stage, a month", {"stage": _STAGES[name]}, "sum_usd"
        ),
    }
    if name != "standard1":
        found["tier"] = {str(size): counting.count_tiering(profile, size) for size in (KIB, 64 * KIB, 1024 * KIB)}
    return found


def _of_all_profiles() -> dict[str, object]:
    """The counts of requests without an object are the same for all profiles."""
    profile = billed_profile("standard1")
    return {
        "idle_member_hour": counting.count_idle_member(profile),
        "idle_group_of_two_hour": counting.count_idle_group_of_two(profile),
        "heartbeat": queues.count_heartbeat(profile),
        "idle_worker_hour": queues.count_idle_worker(profile),
        "arming_acquire": queues.count_arming_acquires(profile, 1),
        "arming_acquire_of_many": queues.count_arming_acquires(profile, counting.MANY_PARTITIONS),
    }


@main.command()
@reported("money_runs")
def runs(report: Report) -> None:
    """Run the SDK's own clients against the handlers on moto, and hold the estimate of the same workload."""
    report.conditions += [
        f"List prices of {prices.REGION}, {prices.DATE}, by the transport lambda, while records come all day.",
        f"Storage, the archive and the idle stage are left out. Held: the estimate is within {real_run.WITHIN:.0%}.",
    ]
    totals: list[Row] = []
    lines: list[Row] = []
    with ProcessPoolExecutor(_AT_ONCE) as pool:
        ran = dict(zip(real_run.RUNS, pool.map(real_run.run_of, real_run.RUNS), strict=True))
    for name, (records_per_s, month) in ran.items():
        estimated = real_run.estimated("express3", real_run.RUNS[name][0], records_per_s)
        ratio = estimated.total() / sum(month.values())
        report.judge(holds=abs(ratio - 1) <= real_run.WITHIN)
        usd = {"run_usd": _round(sum(month.values())), "estimate_usd": _round(estimated.total())}
        totals.append({"workload": name, "records_per_s": records_per_s, **usd, "estimate_of_run": round(ratio, 3)})
        for line in sorted({*month, *estimated}):
            both = {"run_usd": _round(month.get(line, 0.0)), "estimate_usd": _round(estimated[line])}
            if any(both.values()):
                lines.append({"workload": name, "line": line, **both})
    report.show("The run and the estimate, $ a month", totals)
    report.show("The same by line, $ a month", lines)


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
    for title, rows in priced_tables().items():
        report.show(title, rows)


def priced_tables() -> dict[str, list[Row]]:
    """All tables, by title: from the counts of the SDK and the price table alone."""
    by_request = {name: replace(TYPICAL, request_bytes=size) for name, size in REQUESTS.items()}
    by_rate = {name: replace(TYPICAL, records_per_s=rate) for name, rate in RATES.items()}
    return {
        "A produce request of Penstock by transport, $ per GiB": list(_transport_rows()),
        "Months of teams, $": [_team_row(name, workload) for name, workload in MONTHS.items()],
        "All systems by request, $ per GiB": _by(by_request, _per_gib),
        "All systems by rate, $ a month": _by(by_rate, lambda month, _: month.usd),
    }


def _team_row(name: str, workload: Workload) -> Row:
    """The month by profile, by the transport `auto`, and the largest line of the first one."""
    months = {profile: estimate(profile, workload) for profile in PROFILES}
    largest = months["express3"].lines[0]
    line = f"{largest.part}: {largest.what}, {_round(largest.usd)}"
    return {
        "month": name,
        **{profile: _round(month.usd) for profile, month in months.items()},
        "largest of express3": line,
    }


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
