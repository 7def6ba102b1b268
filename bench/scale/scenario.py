"""The simulated system: a workload, the limits of AWS, and the slice of both that a run simulates in full.

API Gateway and Lambda bound an account and region, DynamoDB a key and a table, S3 a bucket.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from bench.report.result import Row
from penstock.cost.counted import counted
from penstock.cost.workload import Workload
from penstock.http.named_transport import HTTP, TransportName

REQUESTS_MAX = 6_000
"""Produce requests of one run. A larger system is cut into equal slices, and one of them is simulated."""
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
    """The rates and counts that AWS lets through."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A topic whose `producers` share a rate, read by one group of `consumers`."""

    name: str
    bytes_per_s: float
    partitions: int = 6
    producers: int = 1
    consumers: int = 1
    record_bytes: int = 1_000
    linger_ms: float = 5.0
    profile: str = "express3"
    transport: TransportName = HTTP
    limits: Limits = DEFAULT
    seconds: float = 10.0

    @property
    def workload(self) -> Workload:
        """The same as `penstock cost` sees it."""
        return Workload(
            records_per_s=self.bytes_per_s / self.record_bytes,
            record_bytes=self.record_bytes,
            partitions=self.partitions,
            producers=self.producers,
            linger_ms=self.linger_ms,
            retention_days=1.0,
        )

    @property
    def write_units(self) -> float:
        """The write units of one append, with its share of rolls, as they were counted."""
        return counted(self.profile).append(1_024)["WRITE_UNITS"]

    def slices(self) -> int:
        """Into how many equal slices the system is cut. Each has whole producers, partitions and consumers."""
        most = min(self.partitions, self.producers, self.consumers)
        wanted = self.workload.requests_per_s * self.seconds / REQUESTS_MAX
        return max(1, min(most, int(wanted)))

    def slice(self) -> "Scenario":
        """One slice, with its share of the limits that all slices share."""
        count = self.slices()
        limits = replace(
            self.limits,
            api_requests_per_s=self.limits.api_requests_per_s / count,
            api_burst=self.limits.api_burst / count,
            instances=max(1, self.limits.instances // count),
            table_units_per_s=self.limits.table_units_per_s / count,
            bucket_puts_per_s=self.limits.bucket_puts_per_s / count,
        )
        return replace(
            self,
            bytes_per_s=self.bytes_per_s / count,
            partitions=self.partitions // count,
            producers=self.producers // count,
            consumers=max(1, self.consumers // count),
            limits=limits,
        )


def limit_rows() -> Iterator[Row]:
    """The table of all limits."""
    for each in fields(Limits):
        values: Row = {name: getattr(limits, each.name) for name, limits in BY_NAME.items()}
        yield {"limit": each.name.replace("_per_s", "/s").replace("_", " "), **values, "source": _SOURCES[each.name]}
