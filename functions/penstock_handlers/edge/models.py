"""The JSON API's requests and answers, from which the OpenAPI document is made.

Requests are pydantic models, validated strictly. Answers are typed dicts, so that a missing field is not sent.
"""

from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict
from typing_extensions import TypedDict

from penstock_core import limits
from penstock_core.ids import TOPIC_ID_BYTES
from penstock_core.zones.zone_state import REASON_LENGTH_MAX

Number = Annotated[int, Strict(), Field(ge=0, le=limits.OFFSET_MAX)]
TopicIdText = Annotated[str, Field(max_length=2 * TOPIC_ID_BYTES)]
PartitionNumber = Annotated[int, Field(ge=0, lt=limits.TOPIC_PARTITIONS_MAX)]

# An array whose first mistake ends its validation: each mistake costs an explanation, and a request may have millions.
Item = TypeVar("Item")
Items = Annotated[list[Item], Field(fail_fast=True)]


class JsonRequest(BaseModel):
    """Strict: no text for a number, no unknown field."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def __repr__(self) -> str:
        """The kind alone: Powertools formats each request for its debug log, also while that log is off."""
        return f"{type(self).__name__}(…)"


class Base64(JsonRequest):
    """Bytes that are not UTF-8."""

    base64: str


# JSON has arrays where Python has tuples; what is in them stays strict.
Header = Annotated[tuple[str, str | Base64 | None], Strict(False)]


class Record(JsonRequest):
    """A record to produce: `value` or `value_base64` must be there; a null value is a tombstone."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: Items[Header] = Field(default_factory=list, max_length=limits.JSON_HEADERS_MAX)
    partition: PartitionNumber | None = None
    timestamp_ms: Number | None = None


class ProduceRecords(JsonRequest):
    """Records for one topic."""

    records: Items[Record] = Field(min_length=1, max_length=limits.JSON_RECORDS_MAX)


class CreateTopic(JsonRequest):
    """A topic to create."""

    name: str
    partitions: int = 1
    config: dict[str, Any] = Field(default_factory=dict)


class AlterTopic(JsonRequest):
    """Changes to a topic. A setting that you leave out stays."""

    partitions: int | None = None
    config: dict[str, Any] = Field(default_factory=dict)


class Subscribed(JsonRequest):
    """The topics that a member reads, by name and by pattern. `*` in a pattern stands for any characters."""

    topics: Items[str] = Field(default_factory=list, max_length=limits.SUBSCRIPTION_NAMES_MAX)
    patterns: Items[str] = Field(default_factory=list, max_length=limits.SUBSCRIPTION_NAMES_MAX)


class HeartbeatJson(JsonRequest):
    """The heartbeat of a member.

    `session` is the one that the answer to its join had, and 0 to join. `owned` maps topic ids to the partitions that
    the member holds.
    """

    member_id: str
    sequence: Annotated[int, Field(ge=1, le=limits.OFFSET_MAX)]
    epoch: Number
    session: Number = 0
    instance_id: str | None = None
    client_id: str = Field(default="", max_length=limits.CLIENT_ID_LENGTH_MAX)
    subscription: Subscribed | None = None
    owned: (
        dict[TopicIdText, Annotated[Items[PartitionNumber], Field(max_length=limits.TOPIC_PARTITIONS_MAX)]] | None
    ) = None
    config: dict[str, Any] = Field(default_factory=dict)
    leave: bool = False


class SeenCommitJson(JsonRequest):
    """A commit as an answer showed it."""

    offset: Number
    committed_at_ms: Number


class CommitOffset(JsonRequest):
    """The offset a group reads next in one partition; `lease_epoch` is for members.

    The offset may be below the committed one only if `back_from` is the group's last commit. With `topic_id` the offset
    counts only for that topic, and not for a topic that was made anew under its name.
    """

    topic: str
    partition: PartitionNumber
    offset: Number
    metadata: str = ""
    lease_epoch: Number | None = None
    back_from: SeenCommitJson | None = None
    topic_id: str | None = None


class CommitOffsets(JsonRequest):
    """Offsets to commit: by a member for its partitions, or by any client for partitions that no member owns."""

    member_id: str | None = None
    instance_id: str | None = None
    offsets: Items[CommitOffset] = Field(min_length=1, max_length=limits.COMMIT_OFFSETS_MAX)


class AlterGroup(JsonRequest):
    """Changes to a group's settings. A setting that you leave out stays; null sets it back to its default."""

    config: dict[str, Any] = Field(default_factory=dict)


class ResetOffsets(JsonRequest):
    """A reset of a group's offsets in a topic. Give exactly one of `to`, `timestamp_ms`, `shift_by` and `offsets`."""

    topic: str
    partitions: list[PartitionNumber] | None = Field(default=None, max_length=limits.TOPIC_PARTITIONS_MAX)
    to: Literal["earliest", "latest"] | None = None
    timestamp_ms: Number | None = None
    shift_by: Annotated[int, Field(ge=-limits.OFFSET_MAX, le=limits.OFFSET_MAX)] | None = None
    offsets: dict[str, Number] | None = Field(default=None, max_length=limits.TOPIC_PARTITIONS_MAX)
    dry_run: bool = False
    force: bool = False


class MoveZone(JsonRequest):
    """The state into which an operator moves a zone."""

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
    """An error: its code and message, and further facts if they help."""

    code: str
    message: str
    maybe_applied: bool
    limit: NotRequired[int]
    lease_epoch: NotRequired[int]
    committed_offset: NotRequired[int]
    committed_at_ms: NotRequired[int]
    topic_id: NotRequired[str]
    log_start_offset: NotRequired[int]
    high_watermark: NotRequired[int]


class ErrorAnswer(TypedDict):
    """The body of every answer that is not a success."""

    error: Error


class ProducedOffset(TypedDict):
    """The offset of a record, or the error that refused it."""

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
    """Records from the offset asked for, of the topic with this id; go on at `next_offset`."""

    topic_id: str
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
    """`offset` is null where no record is at or after the time; `timestamp_ms` where the search stopped at a batch.

    `topic_id` is the topic that the offset belongs to.
    """

    topic_id: str
    partition: int
    offset: int | None
    timestamp_ms: int | None


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
    """The answer to a heartbeat. `revoked` maps topic ids to partitions."""

    epoch: int
    session: int
    heartbeat_after_ms: int
    session_timeout_ms: int
    is_complete: bool
    granted: list[GrantedLease]
    revoked: dict[str, list[int]]
    waiting: int


class GroupAnswer(TypedDict):
    """A group and its settings. `epoch` is 0 if no member has ever joined the group."""

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
    """A partition that a group reads.

    `assigned_to` and `owner` are member ids. They differ while the partition moves. `lag` is null without a commit.
    """

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
    """A page of a group: first its living members, then its partitions; the next page starts behind `next_after`."""

    members: list[GroupMemberAnswer]
    partitions: list[GroupPartitionAnswer]
    next_after: str | None


class ResetResult(TypedDict):
    """A partition's offset before and after the reset, or the error that refused it."""

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


class CommittedOffsetJson(TypedDict):
    """The committed offset of one partition."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    metadata: str
    committed_at_ms: int


class CommittedOffsets(TypedDict):
    """One page of a group's commits; the next starts behind `next_after`."""

    offsets: list[CommittedOffsetJson]
    next_after: str | None
