"""The item of a mirrored topic with what groups of its source have committed, as the source told it last.

```
log table   pk "<topic id>#0"   sk "mirrored_offsets"
version    N   the number of the telling: the condition of the next one
read_ms    N   when the source read the offsets, by its clock
left_out   N   groups that are not in it
groups     S   their text (mirror/group_offsets.py)
```
It goes with the topic.
"""

from collections.abc import Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.mirror.group_offsets import MirroredOffsets, decode_offsets, encode_offsets
from penstock_core.storage.item import Item, number
from penstock_core.storage.keys import MIRRORED_OFFSETS


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
        "groups": {"S": encode_offsets(offsets).decode()},
    }


def parse_offsets(item: Mapping[str, Any]) -> tuple[int, MirroredOffsets]:
    """The inverse of `offsets_item`: the number, and the offsets."""
    check_item("mirrored_offsets", item)
    offsets = decode_offsets(item["groups"]["S"].encode(), int(item["read_ms"]["N"]), int(item["left_out"]["N"]))
    return int(item["version"]["N"]), offsets
