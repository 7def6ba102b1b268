from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch
from penstock_core.push.lane import NO_MESSAGE
from penstock_core.records.codec import NewRecord, decode
from penstock_core.records.record_batch import NO_TIME_MS
from penstock_core.share.share_state import ShareKey
from penstock_service.push.deliver import Ending
from penstock_service.push.parallel.parallel_group import parallel_group, put_parallel_group
from penstock_service.topics.alter_topic import truncate
from tests.support.push_deliveries import Deliveries, refusing
from tests.support.service import Counted, Intercepted, ask, key_of, new_topic, with_stores

REFUSED = Failed(failure=Failure.REFUSAL, error="no")


def parallel(partitions: int = 1, **settings: Any) -> Deliveries:
    deliveries = Deliveries(partitions=partitions, settings={"mode": "parallel", **settings})
    put_parallel_group(deliveries.instance, deliveries.subscription, [])
    return deliveries


def with_dead_letters(partitions: int = 1, **settings: Any) -> Deliveries:
    deliveries = parallel(partitions, dead_letter_topic="dead", **settings)
    new_topic(deliveries.instance, "dead")
    return deliveries


def dead(deliveries: Deliveries) -> list[int]:
    """The offsets that the dead letters had in their topic."""
    found = [*decode(ask(deliveries.instance, "dead").data)]
    name = "penstock.dead-letter.offset"
    return sorted(int(dict(letter.headers)[name] or b"") for letter in found)


def handled(deliveries: Deliveries, poison: set[int]) -> set[int]:
    return {offset for batch in deliveries.batches if not poison & {*batch} for offset in batch}


def is_at_rest(deliveries: Deliveries, partitions: int = 1) -> bool:
    lanes = [deliveries.lane(each) for each in range(deliveries.subscription.config.concurrency)]
    are_free = all(lane is None or (lane.holder, lane.sleeper) == (NO_MESSAGE, NO_MESSAGE) for lane in lanes)
    return are_free and not deliveries.queue.messages and all(map(deliveries.is_armed, range(partitions)))


def test_records_of_all_partitions_are_delivered_once() -> None:
    deliveries = parallel(partitions=3)
    for partition in range(3):
        deliveries.append_many(150, partition)
    deliveries.run()
    assert sum(map(len, deliveries.batches)) == 450
    assert is_at_rest(deliveries, 3)
    assert deliveries.counts()["records_pushed"] == 450


def test_lane_is_at_rest_when_all_records_were_removed_before_they_were_delivered() -> None:
    deliveries = parallel()
    deliveries.append("a")
    deliveries.run()
    deliveries.append_many(3)
    truncate(deliveries.instance, "orders", {0: 4}).all_ok()
    deliveries.run(for_ms=10_000)
    assert deliveries.batches == [[0]]
    assert is_at_rest(deliveries)


def test_append_at_the_end_wakes_a_delivery() -> None:
    deliveries = parallel(concurrency=4)
    deliveries.run()
    deliveries.append("a")
    deliveries.run()
    assert deliveries.batches == [[0]]
    assert is_at_rest(deliveries)


def test_full_batch_starts_the_next_lane_while_the_first_one_works() -> None:
    deliveries = parallel(concurrency=2, batch_records=10)
    deliveries.run()
    deliveries.append_many(20)
    depths: list[int] = []
    depth = 0

    def answer(_batch: PushBatch) -> Answer:
        nonlocal depth
        depth += 1
        depths.append(depth)
        if depth == 1:
            while deliveries.run_once() is not None:
                pass
        depth -= 1
        return Answered()

    deliveries.answer = answer
    deliveries.run()
    assert max(depths) == 2
    assert sorted(offset for batch in deliveries.batches for offset in batch) == [*range(20)]
    assert is_at_rest(deliveries)


@pytest.mark.parametrize("poison", [0, 42, 99])
def test_poison_record_is_buried_alone_and_all_others_are_handled(poison: int) -> None:
    deliveries = with_dead_letters()
    deliveries.answer = refusing([poison], REFUSED)
    deliveries.append_many(100)
    deliveries.run(for_ms=600_000)
    assert dead(deliveries) == [poison]
    assert handled(deliveries, {poison}) == {*range(100)} - {poison}
    assert len(deliveries.batches) <= 40


@pytest.mark.parametrize("is_named", [False, True])
def test_dead_letter_tells_the_reason_and_the_subscription(is_named: bool) -> None:
    deliveries = with_dead_letters(attempts_max=3)

    def answer(batch: PushBatch) -> Answer:
        bad = frozenset(each.place for each in batch.records if each.record.offset == 1)
        if not bad or is_named:
            return Answered(failed=bad, error="too long")
        return Failed(failure=Failure.REFUSAL, error="too long")

    deliveries.answer = answer
    deliveries.append_many(3)
    deliveries.run()
    [letter] = decode(ask(deliveries.instance, "dead").data)
    headers = {name.removeprefix("penstock.dead-letter."): value for name, value in letter.headers}
    assert (headers["reason"], headers["subscription"], headers["deliveries"]) == (b"too long", b"packing", b"3")
    assert "group" not in headers


@pytest.mark.parametrize("failure", Failure)
@pytest.mark.parametrize("is_named", [False, True])
def test_dead_letter_tells_a_reason_when_the_target_gives_none(failure: Failure, is_named: bool) -> None:
    deliveries = with_dead_letters(attempts_max=1, age_ms_max=1_000, patience_ms=0, backoff_ms_max=2_000)

    def answer(batch: PushBatch) -> Answer:
        places = frozenset(each.place for each in batch.records)
        return Answered(failed=places) if is_named else Failed(failure=failure, error="")

    deliveries.answer = answer
    deliveries.append("a")
    deliveries.run(for_ms=60_000)
    [letter] = decode(ask(deliveries.instance, "dead").data)
    reason = dict(letter.headers)["penstock.dead-letter.reason"]
    kind = Failure.REFUSAL if is_named else failure
    assert reason == f"{kind.value}, without a word of the target".encode()


def test_batch_costs_one_update_of_the_share_item_to_acknowledge() -> None:
    """None of them is refused, though each batch is a part of the lock that the acquire has."""
    deliveries = parallel(batch_records=64, concurrency=1)
    deliveries.answer = lambda batch: REFUSED if batch.attempt < 4 else Answered()
    deliveries.append_many(64)
    counts: Counter[str] = Counter()
    applied: list[bool] = []

    def update(original: Callable[..., Any], *arguments: Any) -> Any:
        outcome = original(*arguments)
        applied.append(outcome.is_applied)
        return outcome

    share = Intercepted(Counted(deliveries.instance.stores.share, "share", counts), update=update)
    deliveries.instance = with_stores(deliveries.instance, share=share)
    while not deliveries.batches or len(deliveries.batches[-1]) > 8:
        deliveries.clock.time_ms = max(deliveries.clock.time_ms, deliveries.queue.next_visible_ms or 0)
        applied.clear()
        counts.clear()
        seen = len(deliveries.batches)
        deliveries.run_once()
    batches = len(deliveries.batches) - seen
    assert batches == 8
    assert applied == [True] * (batches + 1)


def test_answered_batch_is_done_though_the_delivery_fails_at_the_next_one() -> None:
    deliveries = parallel(batch_records=2)
    deliveries.append_many(2)
    deliveries.answer = lambda _: Failed(failure=Failure.REFUSAL, error="once")
    deliveries.run_once()
    assert deliveries.batches == [[0, 1]]

    def answer(batch: PushBatch) -> Answer:
        if batch.records[0].record.offset == 1:
            raise PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "the state cannot be written")
        return Answered()

    deliveries.answer = answer
    deliveries.run(for_ms=20_000)
    assert deliveries.batches[:3] == [[0, 1], [0], [1]]
    deliveries.answer = lambda _: Answered()
    deliveries.run()
    assert [0] not in deliveries.batches[3:], "it was answered"
    assert is_at_rest(deliveries)


def test_answered_batch_is_acknowledged_before_the_next_one_begins() -> None:
    """So a death in the next one, behind which nothing runs any more, does not repeat it."""
    deliveries = parallel(batch_records=2)
    deliveries.append_many(2)
    deliveries.answer = lambda _: REFUSED
    deliveries.run_once()
    key = key_of(deliveries.instance, "orders")
    share = ShareKey(parallel_group(deliveries.subscription).share_group_id, key.topic_id, key.partition)
    unfinished: list[list[tuple[int, int]]] = []

    def answer(_batch: PushBatch) -> Answer:
        state = deliveries.instance.stores.share.find_states([share])[share]
        unfinished.append([*state.unfinished()])
        return Answered()

    deliveries.answer = answer
    deliveries.run()
    assert deliveries.batches == [[0, 1], [0], [1]]
    assert unfinished == [[(0, 2)], [(1, 2)]]


@pytest.mark.parametrize("failure", Failure)
def test_outage_buries_nothing_and_its_end_is_found(failure: Failure) -> None:
    deliveries = with_dead_letters(backoff_ms_max=60_000)
    begin_ms = deliveries.clock.now_ms()

    def answer(_batch: PushBatch) -> Answer:
        is_down = deliveries.clock.now_ms() < begin_ms + 600_000
        return Failed(failure=failure, error="down") if is_down else Answered()

    deliveries.answer = answer
    deliveries.append_many(50)
    deliveries.run()
    assert dead(deliveries) == []
    assert handled(deliveries, set()) == {*range(50)}
    assert {*deliveries.batches[-1]} <= {*range(50)}
    assert is_at_rest(deliveries)


def test_record_is_not_buried_without_proof_when_the_bound_of_attempts_is_lowered() -> None:
    deliveries = with_dead_letters(attempts_max=50, backoff_ms_max=10_000)
    is_down = True

    def answer(batch: PushBatch) -> Answer:
        has_poison = any(each.record.offset == 1 for each in batch.records)
        return REFUSED if is_down or has_poison else Answered()

    deliveries.answer = answer
    deliveries.append_many(3)
    deliveries.run(for_ms=100_000)
    deliveries.change(config=replace(deliveries.subscription.config, attempts_max=2))
    deliveries.run(for_ms=100_000)
    assert dead(deliveries) == [], "the target has no success yet"
    is_down = False
    deliveries.run()
    assert dead(deliveries) == [1]
    assert is_at_rest(deliveries)


def test_old_records_that_fail_are_buried_whatever_the_target_is() -> None:
    deliveries = with_dead_letters(age_ms_max=60_000)
    deliveries.answer = lambda _: Failed(failure=Failure.AWAY, error="é" * 300)
    deliveries.append_many(3)
    deliveries.run(for_ms=50_000)
    assert dead(deliveries) == []
    deliveries.run(for_ms=200_000)
    assert dead(deliveries) == [0, 1, 2]


def test_record_without_a_time_is_never_too_old() -> None:
    deliveries = with_dead_letters(age_ms_max=60_000)
    deliveries.answer = lambda _: Failed(failure=Failure.AWAY, error="e")
    deliveries.append(NewRecord(NO_TIME_MS, None, b"v"))
    deliveries.run(for_ms=200_000)
    assert dead(deliveries) == []


def test_named_records_come_back_and_the_others_are_done() -> None:
    deliveries = parallel()

    def answer(batch: PushBatch) -> Answer:
        is_first = len(deliveries.batches) == 1
        places = {each.place for each in batch.records if each.record.offset in (1, 3)}
        return Answered(failed=frozenset(places) if is_first else frozenset(), error="2 of 5")

    deliveries.answer = answer
    deliveries.append_many(5)
    assert deliveries.run_once() is Ending.KEEP
    deliveries.run()
    assert deliveries.batches == [[0, 1, 2, 3, 4], [1, 3]]
    assert is_at_rest(deliveries)


def test_filter_takes_some_records_only() -> None:
    deliveries = parallel(filter={"kind": ["a"]})
    deliveries.append("plain", NewRecord(1, None, b"taken", [("kind", b"a")]), "plain")
    deliveries.run()
    assert deliveries.batches == [[1]]
    assert is_at_rest(deliveries)


def test_delivery_that_died_is_made_again_when_its_locks_are_over() -> None:
    deliveries = parallel()
    deliveries.append("a", "b")
    deliveries.die()
    deliveries.run()
    assert deliveries.batches == [[0, 1], [0], [1]], "one of them may have killed it"
    assert is_at_rest(deliveries)
