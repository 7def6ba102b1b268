"""Counts what AWS meters of Penstock's requests (`capture`), and prices it beside other systems (`tables`)."""

import json
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files

import click

from bench.bill.deployment import billed_profile
from bench.bill.requests import PROFILES
from bench.money import capture as counting
from bench.money.tables import show_tables
from bench.report.recording import Report, reported
from bench.report.result import load_results
from penstock_cdk.storage_profile import Profile
from penstock_core.limits import KIB

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
    """Price the counts that the SDK has, beside Kinesis, SQS, MSK and WarpStream."""
    show_tables(report)


if __name__ == "__main__":
    main()
