"""Keys in DynamoDB and S3: the table of them all, and the builders that several items share.

| table  | pk                       | sk                                                | item                        |
|--------|--------------------------|---------------------------------------------------|-----------------------------|
| topics | topic name               | `topic`                                           | topic_item                  |
| topics | `#deleted`               | topic id                                          | deleted_topic_item          |
| topics | `#zones`                 | `states`                                          | zone_states_item            |
| topics | `#zones`                 | `catch_up`                                        | catch_up_item               |
| topics | `#cursors`               | name of a scheduled job                           | cursor_item                 |
| topics | `#acls`                  | `rules`                                           | acls_item                   |
| topics | `#acls`                  | `mark`                                            | acls_item                   |
| topics | `#audit`                 | id of a change                                    | audit_item                  |
| groups | `#quotas`                | `<subject>#<name>`                                | quota_item                  |
| groups | `#bucket#<subject>#<id>` | name of a rate                                    | bucket_item                 |
| groups | `#claims#<principal>`    | `<kind>#<name>`                                   | claim_item                  |
| log    | `<topic id>#<partition>` | `head`                                            | head_item                   |
| log    | `<topic id>#<partition>` | `page#<end offset, 20 digits>`                    | page_item                   |
| log    | `<topic id>#<partition>` | `producer#<id, base64>`                           | producer_item               |
| log    | `<topic id>#<partition>` | `compaction`                                      | compaction_item             |
| log    | `<topic id>#<partition>` | `retired#<ms>#<end offset>`                       | retired_item                |
| log    | `<topic id>#<partition>` | `sequences#<end offset>#<ms>`                     | merged_sequences_item       |
| log    | `<topic id>#0`           | `mirrored_offsets`                                | mirrored_offsets_item       |
| log    | `<id>#<n>#timers#<s>`    | `timer#<due ms, 15 digits>#<id, 32 hex>`          | timer_item                  |
| log    | `<id>#<n>#told`          | `told#<segment id, 32 hex>#<position>`            | timer_item                  |
| log    | `#timers#<shard>`        | `<minute, 10 digits>#<topic id>#<partition>`      | due_minute_item             |
| log    | `#timers`                | `switch`                                          | timers_switch_item          |
| log    | `#inline#<hex digit>`    | `<2 hex>/<segment id, 32 hex>`                    | inline_item                 |
| log    | `#ttl#<id, base64>`      | `s`                                               | expiring_item               |
| log    | `#transactional#<id>`    | `producer`                                        | transactional_producer_item |
| log    | `#transactional#<id>`    | `stage#<epoch>#<transaction>:<nonce>#<stage>`     | transaction_stage_item      |
| groups | group name               | `group`                                           | group_item                  |
| groups | group name               | `member#<member name>`                            | member_item                 |
| groups | group name               | `target#<epoch>#<target id>#<chunk>`              | target_item                 |
| groups | group name               | `lease#<topic id>#<partition>`                    | lease_item                  |
| groups | `#groups`                | group name                                        | group_item                  |
| groups | `#share_groups`          | share group name                                  | share_group_item            |
| groups | `share#<id>#<partition>` | `state`                                           | share_state_item            |
| groups | `#subscriptions`         | subscription name                                 | subscription_item           |
| groups | `#subscriptions#<id>`    | subscription name                                 | subscription_note_item      |
| groups | `#orphaned_states`       | subscription id                                   | subscription_note_item      |
| groups | `#schedules`             | schedule name                                     | schedule_item               |
| groups | `push#<id>`              | `lane#<number>`                                   | lane_item                   |
| groups | `push#<id>`              | `delivery#<topic id>#<partition>`                 | delivery_item               |

The name of a topic or group has no `#`, so no such name equals a key that has one. `<id>` is a share group's or
subscription's id, or a topic's with `<n>` for its partition and `<s>` for the timer's shard.

S3: the key follows from the segment id and the bucket's `KeyLayout` alone (docs/adr/0037).

| layout    | key                                            | where                                                |
|-----------|------------------------------------------------|------------------------------------------------------|
| `SPREAD`  | `<2 hex>/<yyyy-mm-dd-hh>/<segment id, 32 hex>` | ordinary buckets: load spreads over S3's prefixes    |
| `BY_HOUR` | `<yyyy-mm-dd-hh>/<segment id, 32 hex>`         | directory buckets, which list by whole folders only  |

The two digits come from the id's random part, and the hour from its time part. A *folder* is what comes before the
first slash.
"""

import base64
import re
from datetime import UTC, datetime
from enum import Enum

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
ACLS = "#acls"
ACL_RULES = "rules"
ACL_MARK = "mark"
ACL_OWNERS = "owners"
AUDIT = "#audit"
QUOTAS = "#quotas"
BUCKET = "#bucket"
CLAIMS = "#claims"
COMPACTION = "compaction"
MIRRORED_OFFSETS = "mirrored_offsets"
TIMERS = "#timers"
TOLD = "#told"
TRANSACTIONAL_PREFIX = "#transactional#"
TRANSACTIONAL_PRODUCER = "producer"
GROUPS = "#groups"
GROUP = "group"
SHARE_GROUPS = "#share_groups"
SHARE_PREFIX = "share#"
SHARE_STATE = "state"
SUBSCRIPTIONS = "#subscriptions"
SUBSCRIPTIONS_OF = "#subscriptions#"
ORPHANED_STATES = "#orphaned_states"
SCHEDULES = "#schedules"
PUSH_PREFIX = "push#"
LANE_PREFIX = "lane#"
DELIVERY_PREFIX = "delivery#"
INLINE_PREFIX = "#inline#"
EXPIRING_PREFIX = "#ttl#"
EXPIRING = "s"
HOUR_MS = 3_600_000

_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SPREAD_FOLDER = re.compile(r"[0-9a-f]{2}/", re.ASCII)
_HOUR_FOLDER = re.compile(r"[0-9]{4}(-[0-9]{2}){3}/", re.ASCII)
_HOUR_FORMAT = "%Y-%m-%d-%H"


def producer_name(producer_id: int) -> str:
    """The producer's id in 11 letters: URL-safe base64 of its 8 bytes."""
    return base64.urlsafe_b64encode(producer_id.to_bytes(8, "big")).decode().rstrip("=")


def parse_producer_name(text: str) -> int:
    """The inverse of `producer_name`."""
    return int.from_bytes(base64.urlsafe_b64decode(text + "="), "big")


def transactional_key(transactional_id: TransactionalId) -> str:
    """Partition key of a transactional producer's items. No topic id begins with `#`."""
    return f"{TRANSACTIONAL_PREFIX}{transactional_id}"


def inline_shard(folder: str) -> str:
    """Partition key of the inline segments of a folder (`KeyLayout.SPREAD`): one of 16, by its first digit."""
    return f"{INLINE_PREFIX}{folder[0]}"


class KeyLayout(Enum):
    """How a bucket's keys begin: see the module's table. The values are in stored cursors."""

    SPREAD = "spread"
    BY_HOUR = "hour"


def segment_key(segment_id: SegmentId, layout: KeyLayout = KeyLayout.SPREAD) -> str:
    """The segment's object key."""
    folder = segment_folder(segment_id, layout)
    if layout is KeyLayout.BY_HOUR:
        return f"{folder}{segment_id.hex()}"
    return f"{folder}{_hour(segment_time_ms(segment_id))}/{segment_id.hex()}"


def segment_folder(segment_id: SegmentId, layout: KeyLayout) -> str:
    """The part of the key up to its first slash, which is part of it."""
    return folder_name(layout, folder_number(segment_id, layout))


def folder_number(segment_id: SegmentId, layout: KeyLayout) -> int:
    """A number for each folder, in the order of the folders: the hour since 1970, or the two digits."""
    return segment_time_ms(segment_id) // HOUR_MS if layout is KeyLayout.BY_HOUR else segment_id[-1]


def folder_name(layout: KeyLayout, number: int) -> str:
    """The folder of that number, with its slash."""
    return f"{_hour(number * HOUR_MS)}/" if layout is KeyLayout.BY_HOUR else f"{number:02x}/"


def parse_folder(folder: str) -> tuple[KeyLayout, int] | None:
    """The layout and the number of the folder, None if no segment's key begins so."""
    if _SPREAD_FOLDER.fullmatch(folder):
        return KeyLayout.SPREAD, int(folder[:2], 16)
    if not _HOUR_FOLDER.fullmatch(folder):
        return None
    try:
        begins = datetime.strptime(folder, f"{_HOUR_FORMAT}/").replace(tzinfo=UTC)
    except ValueError:  # there is no such day or hour
        return None
    return KeyLayout.BY_HOUR, int(begins.timestamp()) * 1_000 // HOUR_MS


def parse_segment_key(key: str, layout: KeyLayout = KeyLayout.SPREAD) -> SegmentId | None:
    """The segment that has exactly this key; None for every other key."""
    name = key.rpartition("/")[2]
    if not _SEGMENT_NAME.fullmatch(name):
        return None
    segment_id = SegmentId(bytes.fromhex(name))
    try:
        return segment_id if segment_key(segment_id, layout) == key else None
    except (ValueError, OverflowError):  # a time beyond the year 9999: no segment has it
        return None


def _hour(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(_HOUR_FORMAT)
