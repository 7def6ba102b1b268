from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.records.partitioner import murmur2
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.acquire import next_available_ms
from penstock_core.share.draft import apply
from penstock_core.share.read_first import NO_KEY, key_hash, plan_read_first
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_group import ShareGroupConfig
from penstock_core.share.share_state import Lock, ShareState, Wait
from tests.core.share.share_samples import (
    LOCK_MS,
    NEW,
    NO_BACKOFF,
    NONCE,
    NOW_MS,
    OTHER,
    WITH_DEAD_LETTERS,
    ack,
    acknowledged,
    applied,
    check,
    held,
    log,
    request,
)

BY_KEY = replace(NO_BACKOFF, ordering="key", in_flight_max=500)
BATCHES = replace(BY_KEY, key_batch_max=2)
LAST = replace(WITH_DEAD_LETTERS, ordering="key", in_flight_max=500, retry_backoff_ms_min=0, retry_backoff_ms_max=0)
EXPIRED_MS = NOW_MS + LOCK_MS
THIRD = LockNonce("nonce-03")
NONCES = [LockNonce(f"nonce-{number}x") for number in range(10)]


def take(
    state: ShareState,
    window: Sequence[int | None] = (),
    nonce: LockNonce = NONCE,
    *,
    config: ShareGroupConfig = BY_KEY,
    records_max: int = 10,
    now_ms: int = NOW_MS,
) -> ShareState:
    wanted = request(nonce, records_max, now_ms)
    return applied(state, plan_read_first(state, config, log(), wanted, window))


def test_first_record_of_each_key_is_handed_out() -> None:
    state = take(NEW, [1, 2, 1, 3, 2])
    assert held(state) == [(((0, 2), (3, 4)), 1)]
    assert state.waits == {2: Wait(0, 0, RecordSet(((2, 3), (4, 5)), (1, 2)))}
    assert state.position == 5


def test_next_record_of_a_key_comes_after_the_first_is_accepted() -> None:
    state = take(NEW, [1, 1, 2])
    assert plan_read_first(state, BY_KEY, log(), request(OTHER), ()).update is None
    accepted, _ = acknowledged(state, ack(AckType.ACCEPT, (0, 1)), config=BY_KEY)
    assert held(take(accepted, (), OTHER), OTHER) == [(((1, 2),), 1)]


def test_key_stays_blocked_while_its_record_waits_for_a_retry() -> None:
    state = take(NEW, [1, 1, 2])
    waiting, _ = acknowledged(state, ack(AckType.RELEASE, (0, 1), delay_ms=100), config=BY_KEY)
    assert plan_read_first(waiting, BY_KEY, log(), request(OTHER), ()).update is None
    again = take(waiting, (), OTHER, now_ms=NOW_MS + 100)
    assert held(again, OTHER) == [(((0, 1),), 2)]


def test_records_without_key_have_no_order() -> None:
    assert held(take(NEW, [NO_KEY, NO_KEY, 1, NO_KEY])) == [(((0, 4),), 1)]


def test_batch_of_a_key_goes_to_one_acquire_in_order() -> None:
    state = take(NEW, [1, 1, 1, 2], config=BATCHES)
    assert held(state) == [(((0, 2), (3, 4)), 1)]
    released, _ = acknowledged(state, ack(AckType.RELEASE, (0, 1), delay_ms=0), config=BATCHES)
    assert {first: (wait.deliveries, wait.records.ranges) for first, wait in released.waits.items()} == {
        0: (1, ((0, 1),)),
        1: (0, ((1, 2),)),
        2: (0, ((2, 3),)),
    }
    again = take(released, (), OTHER, config=BATCHES)
    assert sorted(held(again, OTHER)) == [(((0, 1),), 2), (((1, 2),), 1)]


def test_finished_and_missing_records_are_passed_over() -> None:
    state = take(NEW, [None, 1, None, None])
    assert (held(state), state.position, state.open) == ([(((1, 2),), 1)], 4, 1)
    assert take(NEW, [None, None]).position == 2


def test_acquire_ends_where_it_has_enough() -> None:
    state = take(NEW, [1, 1, 2, 3, 4], records_max=2)
    assert (held(state), state.position) == ([(((0, 1), (2, 3)), 1)], 3)


def test_bound_in_flight_counts_records_that_stay_behind() -> None:
    few = replace(BY_KEY, in_flight_max=3)
    state = take(NEW, [1, 1, 1, 2], config=few)
    assert (held(state), state.position, state.open) == ([(((0, 1),), 1)], 3, 3)
    plan = plan_read_first(state, few, log(), request(OTHER), [2])
    assert (plan.update, plan.is_blocked) == (None, True)


def test_position_must_be_as_it_was_read() -> None:
    plan = plan_read_first(NEW, BY_KEY, log(), request(), [1])
    assert plan.update is not None
    assert apply(take(NEW, [5], OTHER), plan.update) is None


def test_window_begins_at_the_log_start() -> None:
    plan = plan_read_first(NEW, BY_KEY, log(100, 40), request(), [1, 1])
    state = applied(NEW, plan)
    assert (held(state), state.position) == ([(((40, 41),), 1)], 42)


def test_expired_lock_is_split_and_none_of_its_records_stays_with_its_worker() -> None:
    records = RecordSet(((0, 16),), tuple(range(1, 17)))
    behind = Wait(0, 0, RecordSet(((16, 18),), (1, 99)))
    state = ShareState(
        position=Offset(18),
        open=18,
        locks={LockId("worker-1.0"): Lock(Offset(0), NOW_MS, 1, records)},
        waits={Offset(16): behind},
    )
    found = set()
    for nonce in NONCES:
        plan = plan_read_first(state, BY_KEY, log(), request(nonce, now_ms=EXPIRED_MS), ())
        after = applied(state, plan)
        found.add((plan.is_alone, *held(after, nonce)))
        assert plan.is_alone == ("worker-1.0" not in after.locks)
        assert (
            len([wait for wait in after.waits.values() if wait.is_suspect])
            == (8 if plan.is_alone else 0) - 1 * plan.is_alone
        )
    assert found == {(True, (((0, 2),), 2)), (False, (((17, 18),), 1))}


def test_last_delivery_of_a_suspect_is_one_record() -> None:
    records = RecordSet(((0, 3),), (1, 2, 1))
    state = ShareState(position=Offset(3), open=3, locks={LockId("worker-1.0"): Lock(Offset(0), NOW_MS, 2, records)})
    found = set()
    for nonce in NONCES:
        plan = plan_read_first(state, LAST, log(), request(nonce, now_ms=EXPIRED_MS), [7])
        after = applied(state, plan)
        found.add((plan.is_alone, *held(after, nonce)))
    assert found == {(True, (((0, 1),), 3)), (False, (((3, 4),), 1))}


def test_suspect_part_gives_what_leads_its_keys() -> None:
    first = Wait(NOW_MS * 9, 1, RecordSet(((0, 1),), (1,)))
    part = Wait(0, 1, RecordSet(((1, 4),), (1, 2, 1)), is_suspect=True)
    state = ShareState(position=Offset(4), open=4, waits={Offset(0): first, Offset(1): part})
    after = take(state, ())
    assert held(after) == [(((2, 3),), 2)]
    assert after.waits[Offset(1)] == Wait(0, 1, RecordSet(((1, 2), (3, 4)), (1, 1)), is_suspect=True)


def test_lock_whose_records_expired_from_the_log_goes_away() -> None:
    state = ShareState(
        position=Offset(2),
        open=2,
        locks={LockId("worker-1.0"): Lock(Offset(0), NOW_MS, 1, RecordSet(((0, 1),), (1,)))},
        waits={Offset(1): Wait(0, 0, RecordSet(((1, 2),), (1,)))},
    )
    for nonce in NONCES[:4]:
        plan = plan_read_first(state, BY_KEY, log(9, 9), request(nonce, now_ms=EXPIRED_MS), ())
        state = state if plan.update is None else applied(state, plan)
    assert state.open == 0


def test_record_for_the_dead_letter_topic_has_left_the_order() -> None:
    state = take(NEW, [1, 1], config=LAST)
    rejected, _ = acknowledged(state, ack(AckType.REJECT, (0, 1)), config=LAST)
    assert held(take(rejected, (), OTHER, config=LAST), OTHER) == [(((1, 2),), 1)]
    assert next_available_ms(rejected, LAST, NOW_MS) == 0
    without = replace(LAST, dead_letter_topic=None, deliveries_max=None)
    after = take(rejected, (), OTHER, config=without)
    assert (held(after, OTHER), after.open) == ([(((1, 2),), 1)], 1)


def test_repeat_and_acknowledgements_in_the_same_call() -> None:
    state = take(NEW, [1, 1, 2])
    assert plan_read_first(state, BY_KEY, log(), request(), [3]).is_repeat
    plan = plan_read_first(state, BY_KEY, log(), request(OTHER), [1], [ack(AckType.ACCEPT)])
    after = applied(state, plan)
    assert (held(after), held(after, OTHER)) == ([], [(((1, 2),), 1)])
    assert after.waits == {3: Wait(0, 0, RecordSet(((3, 4),), (1,)))}


def test_next_available_does_not_count_records_behind_their_key() -> None:
    state = take(NEW, [1, 1, 2])
    assert next_available_ms(state, BY_KEY, NOW_MS) == LOCK_MS
    accepted, _ = acknowledged(state, ack(AckType.ACCEPT, (0, 1)), config=BY_KEY)
    assert next_available_ms(accepted, BY_KEY, NOW_MS) == 0


def test_filter_takes_the_records_that_match() -> None:
    state = take(NEW, [None, 0, 0, None, 0, None], config=NO_BACKOFF)
    assert (held(state), state.position) == ([(((1, 3), (4, 5)), 1)], 6)
    state = take(NEW, [None, 0, 0, None, 0, None], config=NO_BACKOFF, records_max=2)
    assert (held(state), state.position) == ([(((1, 3),), 1)], 4)
    blocked = replace(NO_BACKOFF, in_flight_max=1)
    full = take(NEW, [0, 0], config=blocked)
    plan = plan_read_first(full, blocked, log(), request(OTHER), [0])
    assert (plan.update, plan.is_blocked) == (None, True)


def test_hash_of_a_key_is_murmur2_and_never_that_of_no_key() -> None:
    assert key_hash(None) == NO_KEY
    assert key_hash(b"order-1") == murmur2(b"order-1")
    assert key_hash(b"") == murmur2(b"") != NO_KEY


@pytest.mark.parametrize("config", [BY_KEY, BATCHES, LAST])
@given(st.data())
def test_any_series_of_calls_keeps_order_by_key(config: ShareGroupConfig, data: st.DataObject) -> None:
    hashes = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, None]), min_size=1, max_size=30))
    state, now_ms = NEW, NOW_MS
    for nonce in NONCES:
        now_ms += data.draw(st.sampled_from([0, 1_000, LOCK_MS]))
        wanted = [
            ack(
                data.draw(st.sampled_from(AckType)),
                *data.draw(st.lists(RANGES, max_size=2)),
                nonce=data.draw(st.sampled_from(NONCES)),
                index=data.draw(st.integers(0, 1)),
            )
            for _ in range(data.draw(st.integers(0, 2)))
        ]
        window = hashes[state.position : state.position + data.draw(st.integers(0, 9))]
        plan = plan_read_first(
            state, config, log(len(hashes)), request(nonce, data.draw(st.integers(1, 9)), now_ms), window, wanted
        )
        if plan.update is not None:
            after = apply(state, plan.update)
            assert after is not None
            check(after)
            state = after
            assert_in_order(state, nonce, config)


def assert_in_order(state: ShareState, nonce: LockNonce, config: ShareGroupConfig) -> None:
    """No record that the acquire got has an earlier one of its key with somebody else, but one that is for the dead."""
    owner: dict[int, tuple[int, str]] = {}
    for name, lock in state.locks.items():
        owner |= {offset: (value, name.split(".")[0]) for offset, value in lock.held.hash_by_offset().items()}
    for wait in state.waits.values():
        if not wait.is_terminal:
            owner |= {offset: (value, "") for offset, value in wait.records.hash_by_offset().items()}
    mine: dict[int, int] = {}
    for offset, (value, holder) in owner.items():
        if holder == nonce and value:
            mine[value] = mine.get(value, 0) + 1
            earlier = {owner[other][1] for other in owner if other < offset and owner[other][0] == value}
            assert earlier <= {nonce}
    assert all(count <= config.key_batch_max for count in mine.values())


RANGES = st.builds(lambda start, length: (start, start + length), st.integers(0, 30), st.integers(1, 8))


def test_record_is_handed_out_when_many_waits_stand_behind_others_of_their_keys() -> None:
    waits = {Offset(offset): Wait(0, 0, RecordSet(((offset, offset + 1),), (1,))) for offset in range(2, 42, 2)}
    state = ShareState(position=Offset(50), open=len(waits), waits=waits)
    for nonce in NONCES:
        assert held(take(state, (), nonce), nonce) == [(((2, 3),), 1)]


def test_slow_worker_cannot_finish_later_records_of_a_key_when_the_first_is_handed_out_again() -> None:
    again = acknowledged(take(NEW, [1, 2]), ack(AckType.RELEASE, (0, 1), delay_ms=0), config=BATCHES)[0]
    slow = take(again, [1], OTHER, config=BATCHES)  # a lock for record 0, which was handed out before, and one for 2
    assert sorted(held(slow, OTHER)) == [(((0, 1),), 2), (((2, 3),), 1)]
    nonce = next(nonce for nonce in NONCES if held(_retaken(slow, nonce), nonce) == [(((0, 1),), 3)])
    retaken = _retaken(slow, nonce)
    after, results = acknowledged(
        retaken, ack(AckType.ACCEPT, (2, 3), nonce=OTHER), ack(AckType.ACCEPT, (2, 3), nonce=OTHER, index=1)
    )
    assert (after, {result for _, result in results}) == (retaken, {AckResult.LOST})


def _retaken(state: ShareState, nonce: LockNonce) -> ShareState:
    return take(state, (), nonce, config=BATCHES, now_ms=EXPIRED_MS, records_max=1)


def test_release_gives_back_later_records_of_its_key_when_they_are_in_another_lock_of_the_acquire() -> None:
    again = acknowledged(take(NEW, [1, 2]), ack(AckType.RELEASE, (0, 1), delay_ms=0), config=BATCHES)[0]
    both = take(again, [1], OTHER, config=BATCHES)
    index = next(index for index in (0, 1) if both.locks[LockId(f"{OTHER}.{index}")].deliveries == 2)
    after, _ = acknowledged(both, ack(AckType.RELEASE, (0, 1), nonce=OTHER, index=index), config=BATCHES)
    assert held(after, OTHER) == []
    assert {first: wait.deliveries for first, wait in after.waits.items()} == {0: 2, 2: 0}
