"""Decode the records of an acquire, for clients that do not know batches.

Who decodes sees more: offsets whose records compaction has removed, and batches that cannot be decoded.

| the records                           | what happens to them                                                      |
|---------------------------------------|----------------------------------------------------------------------------|
| are not in the batch that covers them | are finished: compaction has removed them                                  |
| do not fit into the answer            | go back at once, uncounted                                                 |
| are too large for any such answer     | go back for the longest pause, uncounted                                   |
| are in a batch that is undecodable    | are rejected with the reason `undecodable`; without a dead-letter topic    |
|                                       | they go back for the longest pause, uncounted                              |
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import JSON_RECORD_BYTES_MAX, JSON_RESPONSE_BYTES_MAX, READ_DECODED_BYTES_MAX
from penstock_core.records.codec import Record
from penstock_core.records.record_check import DecodeBudget
from penstock_core.share.acknowledge import Acknowledgement, AckType
from penstock_core.share.record_set import Range, normalized
from penstock_core.share.share_group import ShareGroupConfig
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.acquire.hand_over import (
    Fate,
    HandedLock,
    HandedPartition,
    give_back,
    undecodable_fate,
    with_batches,
)
from penstock_service.share.batches.decode_batches import decode_batches
from penstock_service.share.batches.read_batches import StoredBatch

SizeOf = Callable[[Record], int]
"""The bytes that a record takes in the answer, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedLock:
    """A lock, and its records in order."""

    lock: HandedLock
    records: Sequence[Record]


@dataclass(slots=True, kw_only=True)
class _Sorted:
    """The records of one partition that are handed over, and the offsets that are not."""

    kept: list[Record] = field(default_factory=list)
    removed: list[Range] = field(default_factory=list)
    left_out: list[Range] = field(default_factory=list)
    too_large: list[Range] = field(default_factory=list)
    undecodable: list[Range] = field(default_factory=list)


def decode_acquired(instance: Instance, acquired: Acquired, size_of: SizeOf) -> tuple[Acquired, list[DecodedLock]]:
    """The answer of `acquire`, and the records of each lock, `JSON_RESPONSE_BYTES_MAX` at most, but for the first one.

    Costs one update more for each partition of which something is not handed over. Raises RECORD_TOO_LARGE if the only
    records are too large, with the offset of one.
    """
    bytes_left, is_first = JSON_RESPONSE_BYTES_MAX, True
    decoded: list[DecodedLock] = []
    budget = DecodeBudget(READ_DECODED_BYTES_MAX)
    partitions: list[HandedPartition] = []
    too_large: PenstockError | None = None
    for each in acquired.partitions:
        found = _sort(each, size_of, (budget, bytes_left), is_first=is_first)
        bytes_left -= sum(map(size_of, found.kept))
        is_first = is_first and not found.kept
        if found.too_large:
            too_large = too_large or _too_large(each, found.too_large[0][0])
        done = _settled(instance, acquired, each, found)
        partitions.append(done)
        decoded += [DecodedLock(lock=lock, records=_under(lock, found.kept)) for lock in done.locks]
    if too_large is not None and not any(each.records for each in decoded):
        raise too_large
    return replace(acquired, partitions=partitions), decoded


def _sort(handed: HandedPartition, size_of: SizeOf, left: tuple[DecodeBudget, int], *, is_first: bool) -> _Sorted:
    """Decode the batches in order within the budget, until the answer is full."""
    budget, bytes_left = left
    locked = normalized(span for lock in handed.locks for span in lock.ranges)
    decoded = decode_batches(_batches(handed), locked, budget)
    found = _Sorted(removed=[*decoded.removed], left_out=[*decoded.left_out], undecodable=[*decoded.undecodable])
    is_full = False
    for record in decoded.records:
        size = size_of(record)
        place = (record.offset, record.offset + 1)
        if size > JSON_RECORD_BYTES_MAX:
            found.too_large.append(place)
        elif is_full or (size > bytes_left and not (is_first and not found.kept)):
            is_full = True
            found.left_out.append(place)
        else:
            found.kept.append(record)
            bytes_left -= size
    return found


def _batches(handed: HandedPartition) -> list[StoredBatch]:
    found = {batch.base_offset: batch for lock in handed.locks for batch in lock.batches}
    return [found[base_offset] for base_offset in sorted(found)]


def _settled(instance: Instance, acquired: Acquired, handed: HandedPartition, found: _Sorted) -> HandedPartition:
    """The partition after all that is not handed over has left its locks."""
    config, nonce = acquired.group.config, acquired.nonce
    back = [*_given_back(config, handed, found)]
    if not back:
        return handed
    if found.undecodable:
        instance.telemetry.log(
            "share_records_undecodable",
            partition=str(handed.partition.key.partition_key),
            offset=found.undecodable[0][0],
        )
    state = give_back(instance, config, handed.partition, handed.state, back, nonce)
    read = [lock.grant for lock in handed.locks]
    return with_batches(handed.partition, state, read, nonce, _batches(handed))


def _given_back(config: ShareGroupConfig, handed: HandedPartition, found: _Sorted) -> Iterator[Acknowledgement]:
    kinds = [
        (found.removed, Fate(AckType.ACCEPT)),
        (found.left_out, Fate(AckType.RELEASE, delay_ms=0)),
        (found.too_large, Fate(AckType.RELEASE, delay_ms=config.retry_backoff_ms_max)),
        (found.undecodable, undecodable_fate(config)),
    ]
    for grant in (lock.grant for lock in handed.locks):
        for ranges, fate in kinds:
            mine = grant.records.only(normalized(ranges)).ranges
            if mine:
                yield fate.of(grant, mine)


def _under(lock: HandedLock, records: Sequence[Record]) -> list[Record]:
    held = {*lock.grant.records.offsets()}
    return [record for record in records if record.offset in held]


def _too_large(handed: HandedPartition, offset: int) -> PenstockError:
    return PenstockError(
        ErrorCode.RECORD_TOO_LARGE,
        f"the record at offset {offset} of partition {handed.partition.key.partition} of topic "
        f"{handed.partition.topic!r} takes more than {JSON_RECORD_BYTES_MAX} bytes as JSON: acquire it in binary. It "
        "waits for the longest pause now",
        maybe_applied=True,
        limit=JSON_RECORD_BYTES_MAX,
    )
