"""Prices small appends as items of DynamoDB beside puts to zones, from the append to the end of their bytes.

One idempotent producer sends records one by one to one partition. The handlers run in this process on moto, and each
call is captured and priced, as in `bench.bill`. After four hours `tier` moves the records to the archive, and the sweep
removes the rest. What runs of `tier` and of the sweep cost whatever there is to do is left out.
"""

import click

from bench.bill.deployment import billed_profile
from bench.bill.inline_life import APPENDS, AppendLife, bill_life, write_units
from bench.bill.requests import PROFILES
from bench.report.recording import Report, reported
from bench.report.result import Row
from penstock import prices

RECORD_BYTES = (500, 800, 1_000, 1_800, 3_800)
ZONAL_RECORD_BYTES = (500, 3_800)  # S3 takes the same for a put of either


@click.command(help=__doc__)
@reported("inline_appends")
def main(report: Report) -> None:
    report.conditions.append(f"List prices of {prices.REGION}, {prices.DATE}, without free tiers.")
    report.conditions.append(f"{APPENDS} appends, moved by one run.")
    lives = [(size, bill_life(billed_profile("express3"), size, is_inline=True)) for size in RECORD_BYTES]
    report.show("an append as an item, a million", [life_row(size, life) for size, life in lives])
    zonal = [
        (name, size, bill_life(billed_profile(name), size, is_inline=False))
        for name in PROFILES
        for size in ZONAL_RECORD_BYTES
    ]
    report.show(
        "an append to zones, a million", [{"profile": name, **life_row(size, life)} for name, size, life in zonal]
    )
    of_zones = {(name, size): life for name, size, life in zonal}
    [smallest] = [life for size, life in lives if size == RECORD_BYTES[0]]
    report.judge(holds=smallest.embedded < of_zones["express3", RECORD_BYTES[0]].embedded)


def life_row(record_bytes: int, life: AppendLife) -> Row:
    """The parts of a life: storage alone, which is the sum for a program that embeds the service, and by HTTP."""
    item: Row = {"item_bytes": life.item_bytes, "write_units": write_units(life.item_bytes)} if life.item_bytes else {}
    return {
        "record_bytes": record_bytes,
        **item,
        "append_usd": round(life.appended, 2),
        "move_usd": round(life.moved, 2),
        "removal_usd": round(life.removed, 2),
        "embedded_sum_usd": round(life.embedded, 2),
        "by_http_sum_usd": round(life.http, 2),
    }


if __name__ == "__main__":
    main()
