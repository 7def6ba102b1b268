"""An acquire locks records, reads them, and finds its own locks again."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockNonce
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_service.instance.instance import Instance
from penstock_service.share.acknowledge import AckEntry, acknowledge
from penstock_service.share.acquire.fresh_window import in_turn, strays
from penstock_service.topics.alter_topic import truncate
from tests.service.share.sharing import (
    GROUP,
    entries_of,
    entry_of,
    finish,
    locks_in,
    new_group,
    offsets_in,
    results_of,
    state_of,
    take,
    values_in,
)
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    filled_topic,
    new_topic,
    send,
)

STAYS = "nonce-01"  # a nonce that does not stray
assert not strays(LockNonce(STAYS))


def test_each_record_is_handed_out_once_and_in_order(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    first, second = take(instance, 4), take(instance, 100)
    assert values_in(first) == ["0", "1", "2", "3"]
    assert offsets_in(second) == [(0, offset) for offset in range(4, 10)]
    assert offsets_in(take(instance)) == []


def test_repeat_gets_the_locks_of_its_first_try_and_counts_no_delivery(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    first, again = take(instance, 4, nonce=STAYS), take(instance, 4, nonce=STAYS)
    assert offsets_in(again) == offsets_in(first)
    assert [lock.grant.lock_id for lock in locks_in(again)] == [lock.grant.lock_id for lock in locks_in(first)]
    assert [lock.grant.lock.deliveries for lock in locks_in(again)] == [1]
    assert state_of(instance).position == 4


@pytest.mark.parametrize("is_carried", [False, True])
@pytest.mark.parametrize("partitions", [8, 120])
def test_repeat_that_says_so_finds_its_locks_behind_records_that_came_since(
    instance: Instance, partitions: int, is_carried: bool
) -> None:
    new_topic(instance, partitions=partitions)
    new_group(instance)
    order = [number for _, number in in_turn([partitions], LockNonce(STAYS))]
    entries: list[AckEntry] = []
    if is_carried:
        send(instance, "orders", "before", partition=order[0])
        entries += entries_of(take(instance))
    send(instance, "orders", "first", partition=order[-1])
    first = take(instance, nonce=STAYS, acknowledge=entries)
    send(instance, "orders", "since", partition=order[0])
    again = take(instance, nonce=STAYS, acknowledge=entries, is_repeat=True)
    assert offsets_in(first)
    assert offsets_in(again) == offsets_in(first)
    assert values_in(take(instance)) == ["since"]


def test_repeat_whose_lock_has_ended_holds_it_anew(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=4)
    new_group(instance)
    take(instance, nonce=STAYS, lock_ms=1_000)
    clock.sleep_ms(1_500)
    again = take(instance, nonce=STAYS, lock_ms=1_000)
    [lock] = locks_in(again)
    assert lock.grant.lock.until_ms == clock.now_ms() + 1_000
    assert lock.grant.lock.deliveries == 1


def test_answer_that_was_lost_is_found_by_the_repeat(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    take(instance, 1)

    def lose(original: object, *arguments: object) -> None:
        original(*arguments)  # type: ignore[operator]
        raise LOST_ANSWER

    broken = another_instance(instance, share=Intercepted(instance.stores.share, update=lose))
    with pytest.raises(PenstockError) as caught:
        take(broken, 4, nonce=STAYS)
    assert caught.value.maybe_applied
    assert offsets_in(take(instance, 4, nonce=STAYS)) == [(0, offset) for offset in range(1, 5)]


def test_expired_lock_is_handed_out_again_with_its_count(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=1)
    new_group(instance)
    [lost] = locks_in(take(instance, lock_ms=1_000))
    clock.sleep_ms(10_000)
    [lock] = locks_in(take(instance))
    assert lock.grant.lock.deliveries == 2
    assert results_of(acknowledge(instance, GROUP, [entry_of(lost)])) == [(((0, 1),), AckResult.LOST)]
    assert results_of(acknowledge(instance, GROUP, [entry_of(lock)])) == [(((0, 1),), AckResult.OK)]


def test_acknowledgement_and_acquire_of_one_partition_are_one_update(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    first = take(instance, 4)
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    take(counted, 1)  # warm
    counts.clear()
    second = take(counted, 4, nonce=STAYS, acknowledge=entries_of(first))
    assert counts["share.update"] == 1
    assert results_of(second.acknowledged) == [(((0, 4),), AckResult.OK)]
    assert offsets_in(second) == [(0, offset) for offset in range(5, 9)]


@pytest.mark.parametrize("records", [1, 100])
def test_calls_of_an_acquire_at_the_tail(instance: Instance, records: int) -> None:
    filled_topic(instance, records=1)
    new_group(instance)
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    finish(counted, take(counted))
    send(instance, "orders", *map(str, range(records)))
    counts.clear()
    acquired = take(counted, 100, nonce=STAYS)
    assert len(offsets_in(acquired)) == records
    assert counts == {"share.find_states": 1, "log.heads": 1, "share.update": 1, "zone.get": 1}
    counts.clear()
    finish(counted, acquired)
    assert counts == {"share.update": 1}


def test_acquire_with_an_acknowledgement_prefers_its_partition_but_for_one_in_sixteen(instance: Instance) -> None:
    filled_topic(instance, partitions=4, records=100)
    new_group(instance)
    stayed = moved = 0
    held = take(instance, 1)
    for number in range(160):
        [(partition, _)] = offsets_in(held)
        held = take(instance, 1, nonce=f"turn-{number:04}", acknowledge=entries_of(held))
        if offsets_in(held)[0][0] == partition:
            stayed += 1
        else:
            moved += 1
            assert strays(LockNonce(f"turn-{number:04}"))
    assert 1 <= moved <= 20
    assert stayed >= 140


def test_partitions_are_looked_at_in_an_order_that_the_nonce_tells() -> None:
    counts = [3, 0, 500]
    orders = {tuple(in_turn(counts, LockNonce(f"nonce-{number:04}"))) for number in range(100)}
    assert all(sorted(order) == [(0, n) for n in range(3)] + [(2, n) for n in range(500)] for order in orders)
    assert len({order[:2] for order in orders}) > 90
    assert tuple(in_turn(counts, LockNonce("nonce-0001"))) in orders


def test_all_partitions_are_looked_at_before_an_acquire_finds_nothing(instance: Instance) -> None:
    new_topic(instance, partitions=50)
    new_group(instance)
    send(instance, "orders", "x", partition=37)
    assert offsets_in(take(instance)) == [(37, 0)]
    empty = take(instance)
    assert {each.key.partition for each in empty.watched} == {*range(50)}
    assert not any(each.is_armed for each in empty.watched)


def test_answer_stays_within_its_bytes_and_the_rest_goes_back_uncounted(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance)
    for number in range(8):
        send(instance, "orders", f"{number}" * 1_000)
    # An old count of the partition's refs: the acquire cannot know the records' sizes below the tail.
    first = take(instance, 8, bytes_max=3_500)
    assert [value[0] for value in values_in(first)] == ["0", "1", "2"]
    rest = take(instance, 8)
    assert [lock.grant.lock.deliveries for lock in locks_in(rest)] == [1] * len(locks_in(rest))
    assert sorted(value[0] for value in values_in(rest)) == ["3", "4", "5", "6", "7"]


def test_batches_that_fill_the_answer_exactly_are_in_it(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance)
    sizes = [len(batch(value)) for value in ("one", "another")]
    for value in ("one", "another", "third"):
        send(instance, "orders", value)
    first = take(instance, bytes_max=sum(sizes))
    assert values_in(first) == ["one", "another"]
    finish(instance, first, AckType.RELEASE, delay_ms=0)
    again = take(instance, bytes_max=sum(sizes), topics=frozenset({"orders"}))
    assert sum(len(each.data) for lock in locks_in(again) for each in lock.batches) <= sum(sizes)


def test_part_of_an_expired_lock_travels_alone(instance: Instance, clock: SteppedClock) -> None:
    """One of its records may have killed its worker: the answer has nothing of another partition."""
    new_topic(instance, partitions=2)
    new_group(instance, lock_ms=1_000)
    send(instance, "orders", *map(str, range(40)))
    assert len(offsets_in(take(instance))) == 40
    clock.sleep_ms(60_000)
    parts = 0
    for _ in range(40):
        send(instance, "orders", "fresh", partition=1)
        acquired = take(instance)
        partitions = {partition for partition, _ in offsets_in(acquired)}
        parts += partitions == {0}
        assert 0 not in partitions or partitions == {0}
        finish(instance, acquired)
    assert parts


def test_first_record_is_handed_out_whatever_the_bytes(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance)
    send(instance, "orders", "x" * 10_000)
    assert offsets_in(take(instance, bytes_max=1)) == [(0, 0)]


def test_topics_of_an_acquire_are_some_of_the_group(instance: Instance) -> None:
    filled_topic(instance, "orders", records=1)
    filled_topic(instance, "returns", records=1)
    new_group(instance, "orders", "returns")
    acquired = take(instance, topics=frozenset(["returns"]))
    assert [lock.partition.topic for lock in locks_in(acquired)] == ["returns"]
    error = refused(ErrorCode.INVALID_REQUEST, lambda: take(instance, topics=frozenset(["bills"])))
    assert "bills" in error.message


def test_released_records_come_again_after_their_pause(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=2)
    new_group(instance)
    finish(instance, take(instance), AckType.RELEASE, delay_ms=5_000)
    waiting = take(instance)
    assert (offsets_in(waiting), waiting.next_available_ms) == ([], 5_000)
    clock.sleep_ms(5_000)
    [lock] = locks_in(take(instance))
    assert lock.grant.lock.deliveries == 2


def test_acquire_waits_for_a_record(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    new_group(instance)

    def append_once() -> None:
        if len(clock.sleeps) == 5:
            send(instance, "orders", "late")

    clock.on_sleep = append_once
    assert values_in(take(instance, wait_ms=20_000)) == ["late"]
    begun_ms = clock.now_ms()
    assert offsets_in(take(instance, wait_ms=3_000)) == []
    assert clock.now_ms() == begun_ms + 3_000


def test_unknown_group_is_refused(instance: Instance) -> None:
    new_topic(instance)
    refused(ErrorCode.UNKNOWN_SHARE_GROUP, lambda: take(instance))
    refused(ErrorCode.INVALID_NAME, lambda: acknowledge(instance, "a b", ()))


def test_acknowledgements_of_nothing_are_answered_by_an_acquire_too(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    [lock] = locks_in(take(instance, 1))
    entry = entry_of(lock)
    unknown = AckEntry(topic="returns", partition=0, client_lock_id="x", acknowledgement=entry.acknowledgement)
    acquired = take(instance, 1, nonce=STAYS, acknowledge=[unknown, entry])
    assert [each.result for each in acquired.acknowledged] == [AckResult.LOST, AckResult.OK]
    assert [each.entry for each in acquired.acknowledged] == [unknown, entry]


def test_failure_after_a_lock_says_that_it_may_be_there(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)

    def fail(_original: object, *_: object) -> bytes:
        raise UNAVAILABLE

    zones = [Intercepted(zone, get=fail) for zone in instance.stores.zones]
    updates: list[int] = []

    def once(original: Callable[..., Any], *arguments: Any) -> Any:
        updates.append(1)
        if len(updates) > 1:
            raise UNAVAILABLE
        return original(*arguments)

    share = Intercepted(instance.stores.share, update=once)
    with pytest.raises(PenstockError) as caught:
        take(another_instance(instance, zones=zones, share=share), nonce=STAYS)
    assert caught.value.maybe_applied
    assert len(offsets_in(take(instance, nonce=STAYS))) == 3


def test_no_record_comes_back_when_all_were_removed_before_they_were_handed_out(instance: Instance) -> None:
    filled_topic(instance, records=4)
    new_group(instance)
    acknowledge(instance, GROUP, entries_of(take(instance, 1), AckType.ACCEPT))
    truncate(instance, "orders", {0: 4}).all_ok()
    assert take(instance).next_available_ms is None
