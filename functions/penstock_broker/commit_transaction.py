"""Transactions: stage data that is too large for one request, then commit all of it, with a group's offsets, at once.

```
 stage 0 … n-1:  put a segment, note its refs   (nothing is visible; garbage if nobody commits)
 commit:         put the rest, then one TransactWriteItems: producer's item, heads, leases
```
A crash before the commit leaves objects that no ref names, which the sweep removes, and notes that expire. A repeated
commit is recognised by its number, and answered as the first time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_broker.append import PartitionBatches, put_batches
from penstock_broker.broker import Broker
from penstock_broker.find_ref import find_ref
from penstock_broker.maybe_applied import said_to_be_maybe_applied
from penstock_broker.produce import ProduceEntry, check_entries, check_entry
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, SegmentId, member_name, parse_group_name, segment_time_ms
from penstock_core.index import Head, roll_due
from penstock_core.items import CommittedOffset
from penstock_core.keys import PartitionKey
from penstock_core.lease import Tenure
from penstock_core.limits import COMMIT_METADATA_BYTES_MAX, TRANSACTION_MS_MAX, TRANSACTION_STAGES_MAX
from penstock_core.producer_state import Verdict
from penstock_core.quorum import Acks
from penstock_core.ref import Ref, span
from penstock_core.transaction import (
    OffsetCommit,
    Transaction,
    TransactionalProducer,
    check_size,
    judge_transaction,
)
from penstock_core.transaction_items import StagedRef


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """An offset to commit for a group; `member_id` and `lease_epoch` are None where no member owns the partition."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str = ""
    member_id: str | None = None
    instance_id: str | None = None
    lease_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The transaction's records of one partition have the offsets `[base_offset, next_offset)`."""

    topic: str
    partition: int
    base_offset: Offset
    next_offset: Offset


def stage(
    broker: Broker,
    producer: TransactionalProducer,
    number: int,
    stage_number: int,
    entries: Sequence[ProduceEntry],
    acks: Acks,
) -> None:
    """Puts data of transaction `number` ahead of its commit; the same stage again takes the place of the first.

    One read, one put per zone, one put. Raises PRODUCER_FENCED, OUT_OF_ORDER_SEQUENCE, TRANSACTION_TOO_LARGE after
    `TRANSACTION_STAGES_MAX` stages, and what is wrong with the first wrong entry.
    """
    if stage_number >= TRANSACTION_STAGES_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_TOO_LARGE,
            f"stage {stage_number} of transaction {number}: {TRANSACTION_STAGES_MAX} at most. Commit more often",
            limit=TRANSACTION_STAGES_MAX,
        )
    judge_transaction(broker.transactions.get(producer.transactional_id), producer, number)
    batches = _checked(broker, entries)
    staged = _put(broker, entries, batches, acks)
    broker.transactions.put_stage(producer, number, stage_number, staged, broker.clock.now_ms())


def commit_transaction(
    broker: Broker,
    producer: TransactionalProducer,
    number: int,
    entries: Sequence[ProduceEntry],
    offsets: Sequence[GroupOffset],
    stage_count: int,
    acks: Acks,
) -> list[Committed]:
    """Makes the staged data, `entries` and `offsets` visible at once; where each partition's records are.

    One put per zone, one TransactWriteItems, one read of heads; a query if there were stages; a roll where one is due.
    Raises what the first wrong part is refused with: nothing is visible then, unless `maybe_applied`.
    """
    commits = [_offset_commit(broker, each) for each in offsets]
    batches = _checked(broker, entries) if entries else []
    parts = _staged(broker, producer, number, stage_count)
    # Before anything is put: how many partitions there are is known.
    check_size({*(part.key for part in parts), *(batch.key for batch in batches)}, commits)
    if batches:
        parts += _put(broker, entries, batches, acks)
    refs: dict[PartitionKey, list[Ref]] = {}
    for part in parts:
        refs.setdefault(part.key, []).append(part.ref)
    transaction = Transaction(
        producer=producer, number=number, refs=refs, unconfirmed=_unconfirmed(broker, refs), offsets=commits
    )
    is_new = broker.transactions.commit(transaction)
    names = {part.key: part.topic for part in parts}
    with said_to_be_maybe_applied():
        segments = set(transaction.segments if is_new else _segments_of(broker, transaction))
        heads = broker.log.heads([*refs]) if refs else {}
        if is_new:
            _roll(broker, heads, refs)
        return [found for key in refs if (found := _find(broker, names[key], key, heads, refs[key], segments))]


def _segments_of(broker: Broker, refused: Transaction) -> Sequence[SegmentId]:
    """Those of the transaction, if it was committed before; raises why it was refused otherwise."""
    state = broker.transactions.get(refused.producer.transactional_id)
    verdict = judge_transaction(state, refused.producer, refused.number, refused.segments)
    if verdict is Verdict.REPEATS and state is not None:
        return state.segments
    raise PenstockError(
        ErrorCode.CONCURRENT_UPDATE, "the producer has changed meanwhile: nothing was committed, try again"
    )


def _checked(broker: Broker, entries: Sequence[ProduceEntry]) -> list[PartitionBatches]:
    check_entries(entries)
    checked: list[PartitionBatches] = []
    for entry in entries:
        result = check_entry(broker, entry)
        if isinstance(result, PenstockError):
            raise result
        checked.append(result)
    return checked


def _put(
    broker: Broker, entries: Sequence[ProduceEntry], batches: Sequence[PartitionBatches], acks: Acks
) -> list[StagedRef]:
    _, refs = put_batches(broker, batches, acks)
    return [
        StagedRef(topic=entry.topic, key=batch.key, ref=ref)
        for entry, batch, ref in zip(entries, batches, refs, strict=True)
    ]


def _staged(broker: Broker, producer: TransactionalProducer, number: int, stage_count: int) -> list[StagedRef]:
    if not stage_count:
        return []
    stages = broker.transactions.stages(producer, number)
    if len(stages) < stage_count:
        raise PenstockError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE,
            f"transaction {number} of {producer.transactional_id!r} has {len(stages)} stages, not {stage_count}: "
            "stage what is missing before you commit",
        )
    parts = [part for staged in stages[:stage_count] for part in staged]
    oldest_ms = min(segment_time_ms(part.ref.segment_id) for part in parts)
    age_ms = broker.clock.now_ms() - oldest_ms
    if age_ms > TRANSACTION_MS_MAX:
        raise PenstockError(
            ErrorCode.TRANSACTION_EXPIRED,
            f"transaction {number} of {producer.transactional_id!r} has staged data for {age_ms // 1_000} s: "
            f"{TRANSACTION_MS_MAX // 1_000} s at most. Abort it, and send its records again",
        )
    return parts


def _unconfirmed(broker: Broker, refs: Mapping[PartitionKey, Sequence[Ref]]) -> dict[PartitionKey, int]:
    """Which zones that take writes lack some of a partition's segments."""
    written = broker.zone_directory.find().written(broker.zone_names)
    unconfirmed: dict[PartitionKey, int] = {}
    for key, each in refs.items():
        for ref in each:
            unconfirmed[key] = unconfirmed.get(key, 0) | (written & ~ref.zones)
    return unconfirmed


def _offset_commit(broker: Broker, each: GroupOffset) -> OffsetCommit:
    topic, key = broker.directory.find_partition(each.topic, each.partition)
    if len(each.metadata.encode()) > COMMIT_METADATA_BYTES_MAX:
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"metadata of {len(each.metadata.encode())} bytes with an offset: {COMMIT_METADATA_BYTES_MAX} at most",
        )
    if (each.member_id is None) != (each.lease_epoch is None):
        raise PenstockError(
            ErrorCode.INVALID_REQUEST,
            f"the offset for partition {each.partition} of topic {each.topic!r:.100} names only one of member_id and "
            "lease_epoch: name both, or none for a partition that no member owns",
        )
    tenure = None
    if each.member_id is not None and each.lease_epoch is not None:
        tenure = Tenure(owner=member_name(each.member_id, each.instance_id), epoch=each.lease_epoch)
    committed = CommittedOffset(
        topic=topic.name,
        partition=key,
        offset=Offset(each.offset),
        metadata=each.metadata,
        committed_at_ms=broker.clock.now_ms(),
    )
    return OffsetCommit(group=parse_group_name(each.group), committed=committed, tenure=tenure)


def _find(
    broker: Broker,
    topic: str,
    key: PartitionKey,
    heads: Mapping[PartitionKey, Head],
    refs: Sequence[Ref],
    segments: set[SegmentId],
) -> Committed | None:
    """Where the partition's records are, None if they have expired. Its refs stand one behind the other, in the
    segments of whichever attempt was applied."""
    last = find_ref(broker, key, heads[key], lambda ref: ref.segment_id in segments) if key in heads else None
    if last is None:
        return None
    base_offset = Offset(last.end_offset - span(refs))
    return Committed(topic=topic, partition=key.partition, base_offset=base_offset, next_offset=last.end_offset)


def _roll(broker: Broker, heads: Mapping[PartitionKey, Head], refs: Mapping[PartitionKey, Sequence[Ref]]) -> None:
    """Keeps heads small, as every append does."""
    due = [(key, roll) for key, head in heads.items() if (roll := roll_due(head, len(refs[key]))) is not None]
    broker.parallel.map(lambda pair: broker.log.roll(*pair), due)
