import pytest

from penstock_core.ids import Offset
from penstock_core.log.index import Page
from penstock_core.log.ref import encode_ref
from penstock_core.records.producer_state import ProducerState, encode_state
from penstock_core.storage.head_item import head_key
from penstock_core.storage.head_updates import (
    WAITER_ATTRIBUTES,
    arming,
    producers_removal,
    push_arming,
    tail_shortening,
)
from penstock_core.storage.item import ConditionalUpdate
from tests.core.log.test_ref import GOLDEN
from tests.core.storage.stored_values import KEY


@pytest.mark.parametrize(
    ("update", "attribute", "value"),
    [(arming(KEY, Offset(7), 5), "waiter", "5"), (push_arming(KEY, Offset(7)), "push_waiter", "1")],
)
def test_arming_sets_its_attribute_and_wakes_no_repair(update: ConditionalUpdate, attribute: str, value: str) -> None:
    assert update.update == f"SET {attribute} = :waits, under_replicated = :none"
    assert update.condition == "next_offset = :seen"
    assert update.values == {":waits": {"N": value}, ":seen": {"N": "7"}, ":none": {"N": "0"}}
    assert (attribute in WAITER_ATTRIBUTES) is (attribute == "waiter"), "a reader may not arm for subscriptions"


def test_tail_shortening_removes_from_the_last_to_the_first_what_the_page_holds() -> None:
    page = Page(base_offset=Offset(10), refs=(GOLDEN, GOLDEN), max_timestamp_ms=5, rolled_bytes=9)
    update = tail_shortening(KEY, page)
    assert update.key == head_key(KEY)
    assert update.update.endswith("REMOVE tail[1], tail[0]")
    assert update.condition == "tail_base = :base AND tail[0] = :r0 AND tail[1] = :r1"
    assert update.values == {
        ":base": {"N": "10"},
        ":end": {"N": "16"},
        ":newest": {"N": "5"},
        ":bytes": {"N": "9"},
        ":r0": {"B": encode_ref(GOLDEN)},
        ":r1": {"B": encode_ref(GOLDEN)},
    }


def test_producers_removal_takes_each_entry_as_it_was_seen() -> None:
    states = {each: ProducerState(epoch=0, last_sequence=each, written_ms=0) for each in (7, 8)}
    update = producers_removal(KEY, states)
    assert update.update == "SET evictions = evictions + :one REMOVE producers.#p0, #p0o, producers.#p1, #p1o"
    assert update.condition == "producers.#p0 = :p0 AND producers.#p1 = :p1"
    producers = {"#p0": "AAAAAAAAAAc", "#p1": "AAAAAAAAAAg"}
    assert update.names == producers | {f"{name}o": f"o#{producer}" for name, producer in producers.items()}
    assert update.values == {
        ":one": {"N": "1"},
        ":p0": {"B": encode_state(states[7])},
        ":p1": {"B": encode_state(states[8])},
    }
