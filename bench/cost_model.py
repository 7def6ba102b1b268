"""Models the price of a produce request on AWS from list prices and from the calls of the request.

The model covers one idempotent produce request to one partition with three zones on S3 Express One Zone. It leaves out
storage, logs, traffic to the internet or through NAT, alarms and free tiers. The number of puts is the design's, the
write units come from `bench/results/costs_idempotence.json`. The duration of a function is an assumption: Penstock has
not run on AWS yet.
"""

import math

import click

from bench.report.recording import Report, reported
from bench.report.result import Row, load_results
from infra.settings import FUNCTION_SIZES

KIB, MIB, GIB, GB = 1024, 1024**2, 1024**3, 1_000_000_000
MILLION = 1_000_000

# List prices of us-east-1 in dollars, November 2026.
API_USD_PER_MILLION = 1.00  # HTTP API, for each 512 KB of a request that has begun
API_UNIT_BYTES = 512 * KIB
LAMBDA_USD_PER_MILLION = 0.20
LAMBDA_USD_PER_GB_S = 0.0000133334  # arm64
PUT_USD_PER_MILLION = 1.13  # S3 Express One Zone
UPLOAD_USD_PER_GB = 0.0032  # S3 Express One Zone
WRITE_UNITS_USD_PER_MILLION = 0.625  # DynamoDB on demand

ZONES = 3
HEADER_BYTES = 100  # of the request's frame, about
DURATION_MS = 30  # of a small request, assumed
DURATION_MS_PER_MIB = 30  # more for a large one, assumed
SIZES = {"1 KiB": KIB, "16 KiB": 16 * KIB, "64 KiB": 64 * KIB, "256 KiB": 256 * KIB, "1 MiB": MIB}


@click.command(help=__doc__)
@reported("cost_model")
def main(report: Report) -> None:
    write_units = load_results()["costs_idempotence"].find("append", {"idempotent_producers": 1}, "write_units")
    if not isinstance(write_units, int | float):
        raise click.ClickException(f"write units are a number, not {write_units!r}")
    report.show(
        "produce_usd_per_million_requests", [model_produce(name, size, write_units) for name, size in SIZES.items()]
    )


def model_produce(name: str, request_bytes: int, write_units: float) -> Row:
    """The dollars of a million requests by service, and of the requests that carry 1 GiB."""
    duration_s = (DURATION_MS + DURATION_MS_PER_MIB * request_bytes / MIB) / 1_000
    memory_gb = FUNCTION_SIZES["produce"].memory_mb / KIB
    parts = {
        "api": API_USD_PER_MILLION * math.ceil((request_bytes + HEADER_BYTES) / API_UNIT_BYTES),
        "lambda": LAMBDA_USD_PER_MILLION + MILLION * duration_s * memory_gb * LAMBDA_USD_PER_GB_S,
        "puts": ZONES * PUT_USD_PER_MILLION,
        "uploads": MILLION * ZONES * request_bytes / GB * UPLOAD_USD_PER_GB,
        "dynamodb": write_units * WRITE_UNITS_USD_PER_MILLION,
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
