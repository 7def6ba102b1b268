"""The limits of AWS that a deployment meets: by default, in a new account, and raised as far as AWS documents.

API Gateway and Lambda bound an account and region, DynamoDB a key and a table, S3 a bucket.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from bench.report.result import Row

_SOURCES = {
    "api_requests_per_s": "API Gateway: 10,000 a second for each account and region, adjustable",
    "api_burst": "API Gateway: 5,000 at once",
    "instances": "Lambda: 1,000 concurrent executions, adjustable; new accounts have had 10",
    "key_units_per_s": "DynamoDB: 1,000 write units a second for each partition key, fixed",
    "table_units_per_s": "DynamoDB: 4,000 for a new on-demand table; 40,000 by quota, adjustable",
    "bucket_puts_per_s": "S3 Express: 200,000 PUT/s for each directory bucket (userguide, design patterns)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What AWS lets through a second, and at once."""

    api_requests_per_s: float = 10_000
    api_burst: float = 5_000
    instances: int = 1_000
    key_units_per_s: float = 1_000
    table_units_per_s: float = 40_000
    bucket_puts_per_s: float = 200_000


DEFAULT = Limits()
NEW_ACCOUNT = Limits(instances=10, table_units_per_s=4_000)
RAISED = Limits(api_requests_per_s=1_000_000, api_burst=500_000, instances=100_000, table_units_per_s=2_000_000)
BY_NAME = {"default": DEFAULT, "new account": NEW_ACCOUNT, "raised": RAISED}


def rows() -> Iterator[Row]:
    """The table of all limits."""
    for each in fields(Limits):
        values: Row = {name: getattr(limits, each.name) for name, limits in BY_NAME.items()}
        yield {"limit": each.name.replace("_per_s", "/s").replace("_", " "), **values, "source": _SOURCES[each.name]}
