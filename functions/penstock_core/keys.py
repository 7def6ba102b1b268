"""Keys in DynamoDB and S3: built here, and nowhere else.

| table  | pk                      | sk                                     |
|--------|-------------------------|----------------------------------------|
| topics | topic name              | `topic`                                |
| topics | `#deleted`              | topic id                               |
| topics | `#zones`                | `states`, `catch_up`                   |
| topics | `#cursors`              | name of a scheduled job                |
| log    | `<topic id>#<partition>`| `head`, `page#<end offset, 20 digits>` |
| groups | group name              | `lease#<topic id>#<partition>`         |

A topic name has no `#`, so `#deleted` and `#zones` meet no topic. Twenty digits hold every offset and sort as numbers
do.
S3: `<2 hex>/<yyyy-mm-dd-hh>/<segment id, 32 hex>`; the two digits come from the id's random part and spread the
load over S3's prefixes, the hour from its time part, so the key follows from the segment id alone.
"""

from datetime import UTC, datetime
from typing import NamedTuple

from penstock_core.ids import Offset, Partition, SegmentId, TopicId, segment_time_ms

HEAD = "head"
TOPIC = "topic"
DELETED = "#deleted"
ZONES = "#zones"
ZONE_STATES = "states"
CATCH_UP = "catch_up"
CURSORS = "#cursors"
PAGE_LAST = "page#~"
LEASE_PREFIX = "lease#"


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


def lease_key(key: PartitionKey) -> str:
    """Sort key of a group's lease, with its committed offset, on one partition."""
    return f"{LEASE_PREFIX}{key}"


def parse_lease_key(text: str) -> PartitionKey:
    """The inverse of `lease_key`."""
    topic_id, partition = text.removeprefix(LEASE_PREFIX).split("#")
    return PartitionKey(TopicId(topic_id), Partition(int(partition)))


def segment_key(segment_id: SegmentId) -> str:
    """The segment's object key, the same in every zone."""
    hour = datetime.fromtimestamp(segment_time_ms(segment_id) / 1000, UTC).strftime("%Y-%m-%d-%H")
    return f"{segment_id[-1]:02x}/{hour}/{segment_id.hex()}"
