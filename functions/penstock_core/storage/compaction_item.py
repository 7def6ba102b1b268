"""The items of compaction.

The compaction of a partition: its lease, and how far the log was cleaned.

```
log table   pk "<topic id>#<partition>"   sk "compaction"
epoch          N   rises with each run that acquires the lease
deadline_ms    N   the lease ends then
cleaned        L   pairs of N: an end offset, and when the log was cleaned up to it; absent before the first cleaning
expires_at_s   N   DynamoDB removes the item some time after it
```

The segments that a swap of pages, or a move of a tail's refs, retired. The sweep spares them for its grace, because
readers may hold refs to them.

```
log table   pk "<topic id>#<partition>"   sk "retired#<time of the swap in ms, 15 digits>#<end offset, 20 digits>"
segments       B   segment ids of 16 bytes, ascending
expires_at_s   N   DynamoDB removes the item some time after it: two days after the swap
```

The cursor of a scheduled job, which goes on from it in its next run if it runs out of time.

```
topics table   pk "#cursors"   sk name of the job
cursor   S   a place that only the job understands
```

The item of the producers' sequences whose refs a swap merged. It answers a producer that repeats an old append.

```
log table   pk "<topic id>#<partition>"   sk "sequences#<end offset, 20 digits>#<time of the swap in ms, 15 digits>"
sequences      B   26 bytes each, as below
expires_at_s   N   DynamoDB removes the item some time after it

 0  producer id      i64   big-endian, as all of it
 8  epoch            u16
10  first sequence   u32
14  last sequence    u32   included
18  base offset      u64   the offset of the record with the first sequence
26
```
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from penstock_core.compaction.merging import CleaningState, CompactionState, MergedSequence
from penstock_core.formats import check_item
from penstock_core.ids import SEGMENT_ID_BYTES, Offset, PartitionKey, SegmentId
from penstock_core.limits import MERGED_SEQUENCES_KEPT_MS, RETIRED_KEPT_MS
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number

STATE_KEPT_MS = 90 * 24 * 3_600_000  # without it the next run cleans from the beginning, and keeps tombstones longer
RETIRED_PREFIX = "retired#"
SEQUENCES_PREFIX = "sequences#"
_SEQUENCE = struct.Struct(">qHIIQ")


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


def cursor_key(job: str) -> Item:
    """The key of the job's cursor."""
    return {"pk": {"S": keys.CURSORS}, "sk": {"S": job}}


def cursor_item(job: str, cursor: str) -> Item:
    """The item to put when the job stops before it is done."""
    return {**cursor_key(job), "cursor": {"S": cursor}}


def parse_cursor(item: Mapping[str, Any]) -> str:
    """The job's cursor, the inverse of `cursor_item`."""
    check_item("cursor", item)
    return str(item["cursor"]["S"])


def sequences_key(end_offset: Offset | int, swapped_ms: int) -> str:
    """Sort key of the sequences merged by the swap whose pages ended before `end_offset`. Keys sort by offset."""
    return f"{SEQUENCES_PREFIX}{end_offset:020d}#{swapped_ms:015d}"


def sequences_item(key: PartitionKey, swapped_ms: int, end_offset: Offset, sequences: Iterable[MergedSequence]) -> Item:
    """The whole item, for the transaction that swaps the pages."""
    return {
        "pk": {"S": str(key)},
        "sk": {"S": sequences_key(end_offset, swapped_ms)},
        "sequences": {"B": encode_sequences(sequences)},
        "expires_at_s": number((swapped_ms + MERGED_SEQUENCES_KEPT_MS) // 1_000),
    }


def parse_sequences(item: Mapping[str, Any]) -> tuple[MergedSequence, ...]:
    """The inverse of `sequences_item`."""
    check_item("merged_sequences", item)
    return decode_sequences(item["sequences"]["B"])


def encode_sequences(sequences: Iterable[MergedSequence]) -> bytes:
    """26 bytes each in the layout above."""
    return b"".join(
        _SEQUENCE.pack(
            each.sequence.producer_id,
            each.sequence.epoch,
            each.sequence.first_sequence,
            each.sequence.last_sequence,
            each.base_offset,
        )
        for each in sequences
    )


def decode_sequences(data: bytes) -> tuple[MergedSequence, ...]:
    """The inverse of `encode_sequences`."""
    return tuple(
        MergedSequence(
            sequence=ProducerSequence(producer_id=producer_id, epoch=epoch, first_sequence=first, last_sequence=last),
            base_offset=Offset(base_offset),
        )
        for producer_id, epoch, first, last, base_offset in _SEQUENCE.iter_unpack(data)
    )
