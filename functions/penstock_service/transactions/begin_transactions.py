"""An instance of a transactional producer begins the next epoch. That fences the instance that had the last one.

A new instance begins whatever epoch there is. An instance that had an epoch, and could not learn what happened to a
request, begins another one only if its own is still the newest. Otherwise it is fenced: it must not fence the instance
that has taken over. A begin that arrives twice begins once (docs/protocol/transactions).

The offsets of a transaction that was committed, by this try or by an earlier one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import NO_NONCE, NONCE_BYTES, Nonce, Offset, PartitionKey, SegmentId, parse_transactional_id
from penstock_core.limits import TRANSACTION_BEGIN_ATTEMPTS_MAX
from penstock_core.log.index import Head
from penstock_core.records.producer_state import Verdict
from penstock_core.records.record_batch import validate
from penstock_core.transaction import Begin, TransactionalProducer, TransactionState, judge_begin, next_producer_epoch
from penstock_core.zones.zone_state import Acks
from penstock_service.index.reader import find_ref
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.ports.transactions import TransactionStore
from penstock_service.records.produce import ProduceEntry

NEW_INSTANCE = Begin(nonce=NO_NONCE)


def begin_transactions(instance: Instance, transactional_id: str, begin: Begin = NEW_INSTANCE) -> TransactionState:
    """The state to begin with. Its last transaction is committed, and no later one of an older instance ever will be.

    So no consumer ever sees data that an older instance staged and did not commit. A begin without nonce gets one: it
    repeats no other. The id is kept for `TRANSACTIONAL_ID_KEPT_MS` from now. One read and one update, and both again if
    another instance begins at the same time. Raises INVALID_NAME, CONCURRENT_UPDATE, PRODUCER_FENCED and ACCESS_DENIED.
    """
    name = parse_transactional_id(transactional_id)
    transactions, entropy = instance.stores.transactions, instance.entropy
    if not begin.nonce:
        nonce = Nonce(entropy.random_bytes(NONCE_BYTES))
        begin = Begin(nonce=nonce, last=begin.last, principal=begin.principal)
    for attempt in range(TRANSACTION_BEGIN_ATTEMPTS_MAX):
        old = transactions.get(name)
        if judge_begin(old, name, begin) is Verdict.REPEATS and old is not None:
            return old
        producer_id = int.from_bytes(entropy.random_bytes(8), "big") >> 1
        new = next_producer_epoch(old, producer_id, begin, instance.clock.now_ms())
        try:
            return transactions.begin_epoch(name, old, new)
        except PenstockError as error:
            if error.code is not ErrorCode.CONCURRENT_UPDATE or attempt == TRANSACTION_BEGIN_ATTEMPTS_MAX - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def release_transactional_id(transactions: TransactionStore, transactional_id: str) -> None:
    """Let the id belong to nobody: the next principal that begins with it has it.

    Epoch, number and stages stay. One conditional update. Raises INVALID_NAME and UNKNOWN_PRODUCER.
    """
    name = parse_transactional_id(transactional_id)
    if not transactions.release(name):
        raise PenstockError(
            ErrorCode.UNKNOWN_PRODUCER, f"no producer has ever begun with transactional id {name!r}: check its spelling"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPart:
    """One request of transaction `number` of the producer: its entries, to be put as `acks` asks for.

    All requests of one transaction carry its `nonce`. Groups that its commit makes count as those of `principal`.
    """

    producer: TransactionalProducer
    number: int
    entries: Sequence[ProduceEntry]
    acks: Acks
    nonce: Nonce = NO_NONCE
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """The transaction's records of one partition have the offsets `[base_offset, next_offset)`."""

    topic: str
    partition: int
    base_offset: Offset
    next_offset: Offset


def spans_of(instance: Instance, last: TransactionPart, stage_count: int) -> dict[PartitionKey, tuple[str, int]]:
    """The topic's name and the number of offsets for each partition of the transaction.

    Without those of a topic that is gone. None at all if stages are gone: nobody knows where their records begin.
    """
    stages = instance.stores.transactions.stages(last.producer, last.number, last.nonce) if stage_count else []
    if len(stages) < stage_count:
        return {}
    parts = [
        (each.key, each.topic, each.ref.offset_span)
        for staged in stages[:stage_count]
        for each in staged
        if each.place is None
    ]
    for entry in (each for each in last.entries if each.timer is None):
        try:
            _, key = instance.topic_cache.get_partition(entry.topic, entry.partition)
        except PenstockError as error:
            if error.code.is_retriable:
                raise
            continue
        parts.append((key, entry.topic, validate(entry.data).offset_span))
    spans: dict[PartitionKey, tuple[str, int]] = {}
    for key, topic, count in parts:
        spans[key] = topic, count + spans.get(key, (topic, 0))[1]
    return spans


def committed_ranges(
    log: LogIndex,
    spans: Mapping[PartitionKey, tuple[str, int]],
    heads: Mapping[PartitionKey, Head],
    segments: set[SegmentId],
) -> list[CommittedRange]:
    """Where the records of these partitions lie, by the `segments` that hold them.

    One query for each 100 pages down to them. A partition whose records have expired is missing.
    """
    found = {key: _find_end(log, key, heads.get(key), segments) for key in spans}
    return [
        CommittedRange(
            topic=spans[key][0],
            partition=key.partition,
            base_offset=Offset(end_offset - spans[key][1]),
            next_offset=end_offset,
        )
        for key, end_offset in found.items()
        if end_offset is not None
    ]


def _find_end(log: LogIndex, key: PartitionKey, head: Head | None, segments: set[SegmentId]) -> Offset | None:
    """The end offset of the transaction's records in the partition, None if they have expired or it is gone.

    Its refs lie side by side there, in `segments`: those of the attempt that was applied.
    """
    last = None if head is None else find_ref(log, key, head, lambda ref: ref.segment_id in segments)
    return None if last is None else last.end_offset
