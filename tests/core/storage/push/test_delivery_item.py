from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import Offset, Partition, SubscriptionId, TopicId
from penstock_core.limits import PUSH_ERROR_LENGTH_MAX
from penstock_core.push.delivery import DeliveryKey, DeliveryState, Trouble, Window
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, item_bytes
from penstock_core.storage.push.delivery_item import (
    delivery_item,
    delivery_write,
    parse_delivery,
    parse_delivery_key,
)
from tests.core.push.push_samples import DELIVERY

TROUBLE = Trouble(first_failed_ms=5, range_end=Offset(9), attempts=2, error="é")
STATE = DeliveryState(offset=Offset(90), version=4, next_try_ms=7, succeeded_ms=8, proof_ms=6, trouble=TROUBLE)


@given(st.from_type(DeliveryState))
def test_state_is_read_back(state: DeliveryState) -> None:
    """Each field that state and trouble have, so that a field of another type cannot be stored wrongly."""
    assert parse_delivery(delivery_item(DELIVERY, state)) == state


def test_key_is_read_back_also_for_the_lane_of_a_parallel_subscription() -> None:
    no_topic = DeliveryKey(subscription_id=SubscriptionId("ab"), topic_id=TopicId(""), partition=Partition(4))
    for key in (DELIVERY, no_topic):
        assert parse_delivery_key(delivery_item(key, STATE)) == key


def test_item_is_what_is_stored_today() -> None:
    assert delivery_item(DELIVERY, STATE) == {
        "pk": {"S": f"push#{'ab' * 10}"},
        "sk": {"S": "delivery#00ff#7"},
        "version": {"N": "4"},
        "offset": {"N": "90"},
        "next_try_ms": {"N": "7"},
        "succeeded_ms": {"N": "8"},
        "proof_ms": {"N": "6"},
        "dead_lettered": {"N": "0"},
        "expired": {"N": "0"},
        "trouble": {"S": '{"attempts":2,"error":"\\u00e9","first_failed_ms":5,"range_end":9}'},
    }


def test_item_stays_small_with_the_longest_error() -> None:
    for error, write_units in (("e" * PUSH_ERROR_LENGTH_MAX, 1), ("𝄞" * PUSH_ERROR_LENGTH_MAX, 7)):
        state = DeliveryState(
            offset=Offset(2**62), trouble=Trouble(first_failed_ms=2**50, range_end=Offset(9), error=error)
        )
        assert item_bytes(delivery_item(DELIVERY, state)) < write_units * 1_024


def test_error_that_is_no_unicode_text_is_read_back() -> None:
    """A target may answer half a surrogate pair in JSON, which no UTF-8 can hold."""
    state = DeliveryState(offset=Offset(1), trouble=Trouble(first_failed_ms=1, range_end=Offset(9), error="\ud800"))
    item = delivery_item(DELIVERY, state)
    assert item["trouble"]["S"].isascii()
    assert parse_delivery(item) == state


def test_field_of_trouble_that_a_later_release_has_stored_is_passed_over() -> None:
    item = delivery_item(DELIVERY, STATE) | {
        "trouble": {"S": '{"first_failed_ms":5,"range_end":9,"attempts":2,"later":1}'}
    }
    assert parse_delivery(item).trouble == Trouble(first_failed_ms=5, range_end=Offset(9), attempts=2)


def test_number_that_an_older_release_has_not_stored_has_its_default() -> None:
    item = {name: value for name, value in delivery_item(DELIVERY, STATE).items() if name != "succeeded_ms"}
    assert parse_delivery(item).succeeded_ms == 0


def test_window_is_stored_beside_the_numbers_and_a_later_field_of_it_is_passed_over() -> None:
    window = Window(began_ms=5, seen_offset=Offset(92), quiet_until_ms=6, looks=2)
    item = delivery_item(DELIVERY, replace(STATE, trouble=None, window=window))
    assert item["window"] == {"S": '{"began_ms":5,"looks":2,"quiet_until_ms":6,"seen_offset":92}'}
    text = item["window"]["S"].replace("}", ',"later":1}')
    assert parse_delivery(item | {"window": {"S": text}}).window == window


def test_write_expects_the_version_before_and_removes_documents_that_are_over() -> None:
    first = delivery_write(DELIVERY, DeliveryState(offset=Offset(0)))
    assert isinstance(first, ConditionalPut)
    later = delivery_write(DELIVERY, DeliveryState(offset=Offset(0), version=2))
    assert isinstance(later, ConditionalUpdate)
    assert later.update.endswith(" REMOVE #new_trouble, #new_window, #new_offsets, #new_timers")
    assert (later.condition, later.values[":seen_version"]) == ("version = :seen_version", {"N": "1"})
