"""The JSON API's requests and answers, from which the OpenAPI document is made.

Requests are pydantic models, validated strictly; answers are typed dicts, so that what is not there is not sent.
"""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, Strict
from typing_extensions import TypedDict

from penstock_core import limits
from penstock_core.zone_state import REASON_LENGTH_MAX

Number = Annotated[int, Strict(), Field(ge=0, le=limits.OFFSET_MAX)]
PartitionNumber = Annotated[int, Field(ge=0, lt=limits.TOPIC_PARTITIONS_MAX)]


class Request(BaseModel):
    """Strict: no text for a number, no unknown field."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Base64(Request):
    """Bytes that are not UTF-8."""

    base64: str


# JSON has arrays where Python has tuples; what is in them stays strict.
Header = Annotated[tuple[str, str | Base64 | None], Strict(False)]


class Record(Request):
    """A record to produce: `value` or `value_base64` must be there; a null value is a tombstone."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: list[Header] = Field(default_factory=list)
    partition: PartitionNumber | None = None
    timestamp_ms: Number | None = None


class ProduceRecords(Request):
    """Records for one topic."""

    records: list[Record] = Field(min_length=1, max_length=limits.JSON_RECORDS_MAX)


class CreateTopic(Request):
    """A topic to create."""

    name: str
    partitions: int = 1
    config: dict[str, Any] = Field(default_factory=dict)


class AlterTopic(Request):
    """Changes to a topic; what is not named stays."""

    partitions: int | None = None
    config: dict[str, Any] = Field(default_factory=dict)


class Subscribed(Request):
    """What a member reads: topics by name, and patterns, in which `*` stands for any characters."""

    topics: list[str] = Field(default_factory=list)
    patterns: list[str] = Field(default_factory=list)


class Heartbeat(Request):
    """What a member of a group says. `session`: as the answer to its join has it, 0 to join. `owned`: topic ids to the
    partitions that it holds."""

    member_id: str
    sequence: Annotated[int, Field(ge=1, le=limits.OFFSET_MAX)]
    epoch: Number
    session: Number = 0
    instance_id: str | None = None
    client_id: str = Field(default="", max_length=limits.CLIENT_ID_LENGTH_MAX)
    subscription: Subscribed | None = None
    owned: dict[str, list[PartitionNumber]] | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    leave: bool = False


class CommitOffset(Request):
    """The offset a group reads next in one partition; `lease_epoch` and `may_go_back` are for members."""

    topic: str
    partition: PartitionNumber
    offset: Number
    metadata: str = ""
    lease_epoch: Number | None = None
    may_go_back: bool = False


class CommitOffsets(Request):
    """Offsets to commit, by a member of the group or, where none owns the partition, by anybody."""

    member_id: str | None = None
    instance_id: str | None = None
    offsets: list[CommitOffset] = Field(min_length=1, max_length=limits.COMMIT_OFFSETS_MAX)


class AlterGroup(Request):
    """Changes to a group's settings; what is not named stays, null sets a setting back to its default."""

    config: dict[str, Any] = Field(default_factory=dict)


class ResetOffsets(Request):
    """Where to reset a topic's offsets to: exactly one of `to`, `timestamp_ms`, `shift_by` and `offsets`."""

    topic: str
    partitions: list[PartitionNumber] | None = Field(default=None, max_length=limits.TOPIC_PARTITIONS_MAX)
    to: Literal["earliest", "latest"] | None = None
    timestamp_ms: Number | None = None
    shift_by: Annotated[int, Field(ge=-limits.OFFSET_MAX, le=limits.OFFSET_MAX)] | None = None
    offsets: dict[str, Number] | None = Field(default=None, max_length=limits.TOPIC_PARTITIONS_MAX)
    dry_run: bool = False
    force: bool = False


class MoveZone(Request):
    """Where an operator moves a zone."""

    state: Literal["taken_out", "catching_up"]
    reason: str = Field(default="", max_length=REASON_LENGTH_MAX)


class ZoneAnswer(TypedDict):
    """A zone and its state; `since_ms` is 0 for one that has always been in sync."""

    zone: str
    state: str
    version: int
    since_ms: int
    reason: str


class ZoneList(TypedDict):
    """All zones, in configured order."""

    zones: list[ZoneAnswer]


class Error(TypedDict):
    """What went wrong, and further facts where they help."""

    code: str
    message: str
    maybe_applied: bool
    limit: NotRequired[int]
    lease_epoch: NotRequired[int]
    committed_offset: NotRequired[int]
    log_start_offset: NotRequired[int]
    high_watermark: NotRequired[int]


class ErrorAnswer(TypedDict):
    """The body of every answer that is not a success."""

    error: Error


class ProducedOffset(TypedDict):
    """Where a record went, or why it did not."""

    partition: int
    offset: NotRequired[int]
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
    """Records from the offset asked for; go on at `next_offset`."""

    records: list[FetchedRecord]
    next_offset: int
    high_watermark: int
    log_start_offset: int


class TopicAnswer(TypedDict):
    """A topic."""

    name: str
    topic_id: str
    partitions: int
    config: dict[str, Any]
    created_at_ms: int


class TopicList(TypedDict):
    """One page of topics; the next starts behind `next_after`."""

    topics: list[TopicAnswer]
    next_after: str | None


class PartitionBounds(TypedDict):
    """A partition holds the offsets `[log_start_offset, high_watermark)`."""

    partition: int
    log_start_offset: int
    high_watermark: int


class TopicDescription(TopicAnswer):
    """A topic and the bounds of its partitions."""

    offsets: list[PartitionBounds]


class OffsetAnswer(TypedDict):
    """`offset` is null where no record is at or after the time."""

    partition: int
    offset: int | None
    timestamp_ms: int | None


class OffsetList(TypedDict):
    """Offsets by partition."""

    offsets: list[OffsetAnswer]


class TruncatedPartition(TypedDict):
    """A partition's log start offset as it is now, or why it could not be raised."""

    partition: int
    log_start_offset: NotRequired[int]
    error: NotRequired[Error]


class TruncatedPartitions(TypedDict):
    """One result per partition, in request order."""

    partitions: list[TruncatedPartition]


class GrantedLease(TypedDict):
    """A partition that is the member's now: it reads from `offset` (null: nothing was ever committed)."""

    topic: str
    topic_id: str
    partition: int
    lease_epoch: int
    offset: int | None
    metadata: str


class HeartbeatAnswer(TypedDict):
    """What the member is told. `revoked`: topic ids to partitions."""

    epoch: int
    session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: list[GrantedLease]
    revoked: dict[str, list[int]]
    waiting: int


class GroupAnswer(TypedDict):
    """A group and its settings. A group that nobody has joined has `epoch` 0."""

    group: str
    epoch: int
    member_count: int
    config: dict[str, Any]
    changed_at_ms: int


class GroupList(TypedDict):
    """One page of groups; the next starts behind `next_after`."""

    groups: list[GroupAnswer]
    next_after: str | None


class GroupMemberAnswer(TypedDict):
    """A member whose session goes on. `epoch` is the newest that it knows."""

    member_id: str
    instance_id: str | None
    client_id: str
    topics: list[str]
    patterns: list[str]
    epoch: int
    joined_at_ms: int
    session_ends_at_ms: int


class GroupPartitionAnswer(TypedDict):
    """`assigned_to` and `owner` are member ids, and differ while the partition moves; `lag` is null without a
    commit."""

    topic: str
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


class GroupDescriptionAnswer(GroupAnswer):
    """A group, its living members, and its partitions by topic and number."""

    members: list[GroupMemberAnswer]
    partitions: list[GroupPartitionAnswer]


class ResetResult(TypedDict):
    """What a partition's offset was and is now, or why it was not reset."""

    partition: int
    old_offset: NotRequired[int | None]
    new_offset: NotRequired[int]
    error: NotRequired[Error]


class ResetResults(TypedDict):
    """One result per partition."""

    partitions: list[ResetResult]


class CommitResult(TypedDict):
    """Committed, if there is no error."""

    topic: str
    partition: int
    error: NotRequired[Error]


class CommitResults(TypedDict):
    """One result per offset, in request order."""

    results: list[CommitResult]


class CommittedOffset(TypedDict):
    """What the group has committed for one partition."""

    topic: str
    partition: int
    offset: int
    metadata: str
    committed_at_ms: int


class CommittedOffsets(TypedDict):
    """A group's commits, sorted by topic and partition."""

    offsets: list[CommittedOffset]
