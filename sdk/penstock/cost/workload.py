"""A workload, and the produce requests that clients with the SDK's defaults make of it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, KIB, SDK_FETCH_INTERVAL_MS_MAX

HOURS_PER_MONTH = 730
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3_600
IN_FLIGHT = 5  # requests of a producer at once, by default
TURN_BYTES = 256 * KIB  # a batch: what a partition gets in a row of a long stream without keys
ANSWER_MS = 50.0
"""Of a request, from the client's side, assumed: 30 ms in a function, and 20 ms outside of it."""
_DAY_HOURS, _WEEK_DAYS = 24, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records a second of some topics, and what happens to them. Sizes are those after compression.

    `records_per_s` is the rate of all topics together, in the `hours` of the day and the `days` of the week in which
    records come. Each topic has `partitions`, and its own readers:

    - `groups` of consumers, each of which reads all records. `members` are those of all groups of all topics together:
      None for one in each.
    - a share group, if there are `share_workers`. They are those of all topics together.
    - `subscriptions`, which push the records to a target.
    - `mirrors`: other stages of the same profile that repeat the topics, in other regions unless `mirrors_in_region`.

    `new_groups` are those that a month makes anew, such as one for each run of a job.

    Members and share workers run for `worker_hours` of such a day. With 24, they run on the other days, too.
    `request_bytes` are those of the records in one produce request; None lets `linger_ms` and the number of producers
    decide. With `has_items`, the stage puts small requests into DynamoDB, as it does unless its `inline_bytes_max` is
    0. If `is_compacted`, the topics have `cleanup_policy=compact`. With `kms_key`, the stage has a key of yours. Raises
    PenstockError for a number that makes no sense: it names the option of `penstock cost`.
    """

    records_per_s: float
    record_bytes: int = 1_024
    topics: int = 1
    partitions: int = 6
    groups: int = 1
    members: int | None = None
    new_groups: int = 0
    share_workers: int = 0
    subscriptions: int = 0
    mirrors: int = 0
    mirrors_in_region: bool = False
    hours: float = 24.0
    worker_hours: float = 24.0
    days: float = 7.0
    retention_days: float = 14.0
    producers: int = 1
    linger_ms: float = 5.0
    fetch_interval_ms: float = 200.0
    request_bytes: int | None = None
    has_keys: bool = False
    has_items: bool = True
    is_compacted: bool = False
    kms_key: bool = False

    def __post_init__(self) -> None:
        for option, value, least, most, unit in self._bounded():
            if not least <= value <= most:
                raise _refused(option, value, f"use a number from {least:g} to {most:,.16g}{unit}")
        if self.members is not None and not self.all_groups <= self.members <= self.all_groups * 10_000:
            wanted = (
                f"use one for each of the {self.all_groups:,} groups at least" if self.groups else "there is no group"
            )
            raise _refused("--members", self.members, wanted)
        if 0 < self.share_workers < self.topics:
            wanted = f"use one for the share group of each of the {self.topics:,} topics at least"
            raise _refused("--share-workers", self.share_workers, wanted)

    def _bounded(self) -> Iterator[tuple[str, float, float, float, str]]:
        yield "--rate", self.records_per_s, 0, 1e9, " records a second"
        yield "--size", self.record_bytes, 1, BATCH_BYTES_MAX, " bytes"
        yield "--topics", self.topics, 1, 10_000, ""
        yield "--partitions", self.partitions, 1, 10_000, ""
        yield "--groups", self.groups, 0, 10_000, ""
        yield "--new-groups", self.new_groups, 0, 10_000_000, ""
        yield "--share-workers", self.share_workers, 0, 100_000, ""
        yield "--subscriptions", self.subscriptions, 0, 1_000, ""
        yield "--mirrors", self.mirrors, 0, 100, ""
        yield "--hours", self.hours, 0.1, _DAY_HOURS, ""
        yield "--worker-hours", self.worker_hours, 0.1, _DAY_HOURS, ""
        yield "--days", self.days, 0.1, _WEEK_DAYS, ""
        yield "--retention", self.retention_days, 0, 3_650, " days"
        yield "--producers", self.producers, 1, 1_000_000, ""
        yield "--linger", self.linger_ms, 0, 600_000, " ms"
        yield "--fetch-interval", self.fetch_interval_ms, 0, SDK_FETCH_INTERVAL_MS_MAX, " ms"
        if self.request_bytes is not None:
            yield "--request", self.request_bytes, 1, BATCH_BYTES_MAX, " bytes"

    # Time.

    @property
    def busy_s(self) -> float:
        """The seconds of a month in which records come."""
        return SECONDS_PER_MONTH * self.hours / _DAY_HOURS * self.days / _WEEK_DAYS

    @property
    def live_s(self) -> float:
        """The seconds of a month in which records come and workers run."""
        return self.busy_s * min(1.0, self.worker_hours / self.hours)

    @property
    def worked_s(self) -> float:
        """The seconds of a month in which workers run."""
        if self.worker_hours == _DAY_HOURS:
            return float(SECONDS_PER_MONTH)
        return SECONDS_PER_MONTH * self.worker_hours / _DAY_HOURS * self.days / _WEEK_DAYS

    # Readers.

    @property
    def all_groups(self) -> int:
        """The groups of all topics together."""
        return self.groups * self.topics

    @property
    def all_members(self) -> int:
        """The members of all groups together."""
        return self.all_groups if self.members is None else self.members

    @property
    def readers(self) -> int:
        """The number of readers of each record: its groups, the share group, and its subscriptions."""
        return self.groups + (self.share_workers > 0) + self.subscriptions

    # Records.

    @property
    def records_per_month(self) -> float:
        """All records of a month."""
        return self.records_per_s * self.busy_s

    @property
    def bytes_per_month(self) -> float:
        """The bytes of all records of a month."""
        return self.records_per_month * self.record_bytes

    @property
    def bytes_per_s(self) -> float:
        """The bytes of all records a second, while records come."""
        return self.records_per_s * self.record_bytes

    @property
    def stored_bytes(self) -> float:
        """The bytes that lie in the topics, once these are as old as their retention."""
        return self.bytes_per_month / SECONDS_PER_MONTH * self.retention_days * 86_400

    # Produce requests.

    @property
    def records_per_request(self) -> float:
        """The mean number of records in a produce request, 1 at least.

        A request leaves `linger_ms` after its first record, and no sooner than its partition has the answer to the one
        before. With keys a producer has five requests under way at most. Without, a long stream sticks to a partition
        for `TURN_BYTES`.
        """
        if self.request_bytes is not None:
            return max(1.0, self.request_bytes / self.record_bytes)
        per_ms = self.records_per_s / self.producers / 1_000
        turns = IN_FLIGHT if self.has_keys else max(self.topics, per_ms * ANSWER_MS * self.record_bytes / TURN_BYTES)
        busy_ms = ANSWER_MS / max(1.0, min(turns, IN_FLIGHT, self.topics * self.partitions))
        quiet_ms = max(self.linger_ms, busy_ms)
        gathered = per_ms * quiet_ms + math.exp(-per_ms * (quiet_ms - self.linger_ms))
        return min(gathered, max(1.0, BATCH_BYTES_MAX / self.record_bytes))

    @property
    def bytes_per_request(self) -> float:
        """The mean bytes of the records in a produce request."""
        return self.records_per_request * self.record_bytes

    @property
    def requests_per_s(self) -> float:
        """The produce requests a second, of all producers, while records come."""
        return self.records_per_s / self.records_per_request

    @property
    def topics_per_request(self) -> float:
        """The mean number of topics that a request goes to: as many as chance hits."""
        return _hit(self.topics, self.records_per_request)

    @property
    def partitions_per_request(self) -> float:
        """The mean number of partitions that a request goes to: with keys as many as chance hits, else one a topic."""
        if not self.has_keys:
            return self.topics_per_request
        return _hit(self.topics * self.partitions, self.records_per_request)


def _hit(places: int, records: float) -> float:
    """The mean number of places that so many records hit by chance."""
    missed = float((1 - 1 / places) ** records)
    return places * (1 - missed)


def _refused(option: str, value: float, wanted: str) -> PenstockError:
    return PenstockError(ErrorCode.INVALID_CONFIG, f"{option} is {value:,.16g}: {wanted}")
