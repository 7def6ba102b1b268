"""What is simulated: a workload, limits, and the slice of both that a run simulates in full."""

from dataclasses import dataclass, replace

from bench.scale.limits import DEFAULT, Limits
from penstock.cost.counted import counted
from penstock.cost.workload import Workload
from penstock.http.named_transport import HTTP, TransportName

REQUESTS_MAX = 6_000
"""Produce requests of one run. A larger system is cut into equal slices, and one of them is simulated."""


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
