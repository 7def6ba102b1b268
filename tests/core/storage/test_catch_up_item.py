from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import ZoneName
from penstock_core.storage.zone_states_item import catch_up_pass_item, catch_up_pass_key, parse_catch_up_pass
from penstock_core.zones.zone_state import CatchUpPass, Cursor, Progress
from tests.core.storage.stored_values import COUNTS

PROGRESS = st.builds(Progress, refs=COUNTS, segments=COUNTS, bytes=COUNTS, failures=COUNTS, lost=COUNTS)


@given(
    st.builds(
        CatchUpPass,
        zones=st.dictionaries(st.sampled_from("abc").map(ZoneName), COUNTS),
        began_ms=COUNTS,
        saves=COUNTS,
        cursor=st.builds(Cursor, st.text(), COUNTS, COUNTS),
        progress=PROGRESS,
    )
)
def test_pass_survives_a_round_trip(current: CatchUpPass) -> None:
    item = catch_up_pass_item(current)
    assert parse_catch_up_pass(item) == current
    assert {"pk": item["pk"], "sk": item["sk"]} == catch_up_pass_key()


def test_catch_up_pass_item_is_what_is_stored_today() -> None:
    current = CatchUpPass(
        zones={ZoneName("b"): 4},
        began_ms=9,
        saves=2,
        cursor=Cursor("orders", 3, 17),
        progress=Progress(refs=5, segments=4, bytes=3, failures=1, lost=2),
    )
    item = catch_up_pass_item(current)
    assert item == {
        "pk": {"S": "#zones"},
        "sk": {"S": "catch_up"},
        "saves": {"N": "2"},
        "began_ms": {"N": "9"},
        "zones": {"M": {"b": {"N": "4"}}},
        "cursor": {"L": [{"S": "orders"}, {"N": "3"}, {"N": "17"}]},
        "refs": {"N": "5"},
        "segments": {"N": "4"},
        "bytes": {"N": "3"},
        "failures": {"N": "1"},
        "lost": {"N": "2"},
    }
    assert parse_catch_up_pass(item) == current


def test_pass_that_an_older_release_began_has_lost_nothing() -> None:
    current = CatchUpPass(zones={}, began_ms=9, progress=Progress(refs=5))
    item = catch_up_pass_item(current)
    before_there_was_lost = {name: value for name, value in item.items() if name != "lost"}
    assert parse_catch_up_pass(before_there_was_lost).progress == replace(current.progress, lost=0)
