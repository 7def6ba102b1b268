"""Share groups as consumers and operators see them. All values are immutable; times are milliseconds since 1970."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

from penstock.model import Headers


class ShareRecord(NamedTuple):
    """A record that this consumer holds the lock of. A value of None is a tombstone.

    Key and value are bytes, or what the consumer's deserializers make of them. `delivery_count` is 1 when the record is
    handed out for the first time. `lock_id` names the lock to the service.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Headers
    delivery_count: int
    lock_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcceptance:
    """Records under one lock that a transaction accepts. `offsets` are half-open ranges."""

    group: str
    topic: str
    partition: int
    lock_id: str
    offsets: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, object]:
        """The acceptance as the HTTP API takes it."""
        return {
            "group": self.group,
            "topic": self.topic,
            "partition": self.partition,
            "lock_id": self.lock_id,
            "offsets": [list(each) for each in self.offsets],
        }


class Reject(Exception):  # noqa: N818 - the word for what it asks
    """Raise it in a handler to reject the record: it goes to the dead-letter topic, and is not tried again.

    `reason` is in the dead-letter record's headers. Without a dead-letter topic the record is finished.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Release(Exception):  # noqa: N818 - the word for what it asks
    """Raise it in a handler to release the record: it comes again after `delay_ms`, or after the group's backoff.

    `reason` is in the dead-letter record's headers, if this was the last delivery. Any other exception does the same
    with its type and text as the reason, and is logged. A delay that no release may have ends the run.
    """

    def __init__(self, reason: str = "", delay_ms: int | None = None) -> None:
        super().__init__(reason, delay_ms)
        self.reason = reason
        self.delay_ms = delay_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroup:
    """A share group: its topics and all its settings. `share_group_id` is another one when a group is made anew."""

    group: str
    share_group_id: str
    topics: tuple[str, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHolder:
    """A consumer with locks, or all those without a name together, whose `consumer` is empty.

    `consumer` is the end of its `client_id`, as 12 letters, digits, `-` and `_` at most. `records` are locked under
    `locks` locks. The last of them ends at `locked_until_ms`.
    """

    consumer: str
    locks: int
    records: int
    locked_until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupPartition:
    """One partition of a share group.

    The records below `start_offset` are finished, and those from `position` on were not handed out yet. `in_flight`
    records are locked. `available` ones may be acquired now, and `waiting` ones later. `lag` counts the records that
    are not finished. `oldest_age_ms` is the age of the oldest of them since its append, None if there is none.
    `waiting_age_ms` is that of the oldest one that is not locked; a service of before 0.2 tells none. `passed_over`
    records, the first one at `passed_over_offset`, gave way to those of other tenants or keys. `expired` counts those
    that were finished because their time was over. `holders` have locks now. `holders_left_out` counts further ones.
    """

    topic: str
    partition: int
    start_offset: int
    position: int
    in_flight: int
    available: int
    waiting: int
    lag: int
    oldest_age_ms: int | None
    holders: tuple[ShareHolder, ...] = ()
    holders_left_out: int = 0
    waiting_age_ms: int | None = None
    expired: int = 0
    passed_over: int = 0
    passed_over_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    """A share group and its partitions, by topic in the group's order, and number."""

    group: ShareGroup
    partitions: tuple[ShareGroupPartition, ...]

    @property
    def waiting_age_ms(self) -> Mapping[str, int | None]:
        """For each topic the age of its oldest record that is not locked, None if there is none.

        With topic_order=listed a topic may starve while those before it have records: its age tells.
        """
        ages: dict[str, int | None] = dict.fromkeys(self.group.topics)
        for each in self.partitions:
            known = [age for age in (ages.get(each.topic), each.waiting_age_ms) if age is not None]
            ages[each.topic] = max(known, default=None)
        return ages

    @property
    def holders(self) -> tuple[ShareHolder, ...]:
        """The consumers with locks in any partition, the one with the most records first.

        The service keeps no members: a consumer that waits for records, or works on none, is not among them.
        """
        found: dict[str, ShareHolder] = {}
        for each in (holder for partition in self.partitions for holder in partition.holders):
            seen = found.get(each.consumer) or ShareHolder(
                consumer=each.consumer, locks=0, records=0, locked_until_ms=0
            )
            found[each.consumer] = ShareHolder(
                consumer=each.consumer,
                locks=seen.locks + each.locks,
                records=seen.records + each.records,
                locked_until_ms=max(seen.locked_until_ms, each.locked_until_ms),
            )
        return tuple(sorted(found.values(), key=lambda each: (-each.records, each.consumer)))


class RedriveOptions(TypedDict, total=False):
    """The options of a redrive."""

    to: str | None
    filter: Mapping[str, Any] | None
    records_max: int | None
    cursor: str | None
    record: tuple[int, int] | None
    drop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLetters:
    """The dead letters of one partition: `records` in all, and those that are open.

    `open_ranges` are the open offsets from `ranges_from` on, half-open: the newest, if there are many ranges.
    """

    partition: int
    records: int
    open: int
    open_ranges: tuple[tuple[int, int], ...]
    ranges_from: int

    def is_open(self, offset: int) -> bool | None:
        """True for an open letter. None below `ranges_from`, where the answer tells nothing."""
        if offset < self.ranges_from:
            return None
        return any(start <= offset < end for start, end in self.open_ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCounts:
    """The dead letters of a topic: `open` ones were neither moved nor dropped by a redrive."""

    records: int
    open: int
    partitions: tuple[PartitionLetters, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The work of one redrive call. `remaining` counts all records that were not moved, skipped ones among them.

    - `skipped_by` counts the skipped ones by reason: `not_matching`, `no_topic`, `undecodable`, `too_large`,
      `unreadable` and `no_room`.
    - `cursor` is for the next call. None: this one has come to the end of the topic.
    """

    moved: int
    remaining: int
    skipped: int
    skipped_by: Mapping[str, int] = field(default_factory=dict)
    cursor: str | None = None
