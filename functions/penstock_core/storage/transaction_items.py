"""The item of one stage of a transaction: refs to data that is stored, and invisible until the transaction commits.

```
log table   pk "#transactional#<transactional id>"   sk "stage#<epoch, 5 digits>#<transaction, 20>:<nonce>#<stage, 5>"
refs           L   each M: topic S (its name), partition S ("<topic id>#<partition>"), ref B (log/ref.py);
                   of delayed records also due_ms N, timer_id B and crc N, as their timer will have them
expires_at_s   N   DynamoDB removes the item some time after it: a day after the stage was put
```
The nonce is that of the transaction, in hexadecimal. So a stage that arrives late never replaces a stage of another
transaction, although an aborted transaction and the next one have the same number (docs/protocol/transactions). A
transaction without a nonce has keys without `:<nonce>`.

The item of a transactional producer. A commit of its transaction moves it on, in the same write (docs/adr/0011).

```
log table   pk "#transactional#<transactional id>"   sk "producer"
producer_id          N   drawn with the first epoch
epoch                N   of the newest instance
transaction_number   N   of the last committed transaction; before the first, the time of the first begin in ms - 1
transaction_nonce    B   of that transaction, 16 bytes; empty if its client sent none
segment_ids          B   the segments of that transaction, 16 bytes each
begin_nonces         B   of the last begins, the newest first, 16 bytes each
principal            S   a hash of the IAM role or user that the id belongs to; empty if it belongs to nobody
expires_at_s         N   DynamoDB removes the item some time after it: `TRANSACTIONAL_ID_KEPT_MS` after the last use
```
Items of earlier versions lack the nonces, the principal and the end. The next begin or commit sets the end. An item
past its end counts until it is removed, and every write asks that it is still there (docs/protocol/transactions).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from penstock_core.formats import check_item
from penstock_core.ids import (
    NO_NONCE,
    NONCE_BYTES,
    SEGMENT_ID_BYTES,
    Nonce,
    PartitionKey,
    SegmentId,
    TimerId,
    TransactionalId,
    parse_partition_key,
)
from penstock_core.limits import TRANSACTION_MS_MAX
from penstock_core.log.ref import Ref, decode_ref, encode_ref
from penstock_core.log.timer import TimerPlace
from penstock_core.storage import keys
from penstock_core.storage.item import Item, number
from penstock_core.transaction import TransactionalProducer, TransactionState

_KEPT_S = 24 * 3_600  # far longer than a transaction may last


assert _KEPT_S * 1_000 > TRANSACTION_MS_MAX


class StagedRef(NamedTuple):
    """A ref that a transaction will append if it commits, with the name that the topic had.

    With a `place`, it will wait there in a timer instead. `crc` is the CRC-32C of its batches then.
    """

    topic: str
    key: PartitionKey
    ref: Ref
    place: TimerPlace | None = None
    crc: int = 0


def stage_prefix(epoch: int, number: int, nonce: Nonce) -> str:
    """The prefix of the sort keys of all stages of transaction `number` with this nonce."""
    return f"stage#{epoch:05d}#{number:020d}{f':{nonce.hex()}' if nonce else ''}#"


def stage_item(
    producer: TransactionalProducer, transaction: int, nonce: Nonce, stage: int, refs: Sequence[StagedRef], now_ms: int
) -> Item:
    """The whole item, for a PutItem; `stage` counts from 0."""
    return {
        "pk": {"S": keys.transactional_key(producer.transactional_id)},
        "sk": {"S": f"{stage_prefix(producer.epoch, transaction, nonce)}{stage:05d}"},
        "refs": {"L": [{"M": _staged(each)} for each in refs]},
        "expires_at_s": number(now_ms // 1_000 + _KEPT_S),
    }


def _staged(each: StagedRef) -> Item:
    timer: Item = {}
    if each.place is not None:
        timer = {
            "due_ms": number(each.place.due_ms),
            "timer_id": {"B": each.place.timer_id},
            "crc": number(each.crc),
        }
    return {"topic": {"S": each.topic}, "partition": {"S": str(each.key)}, "ref": {"B": encode_ref(each.ref)}, **timer}


def _place(fields: Mapping[str, Any]) -> TimerPlace | None:
    if "due_ms" not in fields:
        return None
    return TimerPlace(int(fields["due_ms"]["N"]), TimerId(bytes(fields["timer_id"]["B"])))


def parse_stage(item: Mapping[str, Any]) -> Sequence[StagedRef]:
    """The refs of the item, in the order in which they were staged."""
    check_item("transaction_stage", item)
    return [
        StagedRef(
            topic=each["M"]["topic"]["S"],
            key=parse_partition_key(each["M"]["partition"]["S"]),
            ref=decode_ref(each["M"]["ref"]["B"]),
            place=_place(each["M"]),
            crc=int(each["M"].get("crc", {"N": "0"})["N"]),
        )
        for each in item["refs"]["L"]
    ]


def state_key(transactional_id: TransactionalId) -> Item:
    """The key of the producer's own item."""
    return {"pk": {"S": keys.transactional_key(transactional_id)}, "sk": {"S": keys.TRANSACTIONAL_PRODUCER}}


def parse_state(item: Mapping[str, Any]) -> TransactionState:
    """The state that the item holds."""
    check_item("transactional_producer", item)
    return TransactionState(
        producer_id=int(item["producer_id"]["N"]),
        epoch=int(item["epoch"]["N"]),
        number=int(item["transaction_number"]["N"]),
        expires_at_s=int(item["expires_at_s"]["N"]) if "expires_at_s" in item else None,
        segments=tuple(SegmentId(each) for each in _pieces(item["segment_ids"]["B"], SEGMENT_ID_BYTES)),
        nonce=Nonce(item["transaction_nonce"]["B"]) if "transaction_nonce" in item else NO_NONCE,
        begins=tuple(Nonce(each) for each in _pieces(item["begin_nonces"]["B"], NONCE_BYTES))
        if "begin_nonces" in item
        else (),
        principal=item["principal"]["S"] if "principal" in item else "",
    )


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
