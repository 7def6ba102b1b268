"""The item of a page: refs that have left the head.

```
log table   pk "<topic id>#<partition>"   sk "page#<end offset, 20 digits>"
base_offset        N   the offset of the page's first record
refs               B   the refs one behind the other (log/ref.py)
max_timestamp_ms   N   the newest timestamp of everything up to the page's end, -1 for none
rolled_bytes       N   bytes of everything up to the page's end
```
The key has the end of the page's range (docs/adr/0001). So one ascending query from `page_key(offset + 1)` finds the
page that covers an offset, and those behind it.

If compaction merges the page into one with another end, a mark takes the item's place. So no late roll can put the page
again (docs/adr/0019):

```
marks_before       N   how many marks the same merge left right before this one, and right behind it: a query that meets
marks_behind       N   marks asks for so many more items
expires_at_s       N   DynamoDB removes the item some time after it: `MERGE_MARK_KEPT_MS` after the merge
```

The item of an inline segment: one small segment as a whole (docs/adr/0064).

```
log table   pk "#inline#<first digit of the folder>"   sk "<folder, 2 hex>/<segment id, 32 hex>"
body        B   the segment's bytes (log/segment.py)
```
The folder is the one that the segment would have in an ordinary bucket. It comes from the id's random part, so the
items spread over 16 partition keys, and within each of them over the sort keys. An item is never changed.

The item of an expiring segment: the same for a segment that DynamoDB removes. Each has a partition key of its own, and
the sweep never meets one.

```
log table   pk "#ttl#<segment id, 22 letters of base64>"   sk "s"
body           B   the segment's bytes
expires_at_s   N   DynamoDB removes the item some time after it: `kept_until_ms` of its refs
```
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import Offset, PartitionKey, SegmentId, segment_time_ms
from penstock_core.limits import MERGE_MARK_KEPT_MS
from penstock_core.log.index import Page
from penstock_core.log.ref import DAY_MS, decode_refs, encode_refs
from penstock_core.storage.item import Item, number
from penstock_core.storage.keys import EXPIRING, EXPIRING_PREFIX, INLINE_PREFIX, KeyLayout, inline_shard, segment_folder

PAGE_LAST = "page#~"  # behind every page of a partition
_SHARDS: Sequence[str] = tuple(f"{INLINE_PREFIX}{digit}" for digit in "0123456789abcdef")


def page_key(end_offset: Offset | int) -> str:
    """Sort key of the page that ends before `end_offset`. Twenty digits hold every offset and sort as numbers do."""
    return f"page#{end_offset:020d}"


def page_item_key(key: PartitionKey, end_offset: Offset) -> Item:
    """The key of the partition's page that ends before `end_offset`."""
    return {"pk": {"S": str(key)}, "sk": {"S": page_key(end_offset)}}


def page_item(key: PartitionKey, page: Page) -> Item:
    """The whole item, for a PutItem."""
    return {
        **page_item_key(key, page.end_offset),
        "base_offset": number(page.base_offset),
        "refs": {"B": encode_refs(page.refs)},
        "max_timestamp_ms": number(page.max_timestamp_ms),
        "rolled_bytes": number(page.rolled_bytes),
    }


def parse_page(item: Mapping[str, Any]) -> Page:
    """The inverse of `page_item`. Raises CORRUPT_SEGMENT for damaged refs."""
    check_item("page", item)
    return Page(
        base_offset=Offset(int(item["base_offset"]["N"])),
        refs=decode_refs(item["refs"]["B"]),
        max_timestamp_ms=int(item["max_timestamp_ms"]["N"]),
        rolled_bytes=int(item["rolled_bytes"]["N"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeMark:
    """What is left of a merged page: how many marks of the same merge come right before it, and right behind it."""

    marks_before: int
    marks_behind: int


def merge_mark_item(key: PartitionKey, end_offset: Offset, mark: MergeMark, merged_ms: int) -> Item:
    """The mark that takes the place of the page that ended before `end_offset`."""
    return {
        **page_item_key(key, end_offset),
        "marks_before": number(mark.marks_before),
        "marks_behind": number(mark.marks_behind),
        "expires_at_s": number((merged_ms + MERGE_MARK_KEPT_MS) // 1_000),
    }


def parse_merge_mark(item: Mapping[str, Any]) -> MergeMark | None:
    """The mark, or None if the item is a page."""
    if "marks_before" not in item:
        return None
    check_item("merge_mark", item)
    return MergeMark(marks_before=int(item["marks_before"]["N"]), marks_behind=int(item["marks_behind"]["N"]))


def inline_key(segment_id: SegmentId) -> Item:
    """The key of the segment's item."""
    folder = segment_folder(segment_id, KeyLayout.SPREAD)
    return {"pk": {"S": inline_shard(folder)}, "sk": {"S": f"{folder}{segment_id.hex()}"}}


def inline_item(segment_id: SegmentId, body: bytes) -> Item:
    """The whole item."""
    return {**inline_key(segment_id), "body": {"B": bytes(body)}}


def parse_inline(item: Mapping[str, Any]) -> tuple[SegmentId, bytes]:
    """The inverse of `inline_item`."""
    check_item("inline", item)
    return inline_id(item["sk"]["S"]), bytes(item["body"]["B"])


def inline_id(sort_key: str) -> SegmentId:
    """The segment that has this sort key."""
    return SegmentId(bytes.fromhex(sort_key.rpartition("/")[2]))


def inline_shards() -> Sequence[str]:
    """The partition keys of all inline segments."""
    return _SHARDS


def expiring_key(segment_id: SegmentId) -> Item:
    """The key of the expiring segment's item."""
    name = base64.urlsafe_b64encode(segment_id).decode().rstrip("=")
    return {"pk": {"S": f"{EXPIRING_PREFIX}{name}"}, "sk": {"S": EXPIRING}}


def expiring_item(segment_id: SegmentId, body: bytes, kept_days: int) -> Item:
    """The whole item, which DynamoDB removes so many days after the time in the segment's id."""
    expires_at_ms = segment_time_ms(segment_id) + kept_days * DAY_MS
    return {**expiring_key(segment_id), "body": {"B": bytes(body)}, "expires_at_s": number(expires_at_ms // 1_000 + 1)}


def parse_expiring(item: Mapping[str, Any]) -> tuple[SegmentId, bytes]:
    """The segment and its bytes. The refs know the TTL."""
    check_item("expiring", item)
    return expiring_id(item["pk"]["S"]), bytes(item["body"]["B"])


def expiring_id(partition_key: str) -> SegmentId:
    """The segment that has this partition key."""
    return SegmentId(base64.urlsafe_b64decode(f"{partition_key.removeprefix(EXPIRING_PREFIX)}=="))
