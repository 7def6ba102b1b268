"""Models the price of a produce request on AWS from list prices and from the calls of the request.

The model covers one idempotent produce request to one partition with three zones on S3 Express One Zone. It leaves out
storage, logs, traffic to the internet or through NAT, alarms and free tiers. `penstock.prices` has the prices. The
number of puts is the design's, the price of DynamoDB is that of the captured calls (`bench/results/bill.json`). The
duration of a function is an assumption: Penstock has not run on AWS yet.
"""

import math

import click

from bench.bill.deployment import FUNCTION_MS, FUNCTION_MS_PER_MIB
from bench.report.recording import Report, reported
from bench.report.result import Row, load_results
from penstock import prices
from penstock_cdk.settings import FUNCTION_SIZES

KIB, MIB, GIB = 1024, 1024**2, 1024**3
MILLION = 1_000_000

ZONES = 3
HEADER_BYTES = 100  # of the request's frame, about
SIZES = {"1 KiB": KIB, "16 KiB": 16 * KIB, "64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB}


@click.command(help=__doc__)
@reported("cost_model")
def main(report: Report) -> None:
    usd = load_results()["bill"].find("express3, a million", {"operation": "append of 1 KB"}, "dynamodb_usd")
    if not isinstance(usd, int | float):
        raise click.ClickException(f"dollars are a number, not {usd!r}")
    report.conditions.append(f"List prices of {prices.REGION}, {prices.DATE}, without free tiers.")
    report.show("produce_usd_per_million_requests", [model_produce(name, size, usd) for name, size in SIZES.items()])


def model_produce(name: str, request_bytes: int, dynamodb_usd: float) -> Row:
    """The dollars of a million requests by service, and of the requests that carry 1 GiB."""
    duration_s = (FUNCTION_MS + FUNCTION_MS_PER_MIB * request_bytes / MIB) / 1_000
    memory_gb = FUNCTION_SIZES["produce"].memory_mb / KIB
    api_units = math.ceil((request_bytes + HEADER_BYTES) / prices.API_REQUEST_BYTES)
    parts = {
        "api": prices.API_REQUESTS.of(MILLION * api_units),
        "lambda": prices.LAMBDA_REQUESTS.of(MILLION) + prices.LAMBDA_GB_SECONDS.of(MILLION * duration_s * memory_gb),
        "puts": prices.EXPRESS_PUTS.of(MILLION * ZONES),
        "uploads": prices.EXPRESS_UPLOADED_BYTES.of(MILLION * ZONES * request_bytes),
        "dynamodb": dynamodb_usd,
    }
    usd_per_million = sum(parts.values())
    return {
        "request": name,
        **{f"{part}_usd": round(usd, 2) for part, usd in parts.items()},
        "sum_usd": round(usd_per_million, 2),
        "usd_per_gib": float(f"{usd_per_million / MILLION * GIB / request_bytes:.3g}"),
    }


if __name__ == "__main__":
    main()
