"""The item of the producers' sequences whose refs a swap merged. It answers a producer that repeats an old append.

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

from penstock_core.compaction.merging import MergedSequence
from penstock_core.formats import check_item
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import MERGED_SEQUENCES_KEPT_MS
from penstock_core.records.producer_state import ProducerSequence
from penstock_core.storage.item import Item, number

SEQUENCES_PREFIX = "sequences#"

_SEQUENCE = struct.Struct(">qHIIQ")


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
