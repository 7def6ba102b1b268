"""The JSON API's requests, from which the OpenAPI document is made: pydantic models, validated strictly."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

from penstock_core import limits
from penstock_core.ids import TOPIC_ID_BYTES
from penstock_core.records.producer_state import SEQUENCE_MAX
from penstock_core.records.record_batch import NO_TIME_MS
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


class RecordContent(JsonRequest):
    """Key, value and headers: `value` or `value_base64` must be there; a null value is a tombstone."""

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: Items[Header] = Field(default_factory=list, max_length=limits.JSON_HEADERS_MAX)


class Record(RecordContent):
    """A record to produce: `value` or `value_base64` must be there; a null value is a tombstone.

    `deliver_at_ms` (milliseconds since 1970) or `delay_ms` (from now) delays the record, by a year at most. With
    `cancellable`, the answer has its `scheduled_id`. `expires_in_ms` counts from now, or from the delivery of a delayed
    record: then share groups and subscriptions finish it without handing it out.
    """

    partition: PartitionNumber | None = None
    timestamp_ms: Annotated[int, Strict(), Field(ge=NO_TIME_MS, le=limits.OFFSET_MAX)] | None = None
    deliver_at_ms: Annotated[int, Field(ge=0, le=limits.TIMER_MS_MAX)] | None = None
    delay_ms: Annotated[int, Field(ge=0, le=limits.TIMER_DELAY_MS_MAX)] | None = None
    expires_in_ms: Annotated[int, Strict(), Field(ge=1, le=limits.EXPIRES_IN_MS_MAX)] | None = None
    cancellable: bool = False


class RecordSequence(JsonRequest):
    """The number of a request's first record in the sequence of its producer; each next record has the next number.

    A repeat of the request stores nothing twice. `producer_id` is drawn at random by the producer.
    """

    producer_id: Number
    epoch: Annotated[int, Field(ge=0, le=limits.PRODUCER_EPOCH_MAX)] = 0
    first_sequence: Annotated[int, Field(ge=0, le=SEQUENCE_MAX)]


class ProduceRecords(JsonRequest):
    """Records for one topic.

    With `sequence`, they go together or not at all: each names the same `partition` and its `timestamp_ms`, none is
    delayed, and they fit into one batch.
    """

    records: Items[Record] = Field(min_length=1, max_length=limits.JSON_RECORDS_MAX)
    sequence: RecordSequence | None = None


class CreateTopic(JsonRequest):
    """A topic to create."""

    name: str
    partitions: int = 1
    config: dict[str, Any] = Field(default_factory=dict)


class AlterTopic(JsonRequest):
    """Changes to a topic. A setting that you leave out stays. `partitions` is the number that take new records."""

    partitions: int | None = None
    config: dict[str, Any] = Field(default_factory=dict)


class Subscribed(JsonRequest):
    """The topics that a member reads, by name and by pattern. `*` in a pattern stands for any characters."""

    topics: Items[str] = Field(default_factory=list, max_length=limits.SUBSCRIPTION_NAMES_MAX)
    patterns: Items[str] = Field(default_factory=list, max_length=limits.SUBSCRIPTION_NAMES_MAX)


class WatchedPartition(JsonRequest):
    """A partition where a member sleeps until a wake-up, and the offset that it reads next."""

    topic_id: TopicIdText
    partition: PartitionNumber
    offset: Number


class HeartbeatJson(JsonRequest):
    """The heartbeat of a member.

    `session` is the one that the answer to its join had, and 0 to join. `owned` maps topic ids to the partitions that
    the member holds. With `watched`, the answer's `armed` says on which of these partitions the member may sleep on.
    A member that wants another session time-out than the group's names it in each heartbeat. `looks_at_topics` lets
    the group look for new topics and partitions at once.
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
    watched: Items[WatchedPartition] = Field(default_factory=list, max_length=limits.REQUEST_PARTITIONS_MAX)
    session_timeout_ms: (
        Annotated[int, Field(ge=limits.SESSION_TIMEOUT_MS_MIN, le=limits.SESSION_TIMEOUT_MS_MAX)] | None
    ) = None
    looks_at_topics: bool = False


class SeenCommitJson(JsonRequest):
    """A commit as an answer showed it."""

    offset: Number
    committed_at_ms: Number


class CommitOffset(JsonRequest):
    """The offset a group reads next in one partition; `lease_epoch` is for members.

    The offset may be below the committed one only if `back_from` is the group's last commit. With `topic_id` the offset
    counts only for that topic, and not for a topic that was made anew under its name. `leader_epoch` is kept with it.
    """

    topic: str
    partition: PartitionNumber
    offset: Number
    metadata: str = ""
    lease_epoch: Number | None = None
    back_from: SeenCommitJson | None = None
    topic_id: str | None = None
    leader_epoch: Annotated[int, Field(ge=0, le=limits.LEADER_EPOCH_MAX)] | None = None


class CommitOffsets(JsonRequest):
    """Offsets to commit: by a member for its partitions, or by any client for partitions that no member owns."""

    member_id: str | None = None
    instance_id: str | None = None
    offsets: Items[CommitOffset] = Field(min_length=1, max_length=limits.COMMIT_OFFSETS_MAX)


class PutGroupDocument(JsonRequest):
    """A group's document, in base64, in place of the one of `version`; null makes the group."""

    version: Number | None
    protocol_type: str = Field(min_length=1, max_length=limits.PROTOCOL_TYPE_LENGTH_MAX)
    member_count: Number = Field(le=limits.GROUP_MEMBERS_MAX)
    document: str = Field(max_length=(limits.GROUP_DOCUMENT_BYTES_MAX + 2) // 3 * 4)


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


class DeleteOffsets(JsonRequest):
    """The offsets of a group in a topic that are to go: of these partitions, or all."""

    topic: str
    partitions: list[PartitionNumber] | None = Field(default=None, max_length=limits.TOPIC_PARTITIONS_MAX)


class PutShareGroup(JsonRequest):
    """A share group to create, or changes to one. What you leave out stays; null sets a setting back to its default."""

    topics: list[str] | None = Field(default=None, min_length=1, max_length=limits.SHARE_TOPICS_MAX)
    config: dict[str, Any] = Field(default_factory=dict)


class ShareResetPlace(JsonRequest):
    """A place in the log: an offset, or the first record at or after a time. Give exactly one."""

    offset: Number | None = None
    timestamp_ms: Number | None = None


class ResetShareGroup(JsonRequest):
    """The place at which a share group goes on in a topic."""

    topic: str
    partitions: list[PartitionNumber] | None = Field(default=None, min_length=1, max_length=limits.TOPIC_PARTITIONS_MAX)
    to: Literal["earliest", "latest"] | ShareResetPlace
    dry_run: bool = False


class MoveZone(JsonRequest):
    """The state into which an operator moves a zone."""

    state: Literal["taken_out", "catching_up"]
    reason: str = Field(default="", max_length=REASON_LENGTH_MAX)
