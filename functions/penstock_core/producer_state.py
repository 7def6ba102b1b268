"""Idempotent producers: what a partition remembers of them, and what it makes of a batch (docs/adr/0010).

Pure. A producer numbers the records it sends to a partition, from 0 in each epoch. The partition keeps the newest epoch
and last sequence of each producer that wrote lately. Batches are taken only in order, so that entry says it all: what
lies above follows, what lies at or below was taken before. The head's entry is 10 bytes, big-endian, so that it sorts
as DynamoDB sorts binary values, and one condition can ask for (epoch, last sequence) whatever the time:

```
0  epoch         u16
2  last sequence u32   2**31 - 1 at most, as Kafka's
6  written at    u32   seconds since 1970 by the writer's clock: who has been silent longest leaves the head first
```
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import HEAD_PRODUCERS_KEPT

SEQUENCE_MAX = 2**31 - 1

_ENTRY = struct.Struct(">HII")
_SEQUENCE_FIELD_MAX = _TIME_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSequence:
    """Which records of its producer an append holds: sequences `[first_sequence, last_sequence]`, both included."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """The newest that a partition has taken from a producer; `written_s` is when, in seconds since 1970."""

    epoch: int
    last_sequence: int
    written_s: int


class Verdict(Enum):
    """What to do with an append."""

    FOLLOWS = "follows"  # it is the next: append it
    REPEATS = "repeats"  # it was appended before: answer as then


def judge(state: ProducerState | None, sequence: ProducerSequence) -> Verdict:
    """What an append with this sequence is to a partition that knows `state` of its producer (None: nothing).

    Raises PRODUCER_FENCED for an epoch older than the known one, OUT_OF_ORDER_SEQUENCE for a gap.
    """
    if state is not None and sequence.epoch < state.epoch:
        raise PenstockError(
            ErrorCode.PRODUCER_FENCED,
            f"producer {sequence.producer_id} with epoch {sequence.epoch}: epoch {state.epoch} has written since; "
            "another instance has taken over, stop this one",
            maybe_applied=True,  # in its own time
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


def state_after(sequence: ProducerSequence, now_ms: int) -> ProducerState:
    """What a partition knows of the producer once the append is done."""
    return ProducerState(
        epoch=sequence.epoch, last_sequence=sequence.last_sequence, written_s=min(now_ms // 1_000, _TIME_MAX)
    )


def precedes(state: ProducerState, sequence: ProducerSequence) -> bool:
    """Whether `sequence` follows `state`: what `entries_preceding` says of entries."""
    if sequence.first_sequence == 0:
        return state.epoch < sequence.epoch
    return (state.epoch, state.last_sequence) == (sequence.epoch, sequence.first_sequence - 1)


def longest_silent(producers: Mapping[int, ProducerState]) -> Mapping[int, ProducerState]:
    """Those that are to leave a head with these producers, so that `HEAD_PRODUCERS_KEPT` stay."""
    by_silence = sorted(producers, key=lambda producer_id: (producers[producer_id].written_s, producer_id))
    return {producer_id: producers[producer_id] for producer_id in by_silence[: -HEAD_PRODUCERS_KEPT or None]}


def encode_state(state: ProducerState) -> bytes:
    """The head's entry, 10 bytes in the layout above."""
    return _ENTRY.pack(state.epoch, state.last_sequence, state.written_s)


def decode_state(data: bytes) -> ProducerState:
    """The inverse of `encode_state`. Raises CORRUPT_SEGMENT for bytes that are none."""
    if len(data) != _ENTRY.size:
        raise PenstockError(ErrorCode.CORRUPT_SEGMENT, f"a producer's entry of {len(data)} bytes: the index is damaged")
    epoch, last_sequence, written_s = _ENTRY.unpack(data)
    return ProducerState(epoch=epoch, last_sequence=last_sequence, written_s=written_s)


def entries_preceding(sequence: ProducerSequence) -> tuple[bytes, bytes] | None:
    """The lowest and the highest entry that `sequence` may follow, both included, whatever the time in them; None if
    it is the very first."""
    if sequence.first_sequence:
        before = (sequence.epoch, sequence.first_sequence - 1)
        return _ENTRY.pack(*before, 0), _ENTRY.pack(*before, _TIME_MAX)
    if sequence.epoch:
        return _ENTRY.pack(0, 0, 0), _ENTRY.pack(sequence.epoch - 1, _SEQUENCE_FIELD_MAX, _TIME_MAX)
    return None


def merge_sequences(sequences: Iterable[ProducerSequence | None]) -> ProducerSequence | None:
    """The sequence of an append of several batches: of one producer and one epoch, each beginning where the one before
    ends; None if none has a producer. Raises CORRUPT_BATCH."""
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
            )
    return merged


def _described(sequence: ProducerSequence | None) -> str:
    if sequence is None:
        return "no producer"
    return (
        f"producer {sequence.producer_id}, epoch {sequence.epoch}, "
        f"sequences {sequence.first_sequence} to {sequence.last_sequence}"
    )
