"""Keys in DynamoDB and S3: built here, and nowhere else.

| table  | pk                      | sk                                     |
|--------|-------------------------|----------------------------------------|
| topics | topic name              | `topic`                                |
| topics | `#deleted`              | topic id                               |
| topics | `#zones`                | `states`, `catch_up`                   |
| topics | `#cursors`              | name of a scheduled job                |
| log    | `<topic id>#<partition>`| `head`, `page#<end offset, 20 digits>`, `producer#<id, base64>` |
| log    | `<topic id>#<partition>`| `compaction`, `retired#<ms>#<end offset>`, `sequences#<end offset>#<ms>` |
| log    | `#transactional#<id>`   | `producer`, `stage#<epoch>#<transaction>#<n>` |
| groups | group name              | `group`, `member#<member name>`        |
| groups | group name              | `target#<epoch>#<target id>#<chunk>`   |
| groups | group name              | `lease#<topic id>#<partition>`         |
| groups | `#groups`               | group name                             |

A topic or group name has no `#`, so what begins with it meets none. Twenty digits hold every offset and sort as
numbers do. S3: `<2 hex>/<yyyy-mm-dd-hh>/<segment id, 32 hex>`; the two digits come from the id's random part and
spread the load over S3's prefixes, the hour from its time part, so the key follows from the segment id alone.
"""

import base64
import re
from datetime import UTC, datetime
from typing import NamedTuple

from penstock_core.ids import MemberName, Offset, Partition, SegmentId, TopicId, TransactionalId, segment_time_ms

HEAD = "head"
TOPIC = "topic"
DELETED = "#deleted"
ZONES = "#zones"
ZONE_STATES = "states"
CATCH_UP = "catch_up"
CURSORS = "#cursors"
PAGE_LAST = "page#~"
COMPACTION = "compaction"
RETIRED_PREFIX = "retired#"
SEQUENCES_PREFIX = "sequences#"
TRANSACTIONAL_PREFIX = "#transactional#"
TRANSACTIONAL_PRODUCER = "producer"
LEASE_PREFIX = "lease#"
GROUPS = "#groups"
GROUP = "group"
MEMBER_PREFIX = "member#"
TARGET_PREFIX = "target#"
SEGMENT_PREFIXES = 256

_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}", re.ASCII)


class PartitionKey(NamedTuple):
    """A partition of a topic by id: what the log table is keyed by."""

    topic_id: TopicId
    partition: Partition

    def __str__(self) -> str:
        return f"{self.topic_id}#{self.partition}"


def parse_partition_key(text: str) -> PartitionKey:
    """The inverse of `str(key)`. Raises ValueError."""
    topic_id, partition = text.split("#")
    return PartitionKey(TopicId(topic_id), Partition(int(partition)))


def page_key(end_offset: Offset | int) -> str:
    """Sort key of the page that ends before `end_offset`."""
    return f"page#{end_offset:020d}"


def producer_name(producer_id: int) -> str:
    """The producer's id in 11 letters, as the head's map names it: URL-safe base64 of its 8 bytes."""
    return base64.urlsafe_b64encode(producer_id.to_bytes(8, "big")).decode().rstrip("=")


def parse_producer_name(text: str) -> int:
    """The inverse of `producer_name`."""
    return int.from_bytes(base64.urlsafe_b64decode(text + "="), "big")


def producer_key(producer_id: int) -> str:
    """Sort key of a producer that has left the head."""
    return f"producer#{producer_name(producer_id)}"


def retired_key(swapped_ms: int, end_offset: Offset | int) -> str:
    """Sort key of what a swap of pages that ended there has retired."""
    return f"{RETIRED_PREFIX}{swapped_ms:015d}#{end_offset:020d}"


def sequences_key(end_offset: Offset | int, swapped_ms: int) -> str:
    """Sort key of the producers' sequences that a swap has merged."""
    return f"{SEQUENCES_PREFIX}{end_offset:020d}#{swapped_ms:015d}"


def transactional_key(transactional_id: TransactionalId) -> str:
    """Partition key of a transactional producer's items. No topic id has a `#`."""
    return f"{TRANSACTIONAL_PREFIX}{transactional_id}"


def stage_prefix(epoch: int, number: int) -> str:
    """What the sort keys of a transaction's stages begin with."""
    return f"stage#{epoch:05d}#{number:020d}#"


def lease_key(key: PartitionKey) -> str:
    """Sort key of a group's lease, with its committed offset, on one partition."""
    return f"{LEASE_PREFIX}{key}"


def parse_lease_key(text: str) -> PartitionKey:
    """The inverse of `lease_key`."""
    topic_id, partition = text.removeprefix(LEASE_PREFIX).split("#")
    return PartitionKey(TopicId(topic_id), Partition(int(partition)))


def member_key(name: MemberName) -> str:
    """Sort key of a member in its group."""
    return f"{MEMBER_PREFIX}{name}"


def target_prefix(epoch: int) -> str:
    """What the sort keys of all target assignments of a group epoch begin with, and none of an earlier one is above."""
    return f"{TARGET_PREFIX}{epoch:010d}#"


def target_key(epoch: int, target_id: str, chunk: int) -> str:
    """Sort key of one chunk of a target assignment."""
    return f"{target_prefix(epoch)}{target_id}#{chunk:03d}"


def segment_key(segment_id: SegmentId) -> str:
    """The segment's object key, the same in every zone."""
    hour = datetime.fromtimestamp(segment_time_ms(segment_id) / 1000, UTC).strftime("%Y-%m-%d-%H")
    return f"{segment_prefix(prefix_number(segment_id))}{hour}/{segment_id.hex()}"


def segment_prefix(number: int) -> str:
    """The `number`th of the `SEGMENT_PREFIXES` prefixes that all segments' keys together have."""
    return f"{number:02x}/"


def prefix_number(segment_id: SegmentId) -> int:
    """Which of the prefixes the segment's key has."""
    return segment_id[-1]


def parse_segment_key(key: str) -> SegmentId | None:
    """The segment whose key this is, letter for letter; None for every other key."""
    name = key.rpartition("/")[2]
    if not _SEGMENT_NAME.fullmatch(name):
        return None
    segment_id = SegmentId(bytes.fromhex(name))
    try:
        return segment_id if segment_key(segment_id) == key else None
    except (ValueError, OverflowError):  # a time beyond the year 9999: none of ours
        return None
