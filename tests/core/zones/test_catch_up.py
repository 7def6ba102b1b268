from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import ZoneName
from penstock_core.zones.zone_state import (
    BARRIER_MS,
    START,
    CatchUpPass,
    Cursor,
    Progress,
    ZoneState,
    ZoneStates,
    ZoneStatus,
    advance,
    begin_pass,
    zones_catching_up,
    zones_caught_up,
)

A, B, C = map(ZoneName, "abc")
UP = ZoneState(status=ZoneStatus.CATCHING_UP, version=4, since_ms=1_000)
STATES = ZoneStates(version=4, by_zone={B: UP, C: replace(UP, status=ZoneStatus.OUT_OF_SYNC, version=3)})
ENDED = CatchUpPass(zones={B: 4}, began_ms=1_000 + BARRIER_MS)
PROGRESS = st.builds(Progress, refs=st.integers(0, 99), failures=st.integers(0, 99))


def test_pass_is_for_the_zones_that_catch_up_by_the_versions_of_their_states() -> None:
    assert zones_catching_up(STATES, [A, B, C]) == {B: 4}
    assert zones_catching_up(ZoneStates(), [A, B, C]) == {}


def test_new_pass_begins_at_the_start_over_the_one_before() -> None:
    first = begin_pass(None, {B: 4}, 9)
    assert first == CatchUpPass(zones={B: 4}, began_ms=9, saves=1, cursor=START, progress=Progress())
    stored = advance(first, Cursor("orders", 3, 17), Progress(refs=5))
    assert begin_pass(stored, {B: 6}, 20) == CatchUpPass(zones={B: 6}, began_ms=20, saves=3)


@given(st.lists(PROGRESS, max_size=5))
def test_portions_add_up_and_each_is_one_save(portions: list[Progress]) -> None:
    current = begin_pass(None, {B: 4}, 9)
    for number, done in enumerate(portions):
        current = advance(current, Cursor("orders", 0, number), done)
    assert current.saves == 1 + len(portions)
    assert current.progress.refs == sum(done.refs for done in portions)
    assert current.progress.failures == sum(done.failures for done in portions)
    assert current.cursor == (Cursor("orders", 0, len(portions) - 1) if portions else START)


def test_progress_adds_every_count() -> None:
    one = Progress(refs=1, segments=2, bytes=3, failures=4, lost=5)
    assert one.plus(one) == Progress(refs=2, segments=4, bytes=6, failures=8, lost=10)


@pytest.mark.parametrize(
    ("ended", "states", "zones"),
    [
        (ENDED, STATES, [B]),
        (replace(ENDED, progress=Progress(lost=3)), STATES, [B]),
        (replace(ENDED, progress=Progress(failures=1)), STATES, []),
        (replace(ENDED, began_ms=ENDED.began_ms - 1), STATES, []),
        (replace(ENDED, zones={B: 3}), STATES, []),
        (replace(ENDED, zones={C: 3}), STATES, []),
        (ENDED, ZoneStates(), []),
    ],
)
def test_zone_is_caught_up_only_by_a_late_whole_pass_over_its_present_state(
    ended: CatchUpPass, states: ZoneStates, zones: list[ZoneName]
) -> None:
    assert zones_caught_up(ended, states) == zones
