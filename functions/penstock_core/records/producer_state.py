"""Idempotent producers: a partition's memory of them, and its verdict on a batch (docs/adr/0010).

Pure. A producer numbers the records that it sends to a partition, from 0 in each epoch. The partition keeps the newest
epoch and last sequence of each producer that wrote lately. It takes batches only in order, so that entry is enough: a
batch above it follows, and a batch at or below it was taken before.

The head's entry is 16 bytes, big-endian, so that it sorts as DynamoDB sorts binary values. One condition can ask for
(epoch, last sequence) whatever follows:

```
0  epoch         u16
2  last sequence u32   2**31 - 1 at most, as Kafka's
6  written at    u48   milliseconds since 1970 by the writer's clock: the longest silent producer leaves the head first
12 checksum      u32   CRC-32C of the newest append's last batch, by which its repeat is known (docs/protocol/log)
```

Ids are in each batch header, so every reader knows them. An *owner* is kept next to the entry: a part of the digest of
the principal that wrote first under the id. Another principal is refused, and changes nothing (docs/protocol/log).
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError

SEQUENCE_MAX = 2**31 - 1

OWNER_BYTES = 8  # of the digest: nobody draws a role's name that often
NO_OWNER = b""
SERVICE_OWNER = bytes(OWNER_BYTES)  # of what the service appends for itself, such as a replay

_ORDER = struct.Struct(">HI")
_TIME_BYTES = 6
_CHECKSUM_BYTES = 4
_ENTRY_BYTES = _ORDER.size + _TIME_BYTES + _CHECKSUM_BYTES
_SEQUENCE_FIELD_MAX = 2**32 - 1
_TIME_MAX = 2 ** (8 * _TIME_BYTES) - 1
_ABOVE_ALL = b"\xff" * (_ENTRY_BYTES + 1)  # behind a prefix, it sorts above every entry with that prefix


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSequence:
    """The records of an append by their producer's numbers: `[first_sequence, last_sequence]`, both included.

    `checksum` is the CRC-32C of their last batch, and `owner` that of the writer. A sequence that was read from storage
    has neither, so two sequences are equal whatever they are.
    """

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    checksum: int = field(default=0, compare=False)
    owner: bytes = field(default=NO_OWNER, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The newest append that a partition has taken from a producer.

    `written_ms` is its time in milliseconds since 1970, and `checksum` the CRC-32C of its last batch. `owner` is
    NO_OWNER for one that a release without owners wrote.
    """

    epoch: int
    last_sequence: int
    written_ms: int
    checksum: int = 0
    owner: bytes = NO_OWNER


class Verdict(Enum):
    """The verdict on an append."""

    FOLLOWS = "follows"  # it is the next: append it
    REPEATS = "repeats"  # it was appended before: answer as then


def judge(state: ProducerState | None, sequence: ProducerSequence) -> Verdict:
    """The verdict on an append with this sequence, by the partition's `state` of its producer (None: unknown).

    Raises ACCESS_DENIED for a producer of another owner, PRODUCER_FENCED for an epoch older than the known one, and
    OUT_OF_ORDER_SEQUENCE for a gap.
    """
    if state is not None and is_strangers(state, sequence):
        raise PenstockError(
            ErrorCode.ACCESS_DENIED,
            f"producer id {sequence.producer_id} belongs to the IAM role, user or token that wrote first under it, "
            "which is not yours: go on as a new producer, with an id of its own, from 0",
        )
    if state is not None and sequence.epoch < state.epoch:
        raise PenstockError(
            ErrorCode.PRODUCER_FENCED,
            f"producer {sequence.producer_id} with epoch {sequence.epoch}: epoch {state.epoch} has written since; "
            "another instance has taken over, stop this one",
            maybe_applied=True,  # while its epoch was the newest
            epoch=state.epoch,
        )
    if state is not None and sequence.epoch == state.epoch and sequence.last_sequence <= state.last_sequence:
        return Verdict.REPEATS
    expected = state.last_sequence + 1 if state is not None and sequence.epoch == state.epoch else 0
    if sequence.first_sequence == expected:
        return Verdict.FOLLOWS
    known = f"after {state.last_sequence} of epoch {state.epoch}" if state is not None else "from an unknown producer"
    raise PenstockError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"sequences {sequence.first_sequence} to {sequence.last_sequence} of producer {sequence.producer_id}, epoch "
        f"{sequence.epoch}, {known}: {expected} must come first. Send batches of a partition in order, and repeat them "
        "as they were; after a batch was given up, go on as a new producer, from 0",
        expected_sequence=expected,
    )


def owner_of(digest: str) -> bytes:
    """The owner by the digest of a principal (acls/principal.py): `SERVICE_OWNER` for a caller without a name."""
    return bytes.fromhex(digest)[:OWNER_BYTES] or SERVICE_OWNER


def is_strangers(state: ProducerState, sequence: ProducerSequence) -> bool:
    """True if the producer belongs to another owner than the writer of `sequence`."""
    return state.owner not in (NO_OWNER, sequence.owner)


def state_after(sequence: ProducerSequence, now_ms: int) -> ProducerState:
    """The partition's state of the producer once the append is done."""
    return ProducerState(
        epoch=sequence.epoch,
        last_sequence=sequence.last_sequence,
        written_ms=min(now_ms, _TIME_MAX),
        checksum=sequence.checksum,
        owner=sequence.owner,
    )


def is_newest(state: ProducerState, sequence: ProducerSequence) -> bool:
    """True if `sequence` ends where the newest append of `state` ends."""
    return (state.epoch, state.last_sequence) == (sequence.epoch, sequence.last_sequence)


def ends_with_same_batch(state: ProducerState, sequence: ProducerSequence) -> bool:
    """True if the last batch of `sequence` is that of the newest append of `state`, by its CRC."""
    return is_newest(state, sequence) and state.checksum == sequence.checksum


def other_bytes(state: ProducerState, sequence: ProducerSequence, *, maybe_applied: bool) -> PenstockError:
    """The error for a batch whose sequences were taken before, with other bytes (docs/protocol/log)."""
    return PenstockError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        f"sequences {sequence.first_sequence} to {sequence.last_sequence} of producer {sequence.producer_id}, epoch "
        f"{sequence.epoch}, were written before with other bytes: this is no repeat. Give no two producers one id, and "
        "number each batch once; go on as a new producer, from 0",
        maybe_applied=maybe_applied,
        expected_sequence=state.last_sequence + 1,
    )


def longest_silent(producers: Mapping[int, ProducerState], count: int) -> Mapping[int, ProducerState]:
    """The `count` of these producers that wrote longest ago, or all if there are fewer."""
    by_silence = sorted(producers, key=lambda producer_id: (producers[producer_id].written_ms, producer_id))
    return {producer_id: producers[producer_id] for producer_id in by_silence[: max(0, count)]}


def encode_state(state: ProducerState) -> bytes:
    """The head's entry, 16 bytes in the layout above."""
    order = _ORDER.pack(state.epoch, state.last_sequence)
    return order + state.written_ms.to_bytes(_TIME_BYTES, "big") + state.checksum.to_bytes(_CHECKSUM_BYTES, "big")


def checked_entry(data: bytes) -> bytes:
    """The entry, if it can be decoded. Raises CORRUPT_SEGMENT for bytes of another length."""
    if len(data) != _ENTRY_BYTES:
        raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"a producer's entry of {len(data)} bytes: the index is damaged")
    return data


def decode_state(data: bytes, owner: bytes = NO_OWNER) -> ProducerState:
    """The inverse of `encode_state`, for an entry with that owner next to it.

    Raises CORRUPT_SEGMENT for bytes of another length.
    """
    epoch, last_sequence = _ORDER.unpack_from(checked_entry(data))
    times_end = _ORDER.size + _TIME_BYTES
    return ProducerState(
        epoch=epoch,
        last_sequence=last_sequence,
        written_ms=int.from_bytes(data[_ORDER.size : times_end], "big"),
        checksum=int.from_bytes(data[times_end:], "big"),
        owner=owner,
    )


def entries_equal(state: ProducerState) -> tuple[bytes, bytes]:
    """The lowest and the highest entry with the epoch and last sequence of `state`, both included."""
    order = _ORDER.pack(state.epoch, state.last_sequence)
    return order, order + _ABOVE_ALL


def entries_preceding(sequence: ProducerSequence) -> tuple[bytes, bytes] | None:
    """The lowest and the highest entry that `sequence` may follow, both included, whatever the time in them.

    None for the very first sequence, which follows no entry.
    """
    if sequence.first_sequence:
        before = _ORDER.pack(sequence.epoch, sequence.first_sequence - 1)
        return before, before + _ABOVE_ALL
    if sequence.epoch:
        return _ORDER.pack(0, 0), _ORDER.pack(sequence.epoch - 1, _SEQUENCE_FIELD_MAX) + _ABOVE_ALL
    return None


def merge_sequences(sequences: Iterable[ProducerSequence | None]) -> ProducerSequence | None:
    """The sequence of an append of several batches; None if none has a producer.

    Raises CORRUPT_BATCH unless they are all of one producer and epoch, each from where the one before ends, or all of
    none.
    """
    merged: ProducerSequence | None = None
    for index, sequence in enumerate(sequences):
        if index == 0:
            merged = sequence
            continue
        follows = (
            merged is None
            if sequence is None
            else merged is not None
            and (sequence.producer_id, sequence.epoch, sequence.first_sequence)
            == (merged.producer_id, merged.epoch, merged.last_sequence + 1)
        )
        if not follows:
            raise PenstockError(
                ErrorCode.CORRUPT_BATCH,
                f"batch {index} has {_described(sequence)}, the ones before it {_described(merged)}: batches of one "
                "partition in one request must be of one producer and epoch, in sequence",
            )
        if merged is not None and sequence is not None:
            merged = ProducerSequence(
                producer_id=merged.producer_id,
                epoch=merged.epoch,
                first_sequence=merged.first_sequence,
                last_sequence=sequence.last_sequence,
                checksum=sequence.checksum,
                owner=sequence.owner,
            )
    return merged


def _described(sequence: ProducerSequence | None) -> str:
    if sequence is None:
        return "no producer"
    return (
        f"producer {sequence.producer_id}, epoch {sequence.epoch}, "
        f"sequences {sequence.first_sequence} to {sequence.last_sequence}"
    )
