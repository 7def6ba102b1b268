"""Wrong state machines that the search must find: each leaves out a rule that docs/protocol/share-groups argues."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from penstock_core.share import acknowledge, acquire, read_first
from penstock_core.share.draft import Draft
from penstock_core.share.share_state import Lock, ShareState, Wait
from penstock_core.share.share_update import ShareUpdate, apply
from tests.share_checker.machine import Machine
from tests.share_checker.model import Bounds, Model
from tests.support.breadth_first import Found, explore

Mutate = Callable[[ShareUpdate], ShareUpdate]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A rule left out: by a change of each planned update, or by a patch of a function."""

    ordering: str = "none"
    bounds: Bounds = field(default_factory=Bounds)
    mutate: Mutate | None = None
    patched: Callable[[], AbstractContextManager[Any]] = nullcontext


def search_mutant(name: str, states_max: int) -> Found:
    """Explore the mutant."""
    mutant = MUTANTS[name]
    with mutant.patched():
        return explore(Model(Machine(mutant.ordering, mutant.mutate), mutant.bounds), states_max)


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

    return patch("tests.share_checker.machine.apply", without_bases)


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


def _repeats_are_not_recognised() -> AbstractContextManager[Any]:
    return patch.object(acquire, "locks_of", lambda *_: {})


_ONE_WORKER = Bounds(workers=1, acquires=6, calls=1, faults=0)  # long traces, which the whole model reaches late

MUTANTS: Mapping[str, Mutant] = {
    "entries-not-expected": Mutant(mutate=_no_expectation_of_what_goes),
    "new-locks-not-expected": Mutant(mutate=_no_expectation_of_new_locks),
    "position-not-bounded": Mutant(mutate=_no_position),
    "position-not-expected-by-key": Mutant(ordering="key", mutate=_no_position),
    "bases-not-compared": Mutant(patched=_bases_are_not_compared),
    "locks-never-last": Mutant(patched=lambda: _locks_never_last(acquire)),
    "locks-never-last-by-key": Mutant(ordering="key", patched=lambda: _locks_never_last(acquire)),
    "rest-of-lock-dropped": Mutant(patched=_rest_of_a_lock_is_dropped),
    "released-records-dropped": Mutant(patched=_released_records_are_dropped),
    "releases-forget-their-count": Mutant(bounds=_ONE_WORKER, patched=_releases_forget_their_count),
    "last-delivery-handed-out-again": Mutant(bounds=_ONE_WORKER, patched=_last_delivery_is_handed_out_again),
    "keys-not-blocked": Mutant(ordering="key", patched=_waits_do_not_block_their_keys),
    "repeats-not-recognised": Mutant(mutate=_no_expectation_of_new_locks, patched=_repeats_are_not_recognised),
}
