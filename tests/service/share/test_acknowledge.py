"""Accept, release, reject and renew: results by range, calls, repeats, races."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockNonce
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.draft import ShareOutcome
from penstock_core.share.share_state import ShareKey
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.admin.reset_share_group import ShareResetTo, delete_share_group, reset_share_group
from tests.service.share.sharing import (
    GROUP,
    entries_of,
    entry_of,
    finish,
    following,
    locks_in,
    new_group,
    offsets_in,
    results_of,
    state_of,
    take,
)
from tests.support.refusals import refused
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    counted_instance,
    filled_topic,
    new_topic,
    send,
)

OK, DONE, LOST = AckResult.OK, AckResult.DONE, AckResult.LOST
STAYS = "nonce-01"


def test_repeat_of_an_acceptance_is_done(instance: Instance) -> None:
    filled_topic(instance, records=4)
    new_group(instance)
    taken = take(instance)
    assert results_of(finish(instance, taken)) == [(((0, 4),), OK)]
    assert results_of(finish(instance, taken)) == [(((0, 4),), DONE)]


def test_parts_of_a_lock_are_acknowledged_one_by_one(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=6)
    new_group(instance)
    [lock] = locks_in(take(instance))
    entries = [
        entry_of(lock, AckType.ACCEPT, ((0, 2),)),
        entry_of(lock, AckType.RELEASE, ((2, 3),), delay_ms=0),
        entry_of(lock, AckType.RENEW, ((3, 4),), lock_ms=60_000),
        entry_of(lock, AckType.REJECT, ((5, 6),), reason="bad"),
    ]
    outcomes = acknowledge(instance, GROUP, entries)
    assert results_of(outcomes) == [(((0, 2),), OK), (((2, 3),), OK), (((3, 4),), OK), (((5, 6),), OK)]
    assert [each.entry for each in outcomes] == entries
    assert offsets_in(take(instance)) == [(0, 2)]
    clock.sleep_ms(59_000)
    assert results_of(acknowledge(instance, GROUP, [entry_of(lock)])) == [
        (((3, 5),), OK),
        (((0, 2), (5, 6)), DONE),
        (((2, 3),), LOST),
    ]


def test_acknowledgement_of_a_whole_lock_is_one_update_and_of_a_part_too(instance: Instance) -> None:
    filled_topic(instance, records=6)
    new_group(instance)
    [lock] = locks_in(take(instance))
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    [first] = acknowledge(counted, GROUP, [entry_of(lock, AckType.ACCEPT, ((0, 2),))])
    assert counts == {"share.get_group": 1, "share.update": 1}
    counts.clear()
    [second] = acknowledge(counted, GROUP, [following(first, AckType.ACCEPT, ((2, 4),))])
    assert counts == {"share.update": 1}, "the answer has told the lock as it is now"
    counts.clear()
    acknowledge(counted, GROUP, [entry_of(lock, AckType.RELEASE, ((4, 5),))])
    assert counts == {"share.update": 2}, "the first lock id tells the lock as it was handed out"
    [third] = acknowledge(counted, GROUP, [following(second, AckType.ACCEPT, ((5, 6),))])
    assert (third.result, third.next_lock_id) == (OK, None), "the lock is gone"


def test_renewal_tells_the_lock_id_to_go_on_with(instance: Instance) -> None:
    filled_topic(instance, records=6)
    new_group(instance)
    [lock] = locks_in(take(instance))
    [renewed] = acknowledge(instance, GROUP, [entry_of(lock, AckType.RENEW, lock_ms=60_000)])
    counts: Counter[str] = Counter()
    outcomes = acknowledge(counted_instance(instance, counts), GROUP, [following(renewed)])
    assert results_of(outcomes) == [(((0, 6),), OK)]
    assert counts == {"share.get_group": 1, "share.update": 1}


def test_lock_id_to_go_on_with_comes_beside_records_too(instance: Instance) -> None:
    filled_topic(instance, records=6)
    new_group(instance)
    [lock] = locks_in(take(instance, 4))
    acquired = take(instance, 1, nonce=STAYS, acknowledge=[entry_of(lock, AckType.ACCEPT, ((0, 2),))])
    [outcome] = acquired.acknowledged
    counts: Counter[str] = Counter()
    assert results_of(acknowledge(counted_instance(instance, counts), GROUP, [following(outcome)])) == [(((2, 4),), OK)]
    assert counts == {"share.get_group": 1, "share.update": 1}


def test_lock_that_was_lost_has_no_lock_id_to_go_on_with(instance: Instance) -> None:
    filled_topic(instance, records=6)
    new_group(instance)
    [lock] = locks_in(take(instance))
    reset_share_group(instance, GROUP, "orders", ShareResetTo(offset=0))
    [outcome] = acknowledge(instance, GROUP, [entry_of(lock, AckType.ACCEPT, ((0, 2),))])
    assert (outcome.result, outcome.next_lock_id) == (LOST, None)


def test_offsets_that_the_lock_never_had_are_not_taken_for_finished(instance: Instance) -> None:
    filled_topic(instance, records=6)
    new_group(instance)
    [first], [second] = locks_in(take(instance, 3)), locks_in(take(instance))
    outcomes = acknowledge(instance, GROUP, [entry_of(second, AckType.ACCEPT, ((1, 99),))])
    assert results_of(outcomes) == [(((3, 6),), OK), (((1, 3), (6, 99)), LOST)]
    assert results_of(acknowledge(instance, GROUP, [entry_of(first)])) == [(((0, 3),), OK)]


def test_unknown_locks_topics_and_partitions_are_lost_and_change_nothing(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    [lock] = locks_in(take(instance))
    entry = entry_of(lock)
    changed: list[dict[str, Any]] = [{"topic": "returns"}, {"partition": 9}]
    for change in changed:
        values = {name: getattr(entry, name) for name in ("topic", "partition", "client_lock_id", "acknowledgement")}
        [outcome] = acknowledge(instance, GROUP, [type(entry)(**values | change)])
        assert outcome.result is LOST
    assert results_of(acknowledge(instance, GROUP, [entry])) == [(((0, 3),), OK)]


def test_acknowledgement_after_a_reset_is_lost(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    taken = take(instance)
    reset_share_group(instance, GROUP, "orders", ShareResetTo(offset=0))
    assert results_of(finish(instance, taken)) == [(((0, 3),), LOST)]
    assert offsets_in(take(instance)) == [(0, 0), (0, 1), (0, 2)]


def test_refused_update_goes_by_the_state_that_refused_it(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    taken = take(instance, lock_ms=1_000)
    clock.sleep_ms(60_000)
    take(instance, 1)
    assert results_of(finish(instance, taken)) == [(((0, 3),), LOST)]


def test_partition_that_changes_all_the_time_is_told(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    taken = take(instance)

    def refuse(_original: object, _key: object, _update: object) -> ShareOutcome:
        return ShareOutcome(before=state_of(instance), after=None)

    busy = another_instance(instance, share=Intercepted(instance.stores.share, update=refuse))
    refused(ErrorCode.THROTTLED, lambda: finish(busy, taken))
    assert results_of(finish(instance, taken)) == [(((0, 3),), OK)]


def test_what_became_of_records_is_counted(instance: Instance) -> None:
    filled_topic(instance, records=9)
    new_group(instance)
    finish(instance, take(instance, 2))
    finish(instance, take(instance, 3), AckType.RELEASE, delay_ms=60_000)
    rejected = take(instance)
    finish(instance, rejected, AckType.REJECT)
    acknowledge(instance, GROUP, [entry_of(locks_in(rejected)[0], AckType.ACCEPT, ((20, 21),))])
    counts, _ = instance.telemetry.take()
    assert counts == {
        "share_records_acquired": 9,
        "share_records_accepted": 2,
        "share_records_released": 3,
        "share_records_rejected": 4,
        "share_locks_lost": 1,
    }


@pytest.mark.parametrize("kind", [AckType.RELEASE, AckType.RENEW])
def test_records_that_are_not_finished_count_as_lag(instance: Instance, kind: AckType) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    acknowledge(instance, GROUP, entries_of(take(instance), kind))
    assert state_of(instance).unfinished() == ((0, 3),)


@pytest.mark.parametrize("is_carried", [False, True])
def test_repeated_accept_is_done_when_an_instance_remembers_a_group_that_was_made_anew(
    instance: Instance, is_carried: bool
) -> None:
    filled_topic(instance, records=1)
    new_group(instance)
    stale = another_instance(instance)
    finish(stale, take(stale), AckType.RELEASE)
    delete_share_group(instance, GROUP)
    new_group(instance)
    entries = entries_of(take(instance))
    acknowledge(instance, GROUP, entries)
    outcomes = take(stale, acknowledge=entries).acknowledged if is_carried else acknowledge(stale, GROUP, entries)
    assert results_of(outcomes) == [(((0, 1),), DONE)]


@pytest.mark.parametrize("nonce", [None, *(LockNonce(f"nonce-{number}") for number in range(20))])
def test_error_behind_acknowledgements_that_are_made_says_so(instance: Instance, nonce: LockNonce | None) -> None:
    """DynamoDB throttles one partition of three, whether the acknowledgements come alone or with an acquire."""
    filled_topic(instance, partitions=3, records=2)
    new_group(instance)
    locks = [lock for _ in range(3) for lock in locks_in(take(instance, 2))]
    entries = [entry_of(lock, AckType.ACCEPT) for lock in locks]
    throttled = locks[-1].partition.key
    error = PenstockError(ErrorCode.THROTTLED, "nothing was changed")

    def update(original: Callable[..., Any], key: ShareKey, *arguments: Any) -> Any:
        if key == throttled:
            raise error
        return original(key, *arguments)

    busy = another_instance(instance, share=Intercepted(instance.stores.share, update=update))
    with pytest.raises(PenstockError) as caught:
        acknowledge(busy, GROUP, entries) if nonce is None else take(busy, nonce=nonce, acknowledge=entries)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.THROTTLED, True)
    assert not error.maybe_applied


@pytest.mark.parametrize("nonce", [None, LockNonce("nonce-01")])
def test_error_of_a_burial_behind_acknowledgements_says_that_they_are_made(
    instance: Instance, nonce: LockNonce | None
) -> None:
    filled_topic(instance, records=2)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    [lock] = locks_in(take(instance, 2))
    moved: list[object] = []

    def move(original: Callable[..., Any], move: object) -> Any:
        moved.append(move)
        return original(move)

    def find_states(original: Callable[..., Any], keys: object) -> Any:
        if moved:
            raise PenstockError(ErrorCode.THROTTLED, "nothing was changed")
        return original(keys)

    busy = another_instance(
        instance,
        share=Intercepted(instance.stores.share, find_states=find_states),
        transactions=Intercepted(instance.stores.transactions, move=move),
    )
    entries = [entry_of(lock, AckType.REJECT)]
    with pytest.raises(PenstockError) as caught:
        acknowledge(busy, GROUP, entries) if nonce is None else take(busy, nonce=nonce, acknowledge=entries)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.THROTTLED, True)


def test_error_of_one_partition_is_sure_when_the_locks_of_the_other_are_lost(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance, partitions=2)
    send(instance, "orders", "a", partition=0)
    send(instance, "orders", "b", partition=1)
    new_group(instance)
    old = take(instance, lock_ms=1_000)
    assert len(locks_in(old)) == 2
    clock.sleep_ms(60_000)
    retaken = [*offsets_in(take(instance)), *offsets_in(take(instance))]
    assert sorted(retaken) == [(0, 0), (1, 0)]

    def fail(original: Any, key: ShareKey, update: object) -> Any:
        if key.partition == 1:
            raise UNAVAILABLE
        return original(key, update)

    failing = another_instance(instance, share=Intercepted(instance.stores.share, update=fail))
    refused(UNAVAILABLE.code, lambda: finish(failing, old))
    clock.sleep_ms(60_000)
    held = [entry_of(lock) for _ in range(2) for lock in locks_in(take(instance))]
    with pytest.raises(PenstockError) as caught:
        acknowledge(failing, GROUP, held)
    assert caught.value.maybe_applied
