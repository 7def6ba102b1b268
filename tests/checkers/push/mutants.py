"""The searches of lanes, and the wrong lanes and deliveries that a search must find: each leaves out one rule of
docs/adr/0042."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from penstock_core.push import lane
from penstock_core.push.lane import Drop, LaneState, Postpone, Turn
from tests.checkers.breadth_first import Checker, Mutant
from tests.checkers.push.delivery import SHIPPED, Rules
from tests.checkers.push.model import Bounds, Model

Decision = LaneState | Drop | Postpone


def _taken(change: Callable[[LaneState | None, Turn, Decision], Decision]) -> AbstractContextManager[Any]:
    shipped = lane.take
    return patch.object(lane, "take", lambda state, turn: change(state, turn, shipped(state, turn)))


def _held_deletes_its_own_message() -> AbstractContextManager[Any]:
    def deletes(state: LaneState | None, turn: Turn, decision: Decision) -> Decision:
        is_own = state is not None and turn.message_id == state.holder
        return Drop() if is_own and isinstance(decision, Postpone) else decision

    return _taken(deletes)


def _held_deletes_the_sleeper() -> AbstractContextManager[Any]:
    def deletes(state: LaneState | None, turn: Turn, decision: Decision) -> Decision:
        is_sleeper = state is not None and turn.message_id == state.sleeper != state.holder
        return Drop() if is_sleeper and isinstance(decision, Postpone) else decision

    return _taken(deletes)


def _drop_ignores_the_version() -> AbstractContextManager[Any]:
    def ignores(state: LaneState | None, turn: Turn, decision: Decision) -> Decision:
        is_own = state is not None and turn.message_id in (state.holder, state.sleeper)
        return Drop() if isinstance(decision, Postpone) and not is_own else decision

    return _taken(ignores)


def _finish_keeps_its_own_sleeper() -> AbstractContextManager[Any]:
    def keeping(state: LaneState) -> LaneState:
        after = shipped(state)
        return replace(after, sleeper=state.sleeper, due_ms=state.due_ms)

    shipped = lane.finish
    return patch.object(lane, "finish", keeping)


def _rest_trusts(is_covered: Callable[[LaneState, int, int], bool]) -> AbstractContextManager[Any]:
    shipped = lane.rest

    def trusting(state: LaneState, due_ms: int, now_ms: int) -> LaneState:
        after = shipped(state, due_ms, now_ms)
        has_sleeper = state.sleeper not in (lane.NO_MESSAGE, state.holder)
        if has_sleeper and is_covered(state, due_ms, now_ms):
            return replace(after, sleeper=state.sleeper, due_ms=state.due_ms)
        return after

    return patch.object(lane, "rest", trusting)


_PLAIN = Bounds(faults=0, appends=1, failures=0, changes=0, slices=0)
_DOUBLE = replace(_PLAIN, doubles=1)
_FAILURE = replace(_PLAIN, failures=1)
_FAILURES = replace(_PLAIN, appends=2, failures=2)
_RESUMED = replace(_PLAIN, appends=0, changes=1, starts_paused=True)
_SLICE = replace(_PLAIN, slices=1)
_TWO = replace(_PLAIN, partitions=2, instances=1, appends=2, failures=2, pauses=(1, 3))


def _mutant(
    bounds: Bounds, rules: Rules = SHIPPED, patched: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Mutant:
    return Mutant(model=partial(Model, bounds, rules), patched=patched)


_MUTANTS = {
    "held-deletes-its-own-message": _mutant(_DOUBLE, patched=_held_deletes_its_own_message),
    "held-deletes-the-sleeper": _mutant(_FAILURES, patched=_held_deletes_the_sleeper),
    "drop-ignores-the-version": _mutant(_RESUMED, patched=_drop_ignores_the_version),
    "finish-keeps-its-own-sleeper": _mutant(replace(_FAILURE, instances=1), patched=_finish_keeps_its_own_sleeper),
    "sleeper-trusted-though-late": _mutant(
        _TWO, patched=lambda: _rest_trusts(lambda state, due_ms, now_ms: state.due_ms >= now_ms)
    ),
    "sleeper-trusted-though-overdue": _mutant(
        replace(_FAILURES, instances=1),
        patched=lambda: _rest_trusts(lambda state, due_ms, now_ms: state.due_ms <= due_ms),
    ),
    "arms-before-release": _mutant(_PLAIN, Rules(arms_before_release=True)),
    "deletes-before-release": _mutant(_PLAIN, Rules(deletes_before_release=True)),
    "deletes-before-sending": _mutant(_SLICE, Rules(deletes_before_sending=True)),
    "arms-by-its-first-read": _mutant(_PLAIN, Rules(arms_by_its_first_read=True)),
    "arms-without-condition": _mutant(_PLAIN, Rules(arms_without_condition=True)),
    "rests-without-arming": _mutant(_TWO, Rules(rests_without_arming=True)),
    "rests-without-postponing": _mutant(_FAILURE, Rules(rests_without_postponing=True)),
    "deletes-late": _mutant(replace(_PLAIN, faults=1, is_mirror=True), Rules(deletes_late=True)),
    "takes-late": _mutant(replace(_PLAIN, faults=1, is_mirror=True), Rules(takes_late=True)),
    "puts-without-condition": _mutant(_FAILURE, Rules(puts_without_condition=True)),
}
_BOUNDS = {
    "one-record": _PLAIN,
    "faults": Bounds(),
    "two-partitions": Bounds(partitions=2, failures=2, pauses=(1, 3), changes=0),
    "two-lanes": Bounds(partitions=2, lanes_max=2, changes=2),
    "resumed": Bounds(starts_paused=True, changes=3),
    "mirror": Bounds(is_mirror=True, changes=0),
    "doubled-messages": Bounds(doubles=2, changes=0, slices=0),
}
LANES = Checker(
    states=1_000_000,
    searches={name: partial(Model, bounds) for name, bounds in _BOUNDS.items()},
    mutants=_MUTANTS,
)
