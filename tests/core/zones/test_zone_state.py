import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import ZoneName
from penstock_core.zones.zone_state import (
    BARRIER_MS,
    EVERY_ZONE_IN_SYNC,
    TRANSITIONS,
    Acks,
    Mover,
    ZoneState,
    ZoneStates,
    ZoneStatus,
    is_stored,
    majority_of,
    may_end_pass,
    move,
    read_order,
)

A, B, C = ZONES = [ZoneName(name) for name in "abc"]
IN, OUT, UP, TAKEN = ZoneStatus.IN_SYNC, ZoneStatus.OUT_OF_SYNC, ZoneStatus.CATCHING_UP, ZoneStatus.TAKEN_OUT
ALLOWED = {
    (IN, OUT, Mover.APPENDER),
    (UP, OUT, Mover.APPENDER),
    (OUT, UP, Mover.RECOVERY),
    (UP, IN, Mover.RECOVERY),
    (IN, TAKEN, Mover.OPERATOR),
    (UP, TAKEN, Mover.OPERATOR),
    (OUT, TAKEN, Mover.OPERATOR),
    (TAKEN, UP, Mover.OPERATOR),
    (IN, UP, Mover.OPERATOR),
}


def states_of(*statuses: ZoneStatus) -> ZoneStates:
    by_zone = {
        zone: ZoneState(status=status, version=3, since_ms=1, reason="r")
        for zone, status in zip(ZONES, statuses, strict=False)
    }
    return ZoneStates(version=7, by_zone=by_zone)


@pytest.mark.parametrize(("before", "to", "mover"), list(itertools.product(ZoneStatus, ZoneStatus, Mover)))
def test_only_the_moves_of_the_table_are_made(before: ZoneStatus, to: ZoneStatus, mover: Mover) -> None:
    states = states_of(before)
    if (before, to, mover) in ALLOWED:
        moved = move(states, ZONES, A, to, mover, now_ms=99, reason="why")
        assert moved == ZoneStates(version=8, by_zone={A: ZoneState(status=to, version=8, since_ms=99, reason="why")})
    else:
        with pytest.raises(PenstockError) as caught:
            move(states, ZONES, A, to, mover, now_ms=99, reason="why")
        assert caught.value.code is ErrorCode.ZONE_STATE_CONFLICT
        assert before.value in caught.value.message


def test_table_has_no_other_moves() -> None:
    assert {(before, to, mover) for (before, to), mover in TRANSITIONS.items()} == ALLOWED


def test_unknown_zone_is_refused_with_those_there_are() -> None:
    with pytest.raises(PenstockError, match=r"'d'.*a, b, c") as caught:
        move(EVERY_ZONE_IN_SYNC, ZONES, ZoneName("d"), TAKEN, Mover.OPERATOR, now_ms=0, reason="")
    assert caught.value.code is ErrorCode.UNKNOWN_ZONE


@pytest.mark.parametrize(("to", "mover"), [(OUT, Mover.APPENDER), (TAKEN, Mover.OPERATOR), (UP, Mover.OPERATOR)])
def test_zone_does_not_leave_when_no_majority_would_be_left_in_sync(to: ZoneStatus, mover: Mover) -> None:
    for other in (OUT, UP, TAKEN):
        with pytest.raises(PenstockError, match="1 of 3 zones would be left in sync"):
            move(states_of(IN, other), ZONES, A, to, mover, now_ms=0, reason="")


def test_zone_that_catches_up_is_spared_by_appenders_while_too_few_are_in_sync() -> None:
    with pytest.raises(PenstockError, match="1 of 3"):
        move(states_of(UP, OUT), ZONES, A, OUT, Mover.APPENDER, now_ms=0, reason="")
    assert move(states_of(UP, OUT), ZONES, A, TAKEN, Mover.OPERATOR, now_ms=0, reason="").of(A).status is TAKEN


@given(
    st.lists(
        st.tuples(st.sampled_from(ZONES), st.sampled_from(ZoneStatus), st.sampled_from(Mover)),
        max_size=60,
    )
)
def test_a_majority_stays_in_sync_and_versions_never_repeat(
    attempts: list[tuple[ZoneName, ZoneStatus, Mover]],
) -> None:
    states = EVERY_ZONE_IN_SYNC
    seen: dict[int, ZoneStates] = {0: states}
    for now_ms, (zone, to, mover) in enumerate(attempts):
        try:
            states = move(states, ZONES, zone, to, mover, now_ms=now_ms, reason="")
        except PenstockError:
            continue
        assert states.version not in seen
        assert states.of(zone).version == states.version
        seen[states.version] = states
        assert states.in_sync(ZONES).bit_count() >= majority_of(len(ZONES))
        assert states.in_sync(ZONES) & ~states.written(ZONES) == 0


def test_zones_in_sync_and_catching_up_are_written() -> None:
    states = states_of(UP, OUT, TAKEN)
    assert (states.in_sync(ZONES), states.written(ZONES)) == (0b000, 0b001)
    assert (states_of(IN, UP).in_sync(ZONES), states_of(IN, UP).written(ZONES)) == (0b101, 0b111)


@given(st.sampled_from(Acks), st.integers(1, 8), st.data())
def test_append_is_stored_as_its_acks_say(acks: Acks, configured: int, data: st.DataObject) -> None:
    bitmaps = st.integers(0, (1 << configured) - 1)
    confirmed, awaited, wanted = data.draw(bitmaps), data.draw(bitmaps), data.draw(st.integers(1, 8))
    stored = is_stored(acks, confirmed, awaited, configured, wanted)
    majority = 2 * confirmed.bit_count() > configured
    missing = any(awaited >> zone & 1 and not confirmed >> zone & 1 for zone in range(configured))
    enough = confirmed.bit_count() >= min(wanted, configured)
    assert (
        stored
        == {
            Acks.NONE: confirmed > 0,
            Acks.ONE: confirmed > 0,
            Acks.QUORUM: majority,
            Acks.ALL: majority and enough and not missing,
        }[acks]
    )
    if stored:
        assert is_stored(acks, confirmed | data.draw(bitmaps), awaited, configured, wanted), "one more cannot spoil it"


def test_pass_may_end_a_catch_up_only_when_it_began_after_the_barrier() -> None:
    state = ZoneState(status=UP, since_ms=1_000)
    assert not may_end_pass(state, 1_000 + BARRIER_MS - 1)
    assert may_end_pass(state, 1_000 + BARRIER_MS)
    for status in (IN, OUT, TAKEN):
        assert not may_end_pass(ZoneState(status=status), 10**15)


def test_readers_ask_who_confirmed_then_who_may_have_it_then_who_is_out() -> None:
    confirmed = frozenset([B, C])
    assert read_order(EVERY_ZONE_IN_SYNC, [A, B, C], confirmed) == [B, C, A]
    assert read_order(EVERY_ZONE_IN_SYNC, [C, A, B], confirmed) == [C, B, A]
    assert read_order(states_of(UP, OUT, IN), [A, B, C], confirmed) == [C, A, B]
    assert read_order(states_of(IN, OUT, TAKEN), [A, B, C], frozenset(ZONES)) == [A, B, C]
