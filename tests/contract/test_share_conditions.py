"""A share item takes an update where each of its conditions holds, alone, in a move, and in a transaction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset
from penstock_core.share.draft import ShareUpdate, apply
from penstock_core.share.reasons import Reason
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import Lock, ShareState, Wait, lock_id
from penstock_core.transaction import Move, ShareCommit
from tests.contract.conftest import Ports
from tests.contract.test_share_store import KEY as SHARE
from tests.contract.test_transaction_store import FIRST, NAME, transaction
from tests.core.share.share_samples import NONCE, OTHER

LOCK = Lock(Offset(4), 50, 1, RecordSet(((0, 2),)))
WAIT, LATER = Wait(7, 1, RecordSet(((6, 8),))), Wait(7, 1, RecordSet(((9, 10),)))
HELD, GONE = lock_id(NONCE, 0), lock_id(OTHER, 0)
SAID, NEW = Reason("it is full", ((6, 8),)), Reason("für nichts", ((4, 5), (9, 10)))
HOLDING = ShareState(
    generation=2, position=Offset(20), open=4, locks={HELD: LOCK}, waits={Offset(6): WAIT}, reasons=(SAID,)
)
REFUSED: list[dict[str, Any]] = [
    {"generation": 1},
    {"generation": 3},
    {"position_between": (19, 19)},
    {"position_between": (21, 21)},
    {"position_between": (10, 19)},
    {"position_between": (21, 30)},
    {"open_max": 3},
    {"locks_max": 0},
    {"waits_max": 0},
    {"expected_locks": {HELD: None}, "locks": {HELD: LOCK}},
    {"expected_locks": {GONE: None, HELD: None}, "locks": {GONE: LOCK, HELD: LOCK}},
    {"expected_locks": {HELD: replace(LOCK, until_ms=51)}},
    {"expected_locks": {HELD: replace(LOCK, base=Offset(3))}},
    {"expected_locks": {HELD: replace(LOCK, base=Offset(5))}},
    {"expected_locks": {GONE: LOCK}},
    {"expected_waits": {Offset(6): None}},
    {"expected_waits": {Offset(6): replace(WAIT, deliveries=2)}},
    {"expected_waits": {Offset(9): LATER}},
    {"adds_reasons": [NEW], "reasons_count": 0},
    {"sets_reasons": [NEW], "reasons_count": 0},
    {"sets_reasons": [NEW], "reasons_count": 2},
]
TAKEN = [
    {"position_between": (20, 20)},
    {"position_between": (20, 30)},
    {"position_between": (10, 20)},
    {"open_max": 4},
    {"locks_max": 1},
    {"waits_max": 1},
    {"expected_locks": {HELD: LOCK, GONE: None}, "locks": {HELD: replace(LOCK, base=Offset(3)), GONE: LOCK}},
    {"expected_locks": {HELD: LOCK}, "locks": {HELD: None}},
    {"expected_waits": {Offset(6): WAIT, Offset(9): None}, "waits": {Offset(6): None, Offset(9): LATER}},
    {"adds_reasons": [NEW, SAID], "reasons_count": 1},
    {"sets_reasons": [NEW], "reasons_count": 1},
]


def _update(ports: Ports, update: ShareUpdate) -> bool:
    return ports.share.update(SHARE, update).is_applied


def _move(ports: Ports, update: ShareUpdate) -> bool:
    return ports.transactions.move(Move(shares=[ShareCommit(key=SHARE, update=update)], refs={})).is_applied


def _commit(ports: Ports, update: ShareUpdate) -> bool:
    wanted = transaction(refs={}, offsets=[], shares=[ShareCommit(key=SHARE, update=update)])
    try:
        return ports.transactions.commit(wanted)
    except PenstockError as error:
        return error.code is not ErrorCode.LOCK_LOST


@pytest.fixture
def holding(ports: Ports) -> Ports:
    """A share item in its third generation, with a lock and a wait, and a producer of transactions."""
    state = ports.share.create_state(SHARE, Offset(20))
    for _ in range(2):
        assert ports.share.reset(SHARE, state, Offset(20))
        state = ports.share.find_states([SHARE])[SHARE]
    filling = ShareUpdate(
        generation=2,
        expected_locks={HELD: None},
        expected_waits={Offset(6): None},
        locks={HELD: LOCK},
        waits={Offset(6): WAIT},
        open_delta=4,
        adds_reasons=[SAID],
        reasons_count=0,
    )
    assert _update(ports, filling)
    ports.transactions.begin_epoch(NAME, None, FIRST)
    assert ports.share.find_states([SHARE])[SHARE] == HOLDING
    return ports


WAYS = pytest.mark.parametrize("way", [_update, _move, _commit])


@WAYS
def test_share_item_takes_no_update_that_expects_something_else(
    holding: Ports, way: Callable[[Ports, ShareUpdate], bool]
) -> None:
    for facts in REFUSED:
        update = ShareUpdate(**{"generation": 2, "arms_ms": 5, **facts})
        assert apply(HOLDING, update) is None
        assert not way(holding, update), facts
        assert holding.share.find_states([SHARE])[SHARE] == HOLDING, facts


@WAYS
@pytest.mark.parametrize("facts", TAKEN, ids=str)
def test_share_item_takes_an_update_whose_bounds_are_just_met(
    holding: Ports, way: Callable[[Ports, ShareUpdate], bool], facts: Any
) -> None:
    update = ShareUpdate(**{"generation": 2, "arms_ms": 5, **facts})
    assert way(holding, update)
    assert holding.share.find_states([SHARE])[SHARE] == apply(HOLDING, update)


def test_reset_leaves_no_entry_that_could_come_back(holding: Ports) -> None:
    assert holding.share.reset(SHARE, HOLDING, Offset(1))
    again = ShareUpdate(
        generation=3,
        expected_locks={HELD: None},
        expected_waits={Offset(6): None},
        locks={HELD: LOCK},
        waits={Offset(6): WAIT},
    )
    assert _update(holding, again)
    assert holding.share.find_states([SHARE])[SHARE].reasons == ()
