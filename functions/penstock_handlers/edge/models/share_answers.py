"""The answers about share groups, from which the OpenAPI document is made."""

from typing import Any, NotRequired

from typing_extensions import TypedDict

from penstock_handlers.edge.models.answer_models import Base64Answer


class ShareGroupAnswer(TypedDict):
    """A share group: its id, its topics, and all its settings."""

    group: str
    share_group_id: str
    topics: list[str]
    config: dict[str, Any]
    created_at_ms: int


class ShareGroupList(TypedDict):
    """One page of the list of share groups; the next starts behind `next_after`."""

    share_groups: list[ShareGroupAnswer]
    next_after: str | None


class ShareHolderAnswer(TypedDict):
    """A consumer with locks: the end of its name, empty for those without one, and when its last lock ends."""

    consumer: str
    locks: int
    records: int
    locked_until_ms: int


class ShareGroupPartitionAnswer(TypedDict):
    """One partition: what is locked, and by which consumers, what may be acquired now, and what later.

    `lag` is all of it, and `waiting_age_ms` the age of the oldest record that is not locked. `passed_over` records, the
    first one at `passed_over_offset`, gave way to records of other tenants or keys. `expired` counts the records that
    were finished because their time was over. `holders_left_out` counts the consumers that the list has no room for.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    position: int
    in_flight: int
    available: int
    waiting: int
    lag: int
    oldest_age_ms: int | None
    waiting_age_ms: int | None
    passed_over: int
    passed_over_offset: int | None
    expired: int
    holders: list[ShareHolderAnswer]
    holders_left_out: int


class ShareRecordAnswer(TypedDict):
    """A record as the group has it: `state` is finished, locked, available or waiting.

    `until_ms` ends the lock or the wait. `is_dead`: it waits for its move to the dead-letter topic. `deliveries` is
    null for a finished record.
    """

    state: str
    deliveries: int | None
    consumer: str | None
    until_ms: int | None
    is_dead: bool
    reason: str


class ShareGroupDescriptionAnswer(ShareGroupAnswer):
    """A page of a share group's partitions; the next page starts behind `next_after`.

    `record` is there if you asked for one.
    """

    partitions: list[ShareGroupPartitionAnswer]
    next_after: str | None
    record: NotRequired[ShareRecordAnswer]


class AcquiredRecord(TypedDict):
    """A record under a lock; bytes that are not plain text come in the `_base64` fields instead."""

    topic: str
    partition: int
    offset: int
    lock_id: str
    delivery_count: int
    until_ms_left: int
    timestamp_ms: int
    key: NotRequired[str | None]
    key_base64: NotRequired[str]
    value: NotRequired[str | None]
    value_base64: NotRequired[str]
    headers: list[tuple[str, str | Base64Answer | None]]


class AcknowledgedRanges(TypedDict):
    """The result for some offsets of an acknowledgement; null: for all of them.

    `next_lock_id` tells the lock as it is now, while it has records left: use it for the next acknowledgement.
    """

    topic: str
    partition: int
    lock_id: str
    offsets: list[tuple[int, int]] | None
    result: str
    next_lock_id: NotRequired[str]
    message: NotRequired[str]


class AcknowledgedAnswer(TypedDict):
    """One result or several for each acknowledgement, in order."""

    acknowledged: list[AcknowledgedRanges]


class WatchedAnswer(TypedDict):
    """A partition that had nothing; `armed`: a wake-up tells when it has."""

    topic_id: str
    partition: int
    armed: bool


class AcquiredRecords(TypedDict):
    """Records under locks, the results of the acknowledgements, and how to wait for more."""

    share_group_id: str
    lock_ms: int
    ordering: str
    records: list[AcquiredRecord]
    acknowledged: list[AcknowledgedRanges]
    next_available_ms: int | None
    retry_after_ms: NotRequired[int]
    work_ms: NotRequired[int]
    watch: list[WatchedAnswer]


class RedriveAnswer(TypedDict):
    """The dead letters that the call moved and skipped, and all that were not moved. The next call gives the cursor."""

    moved: int
    remaining: int
    skipped: int
    skipped_by: dict[str, int]
    cursor: str | None
