"""A lock of the nonce is there when a repeat of an acquire meets a filter: no lock comes without its records."""

import threading
from collections.abc import Callable

import pytest

from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.acquire import Acquired
from tests.service.share.acquire.test_share_filters import filtered_group, put
from tests.service.share.sharing import finish, locks_in, state_of, take, values_in
from tests.support.interleaving import catch_kill, interrupted_before, watched
from tests.support.service import Intercepted, Killed, another_instance

NONCE = "repeated"


def begin(instance: Instance) -> None:
    """A record that the filter does not take comes first, so its lock is finished and its id is used again."""
    filtered_group(instance)
    put(instance, "no")
    put(instance, "yes")


def assert_complete(acquired: Acquired) -> None:
    """Each lock of the answer comes with batches that cover its records."""
    for lock in locks_in(acquired):
        held = {*lock.grant.records.offsets()}
        covered = {each for batch in lock.batches for each in range(batch.base_offset, batch.next_offset)}
        assert held <= covered, f"lock on {held}, batches of {covered}"


def die_with_the_lock(instance: Instance) -> None:
    """The first try dies after its lock is stored."""

    def die(original: Callable[..., object], *arguments: object) -> None:
        original(*arguments)
        raise Killed

    with catch_kill() as killed:
        take(another_instance(instance, share=Intercepted(instance.stores.share, update=die)), 1, nonce=NONCE)
    assert killed


@pytest.mark.parametrize("place", range(12))
def test_each_lock_comes_with_its_records_when_two_repeats_find_the_lock_of_a_try_that_died(
    instance: Instance, place: int
) -> None:
    begin(instance)
    die_with_the_lock(instance)
    answers: list[Acquired] = []
    other = another_instance(instance)
    interrupted = interrupted_before(instance, place, lambda: answers.append(take(other, 1, nonce=NONCE)))
    answers.append(take(interrupted, 1, nonce=NONCE))
    for each in answers:
        assert_complete(each)
    finish(instance, answers[-1])
    seen = {value for each in (*answers, take(instance, 10)) for value in values_in(each)}
    assert seen <= {"yes"}
    assert seen or state_of(instance).open, "a record was finished that no client has seen"


@pytest.mark.parametrize("locks_before", range(2, 8))
@pytest.mark.parametrize("goes_on_before", range(2, 9))
def test_each_lock_comes_with_its_records_when_a_slow_try_goes_on_during_its_repeat(
    instance: Instance, locks_before: int, goes_on_before: int
) -> None:
    begin(instance)
    go, waits = threading.Event(), threading.Event()
    answers: list[Acquired] = []

    def hold(number: int) -> None:
        if number == locks_before:
            waits.set()
            go.wait()

    def run() -> None:
        answers.append(take(watched(another_instance(instance), hold), 1, nonce=NONCE))
        waits.set()

    slow = threading.Thread(target=run)
    slow.start()
    waits.wait()

    def release(number: int) -> None:
        if number == goes_on_before:
            go.set()
            slow.join()

    answers.append(take(watched(another_instance(instance), release), 1, nonce=NONCE))
    go.set()
    slow.join()
    for each in answers:
        assert_complete(each)
