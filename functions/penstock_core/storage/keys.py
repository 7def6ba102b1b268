"""Keys in DynamoDB and S3: the table of them all, and the builders that several items share.

| table  | pk                       | sk                                                | item                        |
|--------|--------------------------|---------------------------------------------------|-----------------------------|
| topics | topic name               | `topic`                                           | topic_item                  |
| topics | `#deleted`               | topic id                                          | deleted_topic_item          |
| topics | `#zones`                 | `states`                                          | zone_states_item            |
| topics | `#zones`                 | `catch_up`                                        | catch_up_item               |
| topics | `#cursors`               | name of a scheduled job                           | cursor_item                 |
| log    | `<topic id>#<partition>` | `head`                                            | head_item                   |
| log    | `<topic id>#<partition>` | `page#<end offset, 20 digits>`                    | page_item                   |
| log    | `<topic id>#<partition>` | `producer#<id, base64>`                           | producer_item               |
| log    | `<topic id>#<partition>` | `compaction`                                      | compaction_item             |
| log    | `<topic id>#<partition>` | `retired#<ms>#<end offset>`                       | retired_item                |
| log    | `<topic id>#<partition>` | `sequences#<end offset>#<ms>`                     | merged_sequences_item       |
| log    | `#transactional#<id>`    | `producer`                                        | transactional_producer_item |
| log    | `#transactional#<id>`    | `stage#<epoch>#<transaction>#<stage>`             | transaction_stage_item      |
| groups | group name               | `group`                                           | group_item                  |
| groups | group name               | `member#<member name>`                            | member_item                 |
| groups | group name               | `target#<epoch>#<target id>#<chunk>`              | target_item                 |
| groups | group name               | `lease#<topic id>#<partition>`                    | lease_item                  |
| groups | `#groups`                | group name                                        | group_item                  |

The name of a topic or group has no `#`, so no such name equals a key that begins with `#`.

S3: `<2 hex>/<yyyy-mm-dd-hh>/<segment id, 32 hex>`. The key follows from the segment id alone. The two digits come from
the id's random part and spread the load over S3's prefixes; the hour comes from its time part.
"""

import base64
import re
from datetime import UTC, datetime

from penstock_core.ids import (
    SegmentId,
    TransactionalId,
    segment_time_ms,
)

HEAD = "head"
TOPIC = "topic"
DELETED = "#deleted"
ZONES = "#zones"
ZONE_STATES = "states"
CATCH_UP = "catch_up"
CURSORS = "#cursors"
COMPACTION = "compaction"
TRANSACTIONAL_PREFIX = "#transactional#"
TRANSACTIONAL_PRODUCER = "producer"
GROUPS = "#groups"
GROUP = "group"
SEGMENT_PREFIXES = 256

_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}", re.ASCII)


def producer_name(producer_id: int) -> str:
    """The producer's id in 11 letters: URL-safe base64 of its 8 bytes."""
    return base64.urlsafe_b64encode(producer_id.to_bytes(8, "big")).decode().rstrip("=")


def parse_producer_name(text: str) -> int:
    """The inverse of `producer_name`."""
    return int.from_bytes(base64.urlsafe_b64decode(text + "="), "big")


def transactional_key(transactional_id: TransactionalId) -> str:
    """Partition key of a transactional producer's items. No topic id begins with `#`."""
    return f"{TRANSACTIONAL_PREFIX}{transactional_id}"


def segment_key(segment_id: SegmentId) -> str:
    """The segment's object key, the same in every zone."""
    hour = datetime.fromtimestamp(segment_time_ms(segment_id) / 1000, UTC).strftime("%Y-%m-%d-%H")
    return f"{segment_prefix(prefix_number(segment_id))}{hour}/{segment_id.hex()}"


def segment_prefix(number: int) -> str:
    """The prefix of that number, from 0 up to `SEGMENT_PREFIXES`, exclusive."""
    return f"{number:02x}/"


def prefix_number(segment_id: SegmentId) -> int:
    """The number of the prefix that the segment's key has."""
    return segment_id[-1]


def parse_segment_key(key: str) -> SegmentId | None:
    """The segment that has exactly this key; None for every other key."""
    name = key.rpartition("/")[2]
    if not _SEGMENT_NAME.fullmatch(name):
        return None
    segment_id = SegmentId(bytes.fromhex(name))
    try:
        return segment_id if segment_key(segment_id) == key else None
    except (ValueError, OverflowError):  # a time beyond the year 9999: no segment has it
        return None
