"""The item of a partition's compaction: its lease, and how far the log was cleaned.

```
log table   pk "<topic id>#<partition>"   sk "compaction"
epoch          N   rises with each run that acquires the lease
deadline_ms    N   the lease ends then
cleaned        L   pairs of N: an end offset, and when the log was cleaned up to it; absent before the first cleaning
expires_at_s   N   DynamoDB removes the item some time after it
```
"""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock_core.compaction.merging import CleaningState, CompactionState
from penstock_core.formats import check_item
from penstock_core.ids import Offset, PartitionKey
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number

STATE_KEPT_MS = 90 * 24 * 3_600_000  # without it the next run cleans from the beginning, and keeps tombstones longer


def compaction_key(key: PartitionKey) -> Item:
    """The key of the partition's compaction."""
    return {"pk": {"S": str(key)}, "sk": {"S": keys.COMPACTION}}


def cleaned_value(cleaned: Iterable[CleaningState]) -> Item:
    """The value of `cleaned`."""
    return {"L": [number(value) for each in cleaned for value in (each.end_offset, each.at_ms)]}


def parse_compaction(item: Mapping[str, Any]) -> CompactionState:
    """The state that the item holds."""
    check_item("compaction", item)
    values = [int(value["N"]) for value in item["cleaned"]["L"]] if "cleaned" in item else []
    return CompactionState(
        epoch=int(item["epoch"]["N"]),
        deadline_ms=int(item["deadline_ms"]["N"]),
        cleaned=tuple(
            CleaningState(end_offset=Offset(end), at_ms=at_ms)
            for end, at_ms in zip(values[::2], values[1::2], strict=True)
        ),
    )
