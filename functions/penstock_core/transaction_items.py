"""DynamoDB items of transactional producers, in the log table: the producer's own, and its transactions' stages."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock_core import keys
from penstock_core.ids import SegmentId, TransactionalId
from penstock_core.items import Item, number
from penstock_core.keys import PartitionKey, parse_partition_key
from penstock_core.limits import TRANSACTION_MS_MAX
from penstock_core.ref import Ref, decode_ref, encode_ref
from penstock_core.transaction import TransactionalProducer, TransactionState

_KEPT_S = 24 * 3_600  # far longer than a transaction may last
assert _KEPT_S * 1_000 > TRANSACTION_MS_MAX


class StagedRef(NamedTuple):
    """A ref that a transaction will append, if it commits; and the name that the topic had."""

    topic: str
    key: PartitionKey
    ref: Ref


def state_key(transactional_id: TransactionalId) -> Item:
    return {"pk": {"S": keys.transactional_key(transactional_id)}, "sk": {"S": keys.TRANSACTIONAL_PRODUCER}}


def parse_state(item: Mapping[str, Any]) -> TransactionState:
    segments = item["segment_ids"]["B"]
    return TransactionState(
        producer_id=int(item["producer_id"]["N"]),
        epoch=int(item["epoch"]["N"]),
        number=int(item["transaction_number"]["N"]),
        segments=tuple(SegmentId(segments[at : at + 16]) for at in range(0, len(segments), 16)),
    )


def stage_item(
    producer: TransactionalProducer, transaction: int, stage: int, refs: Sequence[StagedRef], now_ms: int
) -> Item:
    """What a stage has put; DynamoDB removes it some time after `expires_at_s`."""
    return {
        "pk": {"S": keys.transactional_key(producer.transactional_id)},
        "sk": {"S": f"{keys.stage_prefix(producer.epoch, transaction)}{stage:05d}"},
        "refs": {"L": [{"M": _staged(each)} for each in refs]},
        "expires_at_s": number(now_ms // 1_000 + _KEPT_S),
    }


def _staged(each: StagedRef) -> Item:
    return {"topic": {"S": each.topic}, "partition": {"S": str(each.key)}, "ref": {"B": encode_ref(each.ref)}}


def parse_stage(item: Mapping[str, Any]) -> Sequence[StagedRef]:
    return [
        StagedRef(
            topic=each["M"]["topic"]["S"],
            key=parse_partition_key(each["M"]["partition"]["S"]),
            ref=decode_ref(each["M"]["ref"]["B"]),
        )
        for each in item["refs"]["L"]
    ]
