"""The item of a mirrored topic with what groups of its source have committed, as the source told it last.

```
log table   pk "<topic id>#0"   sk "mirrored_offsets"
version    N   the number of the telling: the condition of the next one
read_ms    N   when the source read the offsets, by its clock
left_out   N   groups that are not in it
groups     S   their text (mirror/group_offsets.py)
share      S   that of share groups; missing without them. A release that does not know it reads the others
```
It goes with the topic.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.mirror.group_offsets import MirroredOffsets, decode_offsets, encode_offsets
from penstock_core.storage.item import Item, number
from penstock_core.storage.keys import MIRRORED_OFFSETS

SHARE = "share"


def offsets_key(topic_id: TopicId) -> Item:
    """The key of the item of a mirrored topic."""
    return {"pk": {"S": str(PartitionKey(topic_id, Partition(0)))}, "sk": {"S": MIRRORED_OFFSETS}}


def offsets_item(topic_id: TopicId, number_of: int, offsets: MirroredOffsets) -> Item:
    """The whole item."""
    return {
        **offsets_key(topic_id),
        "version": number(number_of),
        "read_ms": number(offsets.read_ms),
        "left_out": number(offsets.left_out),
        "groups": {"S": encode_offsets(replace(offsets, share_groups={})).decode()},
        **({SHARE: {"S": encode_offsets(replace(offsets, groups={})).decode()}} if offsets.share_groups else {}),
    }


def parse_offsets(item: Mapping[str, Any]) -> tuple[int, MirroredOffsets]:
    """The inverse of `offsets_item`: the number, and the offsets."""
    check_item("mirrored_offsets", item)
    told = int(item["read_ms"]["N"]), int(item["left_out"]["N"])
    offsets = decode_offsets(item["groups"]["S"].encode(), *told)
    share_groups = decode_offsets(item[SHARE]["S"].encode(), *told).share_groups if SHARE in item else {}
    return int(item["version"]["N"]), replace(offsets, share_groups=share_groups)
