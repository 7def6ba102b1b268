"""The contract of ZoneStateStore, held by the adapters in memory and on DynamoDB."""

from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import ZoneName
from penstock_core.zones.zone_state import (
    EVERY_ZONE_IN_SYNC,
    CatchUpPass,
    Cursor,
    Mover,
    Progress,
    ZoneStates,
    ZoneStatus,
    move,
)
from tests.contract.conftest import Ports

ZONES = [ZoneName(name) for name in "abc"]


def _out(states: ZoneStates, zone: str, reason: str = "é: it is gone") -> ZoneStates:
    return move(states, ZONES, ZoneName(zone), ZoneStatus.TAKEN_OUT, Mover.OPERATOR, now_ms=5, reason=reason)


def test_every_zone_is_in_sync_at_first(ports: Ports) -> None:
    assert ports.zone_states.get() == EVERY_ZONE_IN_SYNC


def test_change_is_kept_whole(ports: Ports) -> None:
    out = _out(EVERY_ZONE_IN_SYNC, "b")
    ports.zone_states.change(EVERY_ZONE_IN_SYNC, out)
    assert ports.zone_states.get() == out
    again = move(out, ZONES, ZoneName("b"), ZoneStatus.CATCHING_UP, Mover.OPERATOR, now_ms=6, reason="")
    ports.zone_states.change(out, again)
    assert ports.zone_states.get() == again


def test_change_is_refused_when_any_zone_was_changed_meanwhile(ports: Ports) -> None:
    theirs = _out(EVERY_ZONE_IN_SYNC, "a")
    ports.zone_states.change(EVERY_ZONE_IN_SYNC, theirs)
    for seen in (EVERY_ZONE_IN_SYNC, replace(theirs, version=7)):
        with pytest.raises(PenstockError) as caught:
            ports.zone_states.change(seen, _out(EVERY_ZONE_IN_SYNC, "b"))
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.CONCURRENT_UPDATE, False)
    assert ports.zone_states.get() == theirs


def test_states_meet_no_topic(ports: Ports) -> None:
    ports.zone_states.change(EVERY_ZONE_IN_SYNC, _out(EVERY_ZONE_IN_SYNC, "a"))
    ports.zone_states.save_pass(None, CatchUpPass(zones={}, began_ms=0))
    assert ports.topics.list() == []


def test_pass_is_kept_whole(ports: Ports) -> None:
    assert ports.zone_states.get_pass() is None
    first = CatchUpPass(zones={ZoneName("c"): 4}, began_ms=9, saves=1)
    ports.zone_states.save_pass(None, first)
    assert ports.zone_states.get_pass() == first
    done = Progress(refs=5, segments=2, bytes=2**40, failures=1)
    second = replace(first, saves=2, cursor=Cursor("orders", 3, 2**50), progress=done)
    ports.zone_states.save_pass(first, second)
    assert ports.zone_states.get_pass() == second


def test_pass_is_refused_when_another_keeper_has_saved(ports: Ports) -> None:
    first = CatchUpPass(zones={}, began_ms=9, saves=1)
    ports.zone_states.save_pass(None, first)
    for seen in (None, replace(first, saves=2)):
        with pytest.raises(PenstockError) as caught:
            ports.zone_states.save_pass(seen, replace(first, saves=3))
        assert caught.value.code is ErrorCode.CONCURRENT_UPDATE
    assert ports.zone_states.get_pass() == first
