"""The item of an inline segment: one small segment as a whole (docs/adr/0064).

```
log table   pk "#inline#<first digit of the folder>"   sk "<folder, 2 hex>/<segment id, 32 hex>"
body        B   the segment's bytes (log/segment.py)
```
The folder is the one that the segment would have in an ordinary bucket. It comes from the id's random part, so the
items spread over 16 partition keys, and within each of them over the sort keys. An item is never changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import SegmentId
from penstock_core.storage.item import Item
from penstock_core.storage.keys import INLINE_PREFIX, KeyLayout, inline_shard, segment_folder

_SHARDS: Sequence[str] = tuple(f"{INLINE_PREFIX}{digit}" for digit in "0123456789abcdef")


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
