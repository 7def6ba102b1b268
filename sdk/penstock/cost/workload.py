"""A workload, and the requests that clients with the SDK's defaults make of it."""

from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, KIB, SDK_FETCH_INTERVAL_MS_MAX

HOURS_PER_MONTH = 730
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3_600
IN_FLIGHT = 5  # requests of a producer at once, by default
TURN_BYTES = 256 * KIB  # a batch: what a partition gets in a row of a long stream without keys
ANSWER_MS = 50.0
"""Of a request, from the client's side, assumed: 30 ms in a function, and 20 ms outside of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records of one topic, a second, and what happens to them. Sizes are those after compression.

    Each of the `consumers` reads all records. `request_bytes` are those of the records in one produce request; None
    lets `linger_ms` and the number of producers decide. `partitions_per_request` is the number of partitions that a
    request goes to: 1 without keys, up to all with keys. With `kms_key`, the stage has a key of yours. Raises
    PenstockError for a number that makes no sense.
    """

    records_per_s: float
    record_bytes: int = 1_024
    consumers: int = 1
    retention_days: float = 14.0
    partitions: int = 6
    producers: int = 1
    linger_ms: float = 5.0
    fetch_interval_ms: float = 200.0
    request_bytes: int | None = None
    has_keys: bool = False
    kms_key: bool = False

    def __post_init__(self) -> None:
        bounds = (
            ("rate", self.records_per_s, 0, 1e9),
            ("size", self.record_bytes, 1, BATCH_BYTES_MAX),
            ("consumers", self.consumers, 0, 10_000),
            ("retention", self.retention_days, 0, 3_650),
            ("partitions", self.partitions, 1, 10_000),
            ("producers", self.producers, 1, 1_000_000),
            ("linger", self.linger_ms, 0, 600_000),
            ("fetch interval", self.fetch_interval_ms, 0, SDK_FETCH_INTERVAL_MS_MAX),
            ("request", self.record_bytes if self.request_bytes is None else self.request_bytes, 1, BATCH_BYTES_MAX),
        )
        for name, value, least, most in bounds:
            if not least <= value <= most:
                raise PenstockError(
                    ErrorCode.INVALID_CONFIG, f"{name} is {value:g}: use a number from {least:g} to {most:g}"
                )

    @property
    def bytes_per_s(self) -> float:
        """The bytes of all records a second."""
        return self.records_per_s * self.record_bytes

    @property
    def records_per_request(self) -> float:
        """The mean number of records in a produce request, 1 at least.

        A partition is in one request at a time, so a busy producer gathers records while it waits for answers. With
        keys it has five requests under way at most. Without, a long stream sticks to a partition for `TURN_BYTES`.
        """
        if self.request_bytes is not None:
            return max(1.0, self.request_bytes / self.record_bytes)
        per_ms = self.records_per_s / self.producers / 1_000
        turns = IN_FLIGHT if self.has_keys else per_ms * ANSWER_MS * self.record_bytes / TURN_BYTES
        interval_ms = max(self.linger_ms, ANSWER_MS / max(1.0, min(turns, IN_FLIGHT, self.partitions)))
        gathered = per_ms * interval_ms
        return min(max(1.0, gathered), max(1.0, BATCH_BYTES_MAX / self.record_bytes))

    @property
    def bytes_per_request(self) -> float:
        """The mean bytes of the records in a produce request."""
        return self.records_per_request * self.record_bytes

    @property
    def requests_per_s(self) -> float:
        """The produce requests a second, of all producers."""
        return self.records_per_s / self.records_per_request

    @property
    def partitions_per_request(self) -> float:
        """The mean number of partitions that a request goes to: with keys, as many as chance hits."""
        if not self.has_keys:
            return 1.0
        missed = float((1 - 1 / self.partitions) ** self.records_per_request)
        return self.partitions * (1 - missed)

    @property
    def stored_bytes(self) -> float:
        """The bytes that lie in the topic, once it is as old as its retention."""
        return self.bytes_per_s * self.retention_days * 86_400
