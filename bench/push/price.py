"""Price a million records of 1 KB that a function gets: by a subscription, and by the triggers of SQS and Kinesis.

It needs no stack: the service runs in this process on moto, in the profile standard1, and its calls are captured. The
time of Penstock's own functions is assumed (`bench/bill/deployment.py`). The cost of the target is left out.
"""

import click

from bench.bill.deployment import billed_profile
from bench.bill.pushed_records import bill_pushed_records
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import prices


@click.command(help=__doc__)
@reported("push_price")
def main(report: Report) -> None:
    report.conditions.append(f"List prices of {prices.REGION}, {prices.DATE}, without free tiers.")
    rows = bill_pushed_records(billed_profile("standard1"))
    dollars: list[Row] = [{name: each for name, each in row.items() if name != "calls"} for row in rows]
    calls = {str(row["records"]): row["calls"] for row in rows if row["calls"]}
    report.show("a million records of 1 KB, in batches of 100", dollars)
    report.show("storage calls of a batch", [{"records": name, "calls": each} for name, each in calls.items()])
