"""The decisions of a share consumer, on stepped clocks: renewal, ends of locks, giving back, retries, sizes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.errors import AccessDeniedError, LockLostError, UnavailableError
from penstock.model.share import ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import ACCEPT, RELEASE, Verb, Wish, reject
from penstock.share.acquire_call import ShareCall
from penstock.share.held_locks import AcquiredLock
from penstock_core.errors import ErrorCode
from penstock_core.limits import SDK_SHARE_GIVE_BACK_MS, SDK_SHARE_LINGER_MS, SDK_SHARE_LINGER_PART_MS
from tests.sdk.share.stepped_core import SteppedCore

UNAVAILABLE = UnavailableError(ErrorCode.STORAGE_UNAVAILABLE, "try again")


def lost(lock_id: str = "a.0", *ranges: list[int]) -> list[dict[str, object]]:
    place = {"topic": "orders", "partition": 0, "lock_id": lock_id}
    return [{**place, "offsets": list(ranges) or None, "result": "LOCK_LOST", "message": "it is another's"}]


def test_whole_lock_is_acknowledged_as_a_whole() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    for record in stepped.acquire(0, 1, 2):
        stepped.finish(record, ACCEPT)
    stepped.step(SDK_SHARE_LINGER_MS)
    assert stepped.sent(stepped.call()) == [("accept", None)]


def test_part_of_a_lock_is_acknowledged_by_ranges() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    for record in stepped.acquire(0, 1, 2, 3):
        stepped.finish(record, reject("bad") if record.offset == 1 else ACCEPT)
    call = stepped.call()  # a rejection does not wait
    assert stepped.sent(call) == [("accept", [[0, 1], [2, 4]]), ("reject", [[1, 2]])]


def test_acceptance_waits_for_an_acquire_that_carries_it() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    (record,) = stepped.acquire(0)
    stepped.finish(record, ACCEPT)
    assert stepped.core.next_call() is None
    assert stepped.core.wake_at_ms == stepped.now.monotonic_ms + SDK_SHARE_LINGER_MS
    assert stepped.ask() == []
    call = stepped.call()
    assert call.is_acquire
    assert stepped.sent(call) == [("accept", None)]


@pytest.mark.parametrize("clock", ["monotonic", "wall"])
def test_lock_is_renewed_from_the_middle_of_its_time_on_by_either_clock(clock: str) -> None:
    stepped = SteppedCore()
    stepped.acquire(0)
    stepped.step(14_999)
    assert stepped.core.next_call() is None
    now = stepped.now
    stepped.now = now._replace(monotonic_ms=now[0] + 1) if clock == "monotonic" else now._replace(wall_ms=now[1] + 1)
    call = stepped.call()
    assert stepped.sent(call) == [("renew", None)]
    stepped.answer(call)
    stepped.step(14_000)
    assert stepped.core.next_call() is None


def test_lock_is_renewed_no_longer_than_hold_ms_max() -> None:
    stepped = SteppedCore(hold_ms_max=20_000)
    stepped.acquire(0)
    stepped.step(15_000)
    stepped.answer(stepped.call())
    stepped.step(15_000)
    assert stepped.core.next_call() is None
    stepped.step(15_000)
    assert stepped.core.next_call() is None
    assert [each.offset for each in stepped.core.keeper.take_lost()] == [0]


def test_record_that_was_accepted_beside_a_renewal_of_its_lock_is_not_lost() -> None:
    """The service renews what is left of the lock: of the record before, it says that it has no lock any more."""
    stepped = SteppedCore(acknowledge="explicit")
    first, second = stepped.acquire(0, 1)
    stepped.step(15_000)
    stepped.finish(first, ACCEPT)
    call = stepped.call()
    assert stepped.sent(call) == [("accept", [[0, 1]]), ("renew", None)]
    place = {"topic": "orders", "partition": 0, "lock_id": "a.0"}
    results = [("ok", [[0, 1]]), ("ok", [[1, 2]]), ("LOCK_LOST", [[0, 1]])]
    stepped.answer(call, acknowledged=[{**place, "offsets": offsets, "result": result} for result, offsets in results])
    assert stepped.core.keeper.take_lost() == []
    assert stepped.core.keeper.locks.is_in_hand(second)
    stepped.step(15_000)
    assert stepped.sent(stepped.call()) == [("renew", None)]
    assert stepped.core.keeper.take_lost() == []


def test_renewal_that_failed_is_tried_again() -> None:
    stepped = SteppedCore(retry_backoff_ms=100)
    stepped.acquire(0)
    stepped.step(15_000)
    stepped.fail(stepped.call(), UNAVAILABLE)
    stepped.step(100)
    assert stepped.sent(stepped.call()) == [("renew", None)]


@pytest.mark.parametrize("clock", ["monotonic", "wall"])
def test_end_of_a_lock_is_told_once_by_either_clock_and_the_service_decides(clock: str) -> None:
    stepped = SteppedCore(acknowledge="explicit")
    (record,) = stepped.acquire(0)
    now = stepped.now
    late = now.later(30_000)
    stepped.now = now._replace(monotonic_ms=late[0]) if clock == "monotonic" else now._replace(wall_ms=late[1])
    renewal = stepped.call()
    assert stepped.core.keeper.take_lost() == [record]
    stepped.finish(record, ACCEPT)  # it is sent all the same
    stepped.answer(renewal)
    stepped.step(SDK_SHARE_LINGER_MS)
    call = stepped.call()
    assert stepped.sent(call) == [("accept", None)]
    stepped.answer(call, acknowledged=lost())
    assert stepped.core.keeper.take_lost() == []
    assert stepped.core.keeper.lost_count == 1


def test_record_whose_lock_has_ended_is_not_handed_out() -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), stepped.lock(0))
    stepped.now = stepped.now._replace(wall_ms=stepped.now.wall_ms + 30_000)  # the machine was frozen
    assert stepped.resume() == []


def test_lost_part_of_a_lock_is_told_and_refused() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    first, second = stepped.acquire(0, 1)
    stepped.step(15_000)
    stepped.answer(stepped.call(), acknowledged=lost("a.0", [1, 2]))
    assert stepped.core.keeper.take_lost() == [second]
    with pytest.raises(LockLostError, match="another consumer"):
        stepped.finish(second, ACCEPT)
    stepped.finish(first, ACCEPT)


def test_lost_acceptance_is_told() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    (record,) = stepped.acquire(0)
    stepped.finish(record, ACCEPT)
    stepped.step(SDK_SHARE_LINGER_MS)
    stepped.answer(stepped.call(), acknowledged=lost())
    assert stepped.core.keeper.take_lost() == [record]


def test_records_that_no_handler_takes_go_back_uncounted() -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), stepped.lock(0, 1, 2))
    stepped.core.poll(None, 0).close()
    stepped.step(SDK_SHARE_GIVE_BACK_MS)
    call = stepped.call()
    (entry,) = call.body["acknowledge"]
    assert (entry["type"], entry["offsets"], entry["uncounted"], entry["delay_ms"]) == ("release", None, True, 0)


def test_lost_lock_of_records_that_nobody_had_is_not_told() -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), stepped.lock(0))
    stepped.step(SDK_SHARE_GIVE_BACK_MS)
    stepped.answer(stepped.call(), acknowledged=lost())
    assert stepped.core.keeper.lost_count == 0


def test_unanswered_acquire_is_repeated_with_its_nonce_and_body_and_says_so() -> None:
    stepped = SteppedCore(acknowledge="explicit", retry_backoff_ms=10)
    (record,) = stepped.acquire(0)
    stepped.finish(record, RELEASE)
    stepped.ask()
    first = stepped.call()
    sent = first.body
    stepped.fail(first, UNAVAILABLE)
    stepped.step(10)
    again = stepped.call()
    assert again.body == {**sent, "repeat": True}
    assert stepped.sent(again) == [("release", None)]
    assert again.sent < again.sent_last


def test_acquire_without_an_answer_for_long_gets_a_new_nonce_and_keeps_its_acknowledgements() -> None:
    stepped = SteppedCore(acknowledge="explicit", retry_backoff_ms=10)
    (record,) = stepped.acquire(0)
    stepped.finish(record, RELEASE)
    stepped.ask()
    first = stepped.call()
    stepped.fail(first, UNAVAILABLE)
    stepped.step(10_000)
    again = stepped.call()
    assert again.is_acquire
    assert again.body["nonce"] != first.body["nonce"]
    assert stepped.sent(again) == [("release", None)]


def test_refused_acquire_is_raised_and_keeps_its_acknowledgements() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    (record,) = stepped.acquire(0)
    stepped.finish(record, ACCEPT)
    stepped.ask()
    stepped.fail(stepped.call(), AccessDeniedError(ErrorCode.ACCESS_DENIED, "no"))
    with pytest.raises(AccessDeniedError):
        stepped.resume()
    stepped.step(5_000)
    assert stepped.sent(stepped.call()) == [("accept", None)]


def test_acceptance_waits_for_the_rest_of_its_lock_and_no_longer_than_its_bound() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    first, second, third = stepped.acquire(0, 1, 2)
    stepped.finish(first, ACCEPT)
    stepped.step(SDK_SHARE_LINGER_PART_MS - 1)
    assert stepped.core.next_call() is None
    stepped.step(1)
    assert stepped.sent(stepped.call()) == [("accept", [[0, 1]])]
    stepped = SteppedCore(acknowledge="explicit")
    first, second, third = stepped.acquire(0, 1, 2)
    for record in (first, second, third):
        stepped.finish(record, ACCEPT)
    stepped.step(SDK_SHARE_LINGER_MS)
    assert stepped.sent(stepped.call()) == [("accept", None)]


def test_next_acknowledgement_goes_under_the_lock_id_that_the_service_has_told() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    first, second, third = stepped.acquire(0, 1, 2)
    names = []
    for record, told in ((first, "a.0~two"), (second, "a.0~one"), (third, None)):
        stepped.finish(record, ACCEPT)
        stepped.step(SDK_SHARE_LINGER_PART_MS)
        call = stepped.call()
        [entry] = call.body["acknowledge"]
        names.append(entry["lock_id"])
        answer = {**entry, "result": "ok", **({} if told is None else {"next_lock_id": told})}
        stepped.answer(call, acknowledged=[answer])
    assert names == ["a.0", "a.0~two", "a.0~one"]
    assert not stepped.core.keeper.locks.in_hand()


def test_loss_under_a_newer_lock_id_is_told() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    first, second = stepped.acquire(0, 1)
    stepped.finish(first, RELEASE)
    stepped.step(SDK_SHARE_LINGER_MS)
    call = stepped.call()
    [entry] = call.body["acknowledge"]
    stepped.answer(call, acknowledged=[{**entry, "result": "ok", "next_lock_id": "a.0~new"}])
    stepped.finish(second, ACCEPT)
    stepped.step(SDK_SHARE_LINGER_MS)
    stepped.answer(stepped.call(), acknowledged=lost("a.0~new", [1, 2]))
    assert stepped.core.keeper.take_lost() == [second]


def test_acceptance_of_a_part_goes_by_the_middle_of_a_short_lock() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    first, _ = stepped.acquire(0, 1, lasts_ms=1_000)
    stepped.step(300)
    stepped.finish(first, ACCEPT)
    stepped.step(200)
    assert ("accept", [[0, 1]]) in stepped.sent(stepped.call())


@pytest.mark.parametrize(("wish", "ordering"), [(RELEASE, "none"), (ACCEPT, "key")])
def test_what_other_consumers_wait_for_soon_does_not_wait_for_the_rest_of_its_lock(wish: Wish, ordering: str) -> None:
    stepped = SteppedCore(acknowledge="explicit")
    assert stepped.ask() == []
    stepped.answer(stepped.call(), stepped.lock(0, 1), ordering=ordering)
    first, _ = stepped.resume()
    stepped.finish(first, wish)
    assert stepped.core.next_call() is None
    stepped.step(SDK_SHARE_LINGER_MS)
    assert stepped.sent(stepped.call()) == [(wish.verb.value, [[0, 1]])]


def test_one_acquire_and_one_acknowledgement_are_on_their_way_at_once() -> None:
    stepped = SteppedCore(acknowledge="explicit")
    first, second = stepped.acquire(0, 1)
    stepped.ask()
    acquire = stepped.call()
    stepped.finish(first, Wish(Verb.RELEASE, delay_ms=0))
    acknowledgement = stepped.call()
    stepped.finish(second, RELEASE)
    assert acquire.is_acquire
    assert not acknowledgement.is_acquire
    assert stepped.core.next_call() is None


def test_gaps_are_accepted_and_unreadable_batches_rejected() -> None:
    stepped = SteppedCore()
    lock = stepped.lock(0, 3, missing=[1], unreadable=[5, 6], why_unreadable="no such codec")
    stepped.ask()
    stepped.answer(stepped.call(), lock)
    assert [each.offset for each in stepped.resume()] == [0, 3]
    assert stepped.sent(stepped.call()) == [("accept", [[1, 2]]), ("reject", [[5, 7]])]
    assert stepped.core.keeper.skipped_batches == 1


def test_slow_handler_acquires_one_record_at_a_time() -> None:
    stepped = SteppedCore()
    stepped.ask()
    call = stepped.call()
    assert call.body["max_records"] == 10
    stepped.answer(call, stepped.lock(0))
    stepped.resume()
    stepped.step(60_000)
    stepped.answer(stepped.call())  # the renewal
    stepped.ask()
    call = stepped.call()
    assert call.body["max_records"] == 1


@pytest.mark.parametrize(("told", "asked"), [({}, 10), ({"work_ms": 250}, 2), ({"work_ms": 10**9}, 10)])
def test_consumer_holds_as_much_work_as_the_service_says(told: dict[str, int], asked: int) -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), stepped.lock(0), **told)
    stepped.resume()
    stepped.step(100)
    stepped.ask()
    assert stepped.call().body["max_records"] == asked


def test_fast_handler_acquires_more_and_ahead() -> None:
    stepped = SteppedCore(max_records=100, acknowledge="explicit")
    stepped.core.appetite.employ(1)
    stepped.ask()
    call = stepped.call()
    stepped.step(50)  # what a call takes
    stepped.answer(call, stepped.lock(*range(10)))
    stepped.resume()
    stepped.step(50)  # 5 ms a record
    stepped.ask()
    call = stepped.call()
    assert call.body["max_records"] == 100
    stepped.step(50)
    stepped.answer(call, stepped.lock(*range(10, 110), name="b.0"))
    list(stepped.core.keeper.take(86, stepped.now))
    stepped.core.appetite.begins(86, stepped.now.monotonic_ms)
    assert stepped.call().is_acquire  # 14 records at hand are 70 ms of work: less than one and a half calls


def test_records_of_one_key_go_to_handlers_one_after_the_other() -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), keyed(stepped, b"a", b"a", b"b", None, None), ordering="key")
    locks = stepped.core.keeper.locks
    first = locks.take(9, stepped.now, is_one_per_key=True)
    assert [each.offset for each in first] == [0, 2, 3, 4]
    assert locks.ready == 0
    stepped.finish(first[0], ACCEPT)
    assert locks.ready == 1
    assert [each.offset for each in locks.take(9, stepped.now, is_one_per_key=True)] == [1]


def test_release_with_order_by_key_takes_those_behind_it_along() -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), keyed(stepped, b"a", b"a", b"b"), ordering="key")
    locks = stepped.core.keeper.locks
    (first,) = locks.take(1, stepped.now)
    stepped.finish(first, RELEASE)
    assert [each.offset for each in locks.take(9, stepped.now)] == [2]


def test_records_of_one_key_work_side_by_side_without_an_order() -> None:
    stepped = SteppedCore()
    stepped.ask()
    stepped.answer(stepped.call(), keyed(stepped, b"a", b"a"), ordering="none")
    assert len(stepped.core.keeper.locks.take(9, stepped.now, is_one_per_key=True)) == 2


def keyed(stepped: SteppedCore, *keys: bytes | None) -> AcquiredLock:
    """A lock on records with these keys."""
    lock = stepped.lock(*range(len(keys)))
    return replace(lock, records=[each._replace(key=key) for each, key in zip(lock.records, keys, strict=True)])


def test_stop_gives_back_and_acquires_no_more() -> None:
    stepped = SteppedCore()
    stepped.ask()
    call = stepped.call()
    stepped.core.is_stopped = True
    stepped.answer(call, stepped.lock(0, 1))
    assert stepped.resume() == []
    assert stepped.sent(stepped.call()) == [("release", None)]
    assert stepped.core.next_call() is None


def idle(stepped: SteppedCore, idle_ms: int) -> Callable[[], bool]:
    """Begins to wait for the idle time. The result looks again, and tells whether it is over."""
    steps = stepped.core.until_stopped(idle_ms)
    next(steps)

    def is_over() -> bool:
        try:
            steps.send({})
        except StopIteration:
            return True
        return False

    return is_over


def handed_out(stepped: SteppedCore) -> ShareRecord:
    """A record for a handler of `run`."""
    take = stepped.core.take(NEVER_MS)
    next(take)
    stepped.answer(stepped.call(), stepped.lock(0))
    with pytest.raises(StopIteration) as done:
        take.send({})
    record: ShareRecord = done.value.value
    return record


def asks(stepped: SteppedCore) -> tuple[ShareCall, object]:
    """The acquire for a handler that waits as long as you keep the second object."""
    take = stepped.core.take(NEVER_MS)
    next(take)
    return stepped.call(), take


def test_idle_time_is_over_when_the_service_had_no_record_for_so_long() -> None:
    stepped = SteppedCore()
    is_over = idle(stepped, 1_000)
    call, _take = asks(stepped)
    stepped.answer(call)
    stepped.step(999)
    assert not is_over()
    stepped.step(1)
    assert is_over()


def test_idle_time_is_not_over_before_the_service_has_answered() -> None:
    stepped = SteppedCore()
    is_over = idle(stepped, 1_000)
    call, _take = asks(stepped)
    stepped.step(60_000)
    assert not is_over()
    stepped.answer(call)
    assert is_over()


def test_idle_time_counts_from_the_end_of_the_last_handler() -> None:
    stepped = SteppedCore()
    is_over = idle(stepped, 1_000)
    record = handed_out(stepped)
    stepped.step(5_000)
    assert not is_over(), "a handler works"
    stepped.core.handled(record, None)
    stepped.step(999)
    assert not is_over()
    stepped.step(1)
    assert is_over()


def test_idle_time_begins_anew_when_an_acquire_fails() -> None:
    stepped = SteppedCore()
    is_over = idle(stepped, 1_000)
    take = stepped.core.take(NEVER_MS)
    next(take)
    call = stepped.call()
    stepped.step(999)
    stepped.fail(call, UNAVAILABLE)
    stepped.step(1)
    assert not is_over()
    stepped.step(60_000)
    assert not is_over()
    stepped.answer(stepped.call())
    assert is_over()
