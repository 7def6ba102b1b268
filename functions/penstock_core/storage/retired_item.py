"""The item of the segments that a swap of pages, or a move of a tail's refs, retired.

The sweep spares them for its grace, because readers may hold refs to them.

```
log table   pk "<topic id>#<partition>"   sk "retired#<time of the swap in ms, 15 digits>#<end offset, 20 digits>"
segments       B   segment ids of 16 bytes, ascending
expires_at_s   N   DynamoDB removes the item some time after it: two days after the swap
```
"""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import SEGMENT_ID_BYTES, Offset, PartitionKey, SegmentId
from penstock_core.limits import RETIRED_KEPT_MS
from penstock_core.storage.item import Item, number

RETIRED_PREFIX = "retired#"


def retired_key(swapped_ms: int, end_offset: Offset | int) -> str:
    """Sort key of the segments retired by the swap whose pages ended before `end_offset`. Keys sort by time."""
    return f"{RETIRED_PREFIX}{swapped_ms:015d}#{end_offset:020d}"


def retired_item(key: PartitionKey, swapped_ms: int, end_offset: Offset, segments: Iterable[SegmentId]) -> Item:
    """The whole item, for the transaction that swaps the pages."""
    return {
        "pk": {"S": str(key)},
        "sk": {"S": retired_key(swapped_ms, end_offset)},
        "segments": {"B": b"".join(sorted(segments))},
        "expires_at_s": number((swapped_ms + RETIRED_KEPT_MS) // 1_000),
    }


def parse_retired(item: Mapping[str, Any]) -> list[SegmentId]:
    """The segments of the item, ascending."""
    check_item("retired", item)
    data: bytes = item["segments"]["B"]
    return [SegmentId(bytes(data[start : start + SEGMENT_ID_BYTES])) for start in range(0, len(data), SEGMENT_ID_BYTES)]
