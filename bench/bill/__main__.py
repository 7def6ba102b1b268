"""Prices captured calls: an append, a fetch, records of a share group, idle consumers, and a stage that nobody uses.

It needs no stack: the handlers run in this process on moto. The prices are those of `penstock.prices`. The time of a
function is assumed (`bench/bill/deployment.py`). Free tiers, traffic to the internet and NAT are left out.
"""

import tempfile
from pathlib import Path

import click

from bench.bill.deployment import Bill, billed_profile
from bench.bill.idle_consumers import (
    MEMBER_MS,
    POLLING_MS,
    bill_polling_consumer,
    bill_waiting_consumer,
    bill_waiting_member,
)
from bench.bill.idle_stage import bill_idle_stage
from bench.bill.requests import DAY_MS, HOUR_MS, PROFILES
from bench.bill.shared_records import bill_all_operations, bill_waiting_worker
from bench.bill.synthesized import synthesized_resources
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import prices
from penstock_cdk.settings import settings_of_context
from penstock_core.limits import SESSION_TIMEOUT_MS_DEFAULT

# A stage without Express zones of its own region, and the one with three.
SESSION_TIMEOUTS_MS = (15_000, SESSION_TIMEOUT_MS_DEFAULT, 90_000, 180_000, 600_000)
STAGES = {"dev": "eu-central-1", "prod": "us-east-1"}


@click.command(help=__doc__)
@reported("bill")
def main(report: Report) -> None:
    report.conditions.append(f"List prices of {prices.REGION}, {prices.DATE}, without free tiers.")
    for name in PROFILES:
        operations = bill_all_operations(billed_profile(name))
        report.show(f"{name}, a million", [operation.row() for operation in operations])
    profile = billed_profile("standard1")
    idle = [
        _idle_consumer("polls", bill_polling_consumer(profile), POLLING_MS),
        _idle_consumer("waits for wake-ups", bill_waiting_consumer(profile), HOUR_MS),
        _idle_consumer("waits as a worker of a share group", bill_waiting_worker(profile), HOUR_MS),
    ]
    report.show("an idle consumer", idle)
    report.show(
        "an idle member of a group",
        [
            {"session_timeout_s": timeout_ms // 1_000, **_idle_row(bill_waiting_member(profile, timeout_ms), MEMBER_MS)}
            for timeout_ms in SESSION_TIMEOUTS_MS
        ],
    )
    report.show("an unused stage, a month", [_idle_stage(stage, region) for stage, region in STAGES.items()])


def _idle_consumer(how: str, bill: Bill, duration_ms: int) -> Row:
    return {"consumer of 6 partitions": how, **_idle_row(bill, duration_ms)}


def _idle_row(bill: Bill, duration_ms: int) -> Row:
    return {
        "requests_per_minute": round(bill.requests * 60_000 / duration_ms),
        "function_s_per_minute": round(bill.function_ms * 60 / duration_ms, 2),
        "read_units_per_minute": round(bill.read_units * 60_000 / duration_ms),
        "usd_per_day": float(f"{bill.usd * DAY_MS / duration_ms:.3g}"),
    }


def _idle_stage(stage: str, region: str) -> Row:
    settings = settings_of_context({"stage": stage, "region": region}, None)
    with tempfile.TemporaryDirectory() as folder:
        resources = synthesized_resources(settings, Path(folder))
    return bill_idle_stage(resources, settings.profile, settings.log_level).row(stage)


if __name__ == "__main__":
    main()
