from hypothesis import given

from penstock_core.records.producer_state import ProducerState
from penstock_core.storage.head_item import parse_producer, producer_item, producer_item_key, producer_put
from tests.core.records.test_producer_state import STATES
from tests.core.storage.stored_values import KEY


@given(STATES)
def test_producer_item_survives_a_round_trip(state: ProducerState) -> None:
    assert parse_producer(producer_item(KEY, 7, state, 1_000)) == state


def test_producer_item_is_what_is_stored_today() -> None:
    assert producer_item(KEY, 7, ProducerState(epoch=1, last_sequence=2, written_ms=3), 9_999) == {
        "pk": {"S": "00ff#7"},
        "sk": {"S": "producer#AAAAAAAAAAc"},
        "state": {"B": bytes.fromhex("00010000000200000000000300000000")},
        "expires_at_s": {"N": str(9 + 7 * 24 * 3_600)},
    }
    owned = ProducerState(epoch=1, last_sequence=2, written_ms=3, owner=b"ownerof7")
    assert producer_item(KEY, 7, owned, 9_999)["owner"] == {"B": b"ownerof7"}
    assert producer_item_key(KEY, 7) == {"pk": {"S": "00ff#7"}, "sk": {"S": "producer#AAAAAAAAAAc"}}


def test_producer_put_has_the_condition_that_a_newer_item_stays() -> None:
    put = producer_put(KEY, 7, ProducerState(epoch=1, last_sequence=2, written_ms=3), 9_999)
    assert put.item == producer_item(KEY, 7, ProducerState(epoch=1, last_sequence=2, written_ms=3), 9_999)
    assert put.values[":expires"] == put.item["expires_at_s"]
    assert put.values[":lowest"]["B"] <= put.item["state"]["B"] <= put.values[":highest"]["B"]
