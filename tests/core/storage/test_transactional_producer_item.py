from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Nonce, SegmentId, TransactionalId
from penstock_core.storage.transaction_items import parse_state, state_key
from penstock_core.transaction import TransactionState


def test_key_of_a_producer_is_what_is_stored_today() -> None:
    assert state_key(TransactionalId("pay")) == {"pk": {"S": "#transactional#pay"}, "sk": {"S": "producer"}}


@given(st.lists(st.binary(min_size=16, max_size=16).map(SegmentId), max_size=3).map(tuple))
def test_state_is_read_from_its_item(segments: tuple[SegmentId, ...]) -> None:
    item: dict[str, Any] = {
        "producer_id": {"N": "7"},
        "epoch": {"N": "2"},
        "transaction_number": {"N": "-1"},
        "segment_ids": {"B": b"".join(segments)},
    }
    assert parse_state(item) == TransactionState(producer_id=7, epoch=2, number=-1, segments=segments)
    nonces = [Nonce(bytes([each]) * 16) for each in (1, 2, 3)]
    item |= {
        "transaction_nonce": {"B": nonces[0]},
        "begin_nonces": {"B": b"".join(nonces[1:])},
        "principal": {"S": "role"},
        "expires_at_s": {"N": "1900000000"},
    }
    assert parse_state(item) == TransactionState(
        producer_id=7,
        epoch=2,
        number=-1,
        segments=segments,
        nonce=nonces[0],
        begins=(nonces[1], nonces[2]),
        principal="role",
        expires_at_s=1_900_000_000,
    )
