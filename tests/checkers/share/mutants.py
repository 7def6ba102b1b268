"""The searches of share groups, and the wrong state machines that a search must find: each leaves out a rule that
docs/protocol/share-groups argues."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from penstock_core.share import acknowledge, acquire, fair, read_first
from penstock_core.share.draft import Draft, ShareUpdate, apply
from penstock_core.share.share_state import Lock, ShareState, Wait
from tests.checkers.breadth_first import Checker, Mutant
from tests.checkers.share.model import Bounds, Model


def _no_expectation_of_what_goes(update: ShareUpdate) -> ShareUpdate:
    """Entries that are taken from are not expected; new ones are still expected absent."""
    return replace(
        update,
        expected_locks={name: lock for name, lock in update.expected_locks.items() if lock is None},
        expected_waits={first: wait for first, wait in update.expected_waits.items() if wait is None},
    )


def _no_expectation_of_new_locks(update: ShareUpdate) -> ShareUpdate:
    return replace(
        update, expected_locks={name: lock for name, lock in update.expected_locks.items() if lock is not None}
    )


def _no_position(update: ShareUpdate) -> ShareUpdate:
    return replace(update, position_between=None)


def _bases_are_not_compared() -> AbstractContextManager[Any]:
    def without_bases(state: ShareState, update: ShareUpdate) -> ShareState | None:
        expected = {
            name: replace(lock, base=state.locks[name].base) if lock is not None and name in state.locks else lock
            for name, lock in update.expected_locks.items()
        }
        return apply(state, replace(update, expected_locks=expected))

    return patch("tests.checkers.share.machine.apply", without_bases)


def _locks_never_last(module: Any) -> AbstractContextManager[Any]:
    return patch.object(module, "available_ms", lambda *_: 0)


def _rest_of_a_lock_is_dropped() -> AbstractContextManager[Any]:
    put_lock = Draft.put_lock

    def dropping(draft: Draft, name: Any, lock: Lock | None) -> None:
        is_shorter = name in draft.locks and lock is not None and lock.records.count < draft.locks[name].records.count
        put_lock(draft, name, None if is_shorter else lock)

    return patch.object(Draft, "put_lock", dropping)


def _released_records_are_dropped() -> AbstractContextManager[Any]:
    return patch.object(Draft, "put_wait", lambda *_: None)


def _releases_forget_their_count() -> AbstractContextManager[Any]:
    shipped = acknowledge.released

    def forgetting(*arguments: Any) -> Wait:
        return replace(shipped(*arguments), deliveries=0)

    return patch.object(acknowledge, "released", forgetting)


def _last_delivery_is_handed_out_again() -> AbstractContextManager[Any]:
    return patch.object(acquire, "is_last_delivery", lambda *_: False)


def _waits_do_not_block_their_keys() -> AbstractContextManager[Any]:
    def blocking_nothing(ordered: Any, value: int, *, has_more: bool) -> bool:
        if has_more and ordered._left > 0:
            ordered._left -= 1
            return True
        return False

    return patch.object(read_first._Ordered, "_takes", blocking_nothing)


def _fair_keeps_nothing() -> AbstractContextManager[Any]:
    return patch.object(fair, "add_wait", lambda *_: None)


def _repeats_are_not_recognised() -> AbstractContextManager[Any]:
    return patch.object(acquire, "locks_of", lambda *_: {})


_ONE_WORKER = Bounds(workers=1, acquires=6, calls=1, faults=0)  # long traces, which the whole model reaches late

_MUTANTS = {
    "entries-not-expected": Mutant(model=partial(Model, mutate=_no_expectation_of_what_goes)),
    "new-locks-not-expected": Mutant(model=partial(Model, mutate=_no_expectation_of_new_locks)),
    "position-not-bounded": Mutant(model=partial(Model, mutate=_no_position)),
    "position-not-expected-by-key": Mutant(model=partial(Model, "key", mutate=_no_position)),
    "position-not-expected-by-fair": Mutant(model=partial(Model, "fair", mutate=_no_position)),
    "fair-keeps-nothing": Mutant(model=partial(Model, "fair"), patched=_fair_keeps_nothing),
    "bases-not-compared": Mutant(model=Model, patched=_bases_are_not_compared),
    "locks-never-last": Mutant(model=Model, patched=lambda: _locks_never_last(acquire)),
    "locks-never-last-by-key": Mutant(model=partial(Model, "key"), patched=lambda: _locks_never_last(acquire)),
    "rest-of-lock-dropped": Mutant(model=Model, patched=_rest_of_a_lock_is_dropped),
    "released-records-dropped": Mutant(model=Model, patched=_released_records_are_dropped),
    "releases-forget-their-count": Mutant(
        model=partial(Model, bounds=_ONE_WORKER), patched=_releases_forget_their_count
    ),
    "last-delivery-handed-out-again": Mutant(
        model=partial(Model, bounds=_ONE_WORKER), patched=_last_delivery_is_handed_out_again
    ),
    "keys-not-blocked": Mutant(model=partial(Model, "key"), patched=_waits_do_not_block_their_keys),
    "repeats-not-recognised": Mutant(
        model=partial(Model, mutate=_no_expectation_of_new_locks), patched=_repeats_are_not_recognised
    ),
}
SHARE_GROUPS = Checker(
    states=5_000_000,
    searches={ordering: partial(Model, ordering) for ordering in ("none", "key", "fair")},
    mutants=_MUTANTS,
)
