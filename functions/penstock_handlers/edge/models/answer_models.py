"""The JSON API's answers, from which the OpenAPI document is made: typed dicts, so that a missing field is not sent."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from penstock_core.log.topic import MoveNote


class ZoneAnswer(TypedDict):
    """A zone and its state; `since_ms` is 0 for one that has always been in sync."""

    zone: str
    state: str
    version: int
    since_ms: int
    reason: str


class ZoneList(TypedDict):
    """All zones, in configured order, the release of the service, and its storage profile."""

    zones: list[ZoneAnswer]
    version: str
    profile: str


class Error(TypedDict):
    """An error: its code and message, and further facts if they help (docs/reference/http-api.md)."""

    code: str
    message: str
    maybe_applied: bool
    limit: NotRequired[int]
    retry_after_ms: NotRequired[int]
    quota: NotRequired[str]
    subject: NotRequired[str]
    principal: NotRequired[str]
    operation: NotRequired[str]
    resource: NotRequired[str]
    place: NotRequired[str]
    topic: NotRequired[str]
    topic_id: NotRequired[str]
    partition: NotRequired[int]
    writable_partitions: NotRequired[int]
    first_writable_partition: NotRequired[int]
    log_start_offset: NotRequired[int]
    high_watermark: NotRequired[int]
    to: NotRequired[int]
    batch: NotRequired[int]
    base_offset: NotRequired[int]
    next_offset: NotRequired[int]
    lease_epoch: NotRequired[int]
    committed_offset: NotRequired[int]
    committed_at_ms: NotRequired[int]
    expected_sequence: NotRequired[int]
    epoch: NotRequired[int | None]
    last_transaction: NotRequired[int | None]
    last_nonce: NotRequired[str]
    mirror: NotRequired[str]
    source: NotRequired[str]
    url: NotRequired[str]


class ErrorAnswer(TypedDict):
    """The body of every answer of a function that is not a success."""

    error: Error


class ProducedOffset(TypedDict):
    """The offset of a record, or the time at which it will come, or the error that refused it.

    `scheduled_id` is there for a delayed record that you asked to be `cancellable`.
    """

    partition: int
    offset: NotRequired[int]
    deliver_at_ms: NotRequired[int]
    scheduled_id: NotRequired[str]
    error: NotRequired[Error]


class ProducedOffsets(TypedDict):
    """One result per record, in request order."""

    offsets: list[ProducedOffset]


class Base64Answer(TypedDict):
    """Bytes that are not plain text."""

    base64: str


class FetchedRecord(TypedDict):
    """A record; bytes that are not plain text come in the `_base64` fields instead."""

    offset: int
    timestamp_ms: int
    key: NotRequired[str | None]
    key_base64: NotRequired[str]
    value: NotRequired[str | None]
    value_base64: NotRequired[str]
    headers: list[tuple[str, str | Base64Answer | None]]


class FetchedRecords(TypedDict):
    """Records from the offset asked for, of the topic with this id; go on at `next_offset`.

    With `retry_after_ms`, the service was short of instances and has cut the wait short: come back after so long.
    """

    topic_id: str
    records: list[FetchedRecord]
    next_offset: int
    high_watermark: int
    log_start_offset: int
    retry_after_ms: NotRequired[int]


class EarlierRetention(TypedDict):
    """The retention of records from before `before_ms`, when it was raised. The raise has not reached all of them."""

    retention_ms: int
    before_ms: int


class MirrorAnswer(TypedDict):
    """The mirror that writes a topic: its name, the id of the topic that it repeats, and the URL of that stage."""

    name: str
    topic_id: str
    source: str | None


class MoveAnswer(TypedDict):
    """The last move of a topic to its mirror, by number: the `topic` at the stage `url`. `open`: it was given up."""

    move: int
    state: Literal["moved", "reopening", "returning", "open"]
    mirror: str
    url: str
    topic: str


def move_answer(note: MoveNote) -> MoveAnswer:
    """The answer for a move."""
    return {
        "move": note.number,
        "state": note.state.value,
        "mirror": note.mirror,
        "url": note.url,
        "topic": note.topic,
    }


class TopicAnswer(TypedDict):
    """A topic. New records go to `writable_partitions`, from `first_writable_partition` on; the others drain.

    Only pushes of another stage write to a topic that has a `mirror`. One that has a `move` may have gone to its own.
    """

    name: str
    topic_id: str
    partitions: int
    writable_partitions: int
    first_writable_partition: int
    config: dict[str, Any]
    created_at_ms: int
    earlier_retention: NotRequired[EarlierRetention]
    mirror: NotRequired[MirrorAnswer]
    move: NotRequired[MoveAnswer]


class AddressAnswer(TypedDict):
    """Another way to the stage: the transport that takes it, and the address that this transport needs."""

    transport: str
    address: str


class StageMetadata(TypedDict):
    """The ways to the stage next to its URL, the best one first. A client skips those that it does not know."""

    addresses: list[AddressAnswer]


class TopicMetadata(TopicAnswer):
    """A topic, and the ways to its stage as `StageMetadata` has them."""

    addresses: list[AddressAnswer]


class TopicList(TypedDict):
    """One page of topics; the next starts behind `next_after`."""

    topics: list[TopicAnswer]
    next_after: str | None


class ScheduledTimer(TypedDict):
    """Delayed records that wait together: cancelling them cancels all of them."""

    scheduled_id: str
    partition: int
    deliver_at_ms: int
    records: int
    bytes: int


class ScheduledList(TypedDict):
    """One page of delayed records; the next starts behind `next_after`."""

    scheduled: list[ScheduledTimer]
    next_after: str | None


class PartitionBounds(TypedDict):
    """A partition holds the offsets `[log_start_offset, high_watermark)`. It is `active`, or takes no new records.

    `stored_bytes` are the bytes of its records, as an estimate once retention has removed some. A log that was a
    mirror ended at `promoted_at` then.
    """

    partition: int
    log_start_offset: int
    high_watermark: int
    state: Literal["active", "draining"]
    stored_bytes: int
    promoted_at: NotRequired[int]


class TopicDescription(TopicAnswer):
    """A topic and the bounds of its partitions."""

    offsets: list[PartitionBounds]


class TopicUserCounts(TypedDict):
    """The numbers of those that read a topic, write to it, or send dead letters there."""

    share_groups: int
    subscriptions: int


class RecordPlaceAnswer(TypedDict):
    """The append of `[start_offset, end_offset)`, its newest time, and where its bytes lie: `length` at `position`.

    `kind` is zonal, archive, inline or expiring: objects of the zones or the archive, or an item without or with a TTL.
    `zones` had the object when the append was committed. The three last fields are null without an idempotent producer.
    """

    start_offset: int
    end_offset: int
    appended_ms: int
    kind: str
    segment: str
    position: int
    length: int
    zones: list[str]
    producer_id: int | None
    producer_epoch: int | None
    first_sequence: int | None


class OffsetAnswer(TypedDict):
    """`offset` is null where no record is at or after the time; `timestamp_ms` where the search stopped at a batch.

    `topic_id` is the topic that the offset belongs to. `place` is there if you asked for the record at an offset.
    """

    topic_id: str
    partition: int
    offset: int | None
    timestamp_ms: int | None
    place: NotRequired[RecordPlaceAnswer]


class PartitionLettersAnswer(TypedDict):
    """The dead letters of a partition, and the open ones as half-open ranges of offsets, from `ranges_from` on."""

    partition: int
    records: int
    open: int
    open_ranges: list[tuple[int, int]]
    ranges_from: int


class DeadLettersAnswer(TypedDict):
    """The dead letters of a topic, and those that no redrive has moved or dropped."""

    records: int
    open: int
    partitions: list[PartitionLettersAnswer]


class OffsetList(TypedDict):
    """Offsets by partition."""

    offsets: list[OffsetAnswer]


class WakeUpPlaceAnswer(TypedDict):
    """Where readers receive wake-ups: the WebSocket to open, the host to sign for, and the WebSocket's Host header.

    `realtime` is null, and the rest is missing, where the stage has no wake-ups.
    """

    realtime: str | None
    host: NotRequired[str]
    realtime_host: NotRequired[str]
    namespace: NotRequired[str]


class TruncatedPartition(TypedDict):
    """A partition's log start offset as it is now, or why it could not be raised."""

    partition: int
    log_start_offset: NotRequired[int]
    error: NotRequired[Error]


class TruncatedPartitions(TypedDict):
    """One result per partition, in request order."""

    partitions: list[TruncatedPartition]


class GrantedLease(TypedDict):
    """A partition that is the member's now: it reads from `offset` (null: nothing was ever committed).

    If it is late, it came after the group had begun to read. Then null means the beginning.
    """

    topic: str
    topic_id: str
    partition: int
    lease_epoch: int
    offset: int | None
    metadata: str
    is_late: bool


class HeartbeatAnswerJson(TypedDict):
    """The answer to a heartbeat. `revoked` and `armed` map topic ids to partitions.

    A member of a group that `is_young` comes after `heartbeat_after_ms`, even if it has nothing to do: others may join.
    """

    epoch: int
    session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: list[GrantedLease]
    revoked: dict[str, list[int]]
    waiting: int
    is_young: bool
    armed: NotRequired[dict[str, list[int]]]


class GroupAnswer(TypedDict):
    """A group and its settings. `epoch` is 0 if no member has ever joined the group.

    `protocol_type` is "consumer", or what the members of a group are whose leader assigns.
    """

    group: str
    epoch: int
    protocol_type: str
    member_count: int
    config: dict[str, Any]
    changed_at_ms: int


class GroupList(TypedDict):
    """One page of groups; the next starts behind `next_after`."""

    groups: list[GroupAnswer]
    next_after: str | None


class GroupMemberAnswer(TypedDict):
    """A member whose session goes on. `epoch` is the newest that it knows, `sequence` that of its newest heartbeat.

    `session_timeout_ms` is what the member asked for, null if the group's setting counts.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    topics: list[str]
    patterns: list[str]
    epoch: int
    session: int
    sequence: int
    joined_at_ms: int
    session_ends_at_ms: int
    session_timeout_ms: int | None


class GroupPartitionAnswer(TypedDict):
    """A partition that a group reads.

    `assigned_to` and `owner` are member ids. They differ while the partition moves. `lag` is null without a commit.
    `oldest_age_ms` is the time since the append of the first record behind `offset`, null if there is none.
    `waits_for` is the partition that the group must read to its end before it reads this one, null if it need not wait.
    """

    topic: str
    topic_id: str
    partition: int
    assigned_to: str | None
    owner: str | None
    lease_epoch: int
    offset: int | None
    metadata: str
    committed_at_ms: int
    log_start_offset: int
    high_watermark: int
    lag: int | None
    oldest_age_ms: int | None
    waits_for: int | None


class GroupDescriptionAnswer(GroupAnswer):
    """A page of a group: first its living members, then its partitions; the next page starts behind `next_after`."""

    members: list[GroupMemberAnswer]
    partitions: list[GroupPartitionAnswer]
    next_after: str | None


class CommitResult(TypedDict):
    """Committed, if there is no error."""

    topic: str
    partition: int
    error: NotRequired[Error]


class CommitResults(TypedDict):
    """One result per offset, in request order."""

    results: list[CommitResult]


class GroupDocumentAnswer(TypedDict):
    """A group's version and its document, in base64; null in a group in which the service assigns."""

    version: int
    protocol_type: str | None
    member_count: int
    document: str | None


class CommittedOffsetJson(TypedDict):
    """The committed offset of one partition. `leader_epoch` is what a Kafka client committed with it, or null."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    metadata: str
    committed_at_ms: int
    leader_epoch: int | None


class CommittedOffsets(TypedDict):
    """One page of a group's commits; the next starts behind `next_after`."""

    offsets: list[CommittedOffsetJson]
    next_after: str | None
