"""The DynamoDB items of compaction, all in the log table under the partition's key; none outlives its use for long.

A merged sequence is 26 bytes, big-endian: producer id i64, epoch u16, first and last sequence u32, base offset u64.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from penstock_core import keys
from penstock_core.compaction import Cleaned, CompactionState, MergedSequence
from penstock_core.ids import SEGMENT_ID_BYTES, Offset, SegmentId
from penstock_core.items import Item, number
from penstock_core.keys import PartitionKey
from penstock_core.limits import MERGED_SEQUENCES_KEPT_MS, SWEEP_GRACE_MS
from penstock_core.producer_state import ProducerSequence

STATE_KEPT_MS = 90 * 24 * 3_600_000  # without it the next run cleans from the beginning, and keeps tombstones longer

_SEQUENCE = struct.Struct(">qHIIQ")


def compaction_key(key: PartitionKey) -> Item:
    return {"pk": {"S": str(key)}, "sk": {"S": keys.COMPACTION}}


def cleaned_value(cleaned: Iterable[Cleaned]) -> Item:
    return {"L": [number(value) for each in cleaned for value in (each.end_offset, each.at_ms)]}


def parse_compaction(item: Mapping[str, Any]) -> CompactionState:
    values = [int(value["N"]) for value in item["cleaned"]["L"]] if "cleaned" in item else []
    return CompactionState(
        epoch=int(item["epoch"]["N"]),
        deadline_ms=int(item["deadline_ms"]["N"]),
        cleaned=tuple(
            Cleaned(end_offset=Offset(end), at_ms=at_ms) for end, at_ms in zip(values[::2], values[1::2], strict=True)
        ),
    )


def retired_item(key: PartitionKey, swapped_ms: int, end_offset: Offset, segments: Iterable[SegmentId]) -> Item:
    """The segments that a swap retired; the sweep spares them for its grace."""
    return {
        "pk": {"S": str(key)},
        "sk": {"S": keys.retired_key(swapped_ms, end_offset)},
        "segments": {"B": b"".join(sorted(segments))},
        "expires_at_s": _expires_at_s(swapped_ms + 2 * SWEEP_GRACE_MS),
    }


def parse_retired(item: Mapping[str, Any]) -> list[SegmentId]:
    data: bytes = item["segments"]["B"]
    return [SegmentId(bytes(data[start : start + SEGMENT_ID_BYTES])) for start in range(0, len(data), SEGMENT_ID_BYTES)]


def sequences_item(key: PartitionKey, swapped_ms: int, end_offset: Offset, sequences: Iterable[MergedSequence]) -> Item:
    """Where the records of idempotent producers are whose refs a swap has merged."""
    return {
        "pk": {"S": str(key)},
        "sk": {"S": keys.sequences_key(end_offset, swapped_ms)},
        "sequences": {"B": encode_sequences(sequences)},
        "expires_at_s": _expires_at_s(swapped_ms + MERGED_SEQUENCES_KEPT_MS),
    }


def parse_sequences(item: Mapping[str, Any]) -> tuple[MergedSequence, ...]:
    return decode_sequences(item["sequences"]["B"])


def encode_sequences(sequences: Iterable[MergedSequence]) -> bytes:
    """26 bytes each, as above."""
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


def _expires_at_s(at_ms: int) -> Item:
    return number(at_ms // 1_000)
