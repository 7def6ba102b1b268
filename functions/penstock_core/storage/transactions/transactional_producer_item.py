"""The item of a transactional producer. A commit of its transaction moves it on, in the same write (docs/adr/0011).

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

from collections.abc import Iterator, Mapping
from typing import Any

from penstock_core.formats import check_item
from penstock_core.ids import NO_NONCE, NONCE_BYTES, SEGMENT_ID_BYTES, Nonce, SegmentId, TransactionalId
from penstock_core.storage import keys
from penstock_core.storage.item import Item
from penstock_core.transaction import TransactionState


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
