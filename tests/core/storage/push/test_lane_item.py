from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.push.lane import LaneState
from penstock_core.storage.item import ConditionalPut, ConditionalUpdate, item_bytes
from penstock_core.storage.push.delivery_item import lane_item, lane_write, parse_lane, parse_lane_number
from tests.core.push.push_samples import LANE

HELD = LaneState(
    version=4,
    seen_version=2,
    holder="m-1",
    nonce="n-1",
    locked_until_ms=1_790_000_065_000,
    sleeper="m-2",
    due_ms=1_790_000_100_000,
    deaths=1,
)


@given(st.from_type(LaneState))
def test_lane_is_read_back(state: LaneState) -> None:
    state = state if state.looker else replace(state, look_ms=0)
    item = lane_item(LANE, state)
    assert parse_lane(item) == state
    assert parse_lane_number(item) == LANE.lane


def test_item_is_what_is_stored_today() -> None:
    assert lane_item(LANE, HELD) == {
        "pk": {"S": f"push#{'ab' * 10}"},
        "sk": {"S": "lane#3"},
        "version": {"N": "4"},
        "seen_version": {"N": "2"},
        "holder": {"S": "m-1"},
        "nonce": {"S": "n-1"},
        "locked_until_ms": {"N": "1790000065000"},
        "sleeper": {"S": "m-2"},
        "due_ms": {"N": "1790000100000"},
        "deaths": {"N": "1"},
    }
    assert item_bytes(lane_item(LANE, HELD)) < 256


def test_lane_with_a_looker_has_two_attributes_more_and_its_next_write_removes_them() -> None:
    item = lane_item(LANE, replace(HELD, looker="m-3", look_ms=1_790_000_090_000))
    assert item == {
        **lane_item(LANE, HELD),
        "looker": {"S": "m-3"},
        "look_ms": {"N": "1790000090000"},
    }
    later = lane_write(LANE, HELD)
    assert isinstance(later, ConditionalUpdate)
    assert later.update.endswith(" REMOVE #new_looker, #new_look_ms")


def test_first_write_expects_no_item_and_each_other_one_the_version_before() -> None:
    first, later = lane_write(LANE, LaneState(version=1)), lane_write(LANE, HELD)
    assert isinstance(first, ConditionalPut)
    assert first.condition == "attribute_not_exists(pk)"
    assert isinstance(later, ConditionalUpdate)
    assert (later.condition, later.values[":seen_version"]) == ("version = :seen_version", {"N": "3"})
