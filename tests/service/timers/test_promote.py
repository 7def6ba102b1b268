"""Due timers reach the log: in order, once, and whatever dies or comes between."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PROMOTE_ATTEMPTS_MAX, TIMERS_PROMOTED_MAX
from penstock_core.log.timer import TimerState, second_of
from penstock_service.adapters.memory.wake_ups import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.timers.promote import Promotion, promote_partition, promote_second
from tests.service.timers.delays import FOREVER_MS, delay, place, sent
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    Intercepted,
    SteppedClock,
    head_of,
    key_of,
    new_topic,
    read_all,
    send,
    with_stores,
)


@pytest.fixture
def topic(instance: Instance) -> str:
    return new_topic(instance)


def promote(instance: Instance, topic: str, start_ms: int = 0) -> Promotion:
    return promote_partition(instance, key_of(instance, topic), start_ms, FOREVER_MS)


def values(instance: Instance, topic: str) -> list[str]:
    return [value for _, value in read_all(instance, topic)]


def test_due_timers_come_in_order_and_others_wait(instance: Instance, clock: SteppedClock, topic: str) -> None:
    now_ms = clock.now_ms()
    send(instance, topic, "at once")
    delay(instance, topic, now_ms + 2_000, "c")
    delay(instance, topic, now_ms + 1_000, "b", number=2)
    delay(instance, topic, now_ms + 1_000, "a", number=1)
    delay(instance, topic, now_ms + 2_001, "waits")
    clock.time_ms += 2_000
    done = promote(instance, topic)
    assert done == Promotion(timers=3, records=3, late_ms=1_000)
    assert values(instance, topic) == ["at once", "a", "b", "c"]
    assert {ref.delivered_ms for ref in head_of(instance, topic).tail} == {None, now_ms + 2_000}
    assert promote(instance, topic) == Promotion()
    assert len(values(instance, topic)) == 4


def test_nothing_is_promoted_before_its_time(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms() + 1, "a")
    assert promote(instance, topic) == Promotion()
    clock.time_ms += 1
    assert promote(instance, topic).timers == 1


def test_many_timers_go_in_several_transactions_and_roll(instance: Instance, clock: SteppedClock, topic: str) -> None:
    count = 2 * TIMERS_PROMOTED_MAX + 1
    for number in range(count):
        delay(instance, topic, clock.now_ms(), str(number), number=number)
    chunks: list[int] = []

    def counting(original: Any, key: object, timers: Any, now_ms: int) -> bool:
        chunks.append(len(timers))
        return bool(original(key, timers, now_ms))

    assert (
        promote(with_stores(instance, timers=Intercepted(instance.stores.timers, promote=counting)), topic).timers
        == count
    )
    assert chunks == [TIMERS_PROMOTED_MAX, TIMERS_PROMOTED_MAX, 1]
    assert values(instance, topic) == [*map(str, range(count))]
    assert len(head_of(instance, topic).tail) < 16


def test_cancelled_timer_never_comes_and_those_beside_it_do(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    for number in range(3):
        delay(instance, topic, clock.now_ms(), str(number), number=number)
    key, due_ms = key_of(instance, topic), clock.now_ms()

    def cancel_first(original: Any, *arguments: Any) -> bool:
        instance.stores.timers.cancel(key, place(due_ms, 1), due_ms)
        return bool(original(*arguments))

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=cancel_first))
    assert promote(raced, topic) == Promotion(timers=2, records=2, refused=1)
    assert values(instance, topic) == ["0", "2"]


def test_second_promoter_is_refused_and_finds_nothing_left(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")

    def other_first(original: Any, *arguments: Any) -> bool:
        promote(instance, topic)
        return bool(original(*arguments))

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=other_first))
    assert promote(raced, topic) == Promotion(refused=1)
    assert values(instance, topic) == ["a"]


def test_promoter_that_others_always_overtake_gives_up(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")
    tries: list[int] = []

    def overtaken(*_: Any) -> bool:
        tries.append(1)
        return False

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=overtaken))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: promote(raced, topic))
    assert len(tries) == PROMOTE_ATTEMPTS_MAX
    assert promote(instance, topic).timers == 1


def test_lost_answer_delivers_once(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")

    def lost(original: Any, *arguments: Any) -> bool:
        original(*arguments)
        raise LOST_ANSWER

    unlucky = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=lost))
    with pytest.raises(PenstockError):
        promote(unlucky, topic)
    assert promote(instance, topic) == Promotion()
    assert values(instance, topic) == ["a"]


def test_frozen_promoter_reads_again(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")
    reads = []

    def freeze(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        reads.append(len(found))
        if len(reads) == 1:
            clock.time_ms += 3_600_000
        return found

    slow = with_stores(instance, timers=Intercepted(instance.stores.timers, waiting=freeze))
    assert promote(slow, topic).timers == 1
    assert reads == [1, 1, 0]
    assert head_of(instance, topic).tail[0].delivered_ms == clock.now_ms()


def test_promotion_wakes_the_readers_that_wait(instance: Instance, clock: SteppedClock, topic: str) -> None:
    wake_ups = MemoryWakeUps()
    waking = with_stores(instance, wake_ups=wake_ups)
    entries = [FetchEntry(topic=topic, partition=0, offset=0, max_bytes=1_000)]
    fetch(waking, entries, max_bytes=1_000, min_bytes=1, wait_ms=0, must_arm=True).all_ok()
    delay(waking, topic, clock.now_ms(), "a", "b")
    assert not wake_ups.messages
    promote(waking, topic)
    [message] = wake_ups.messages
    assert '"next_offset":2' in message.event


def test_timers_of_a_deleted_topic_do_not_come(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")
    key = key_of(instance, topic)
    instance.stores.log.delete_head(key)
    refused(ErrorCode.UNKNOWN_PARTITION, lambda: promote_partition(instance, key, 0, FOREVER_MS))
    assert promote_second(instance, second_of(clock.now_ms(), key), FOREVER_MS) == Promotion()


def test_early_message_waits_a_moment_and_a_very_early_one_is_sent_again(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    due_ms = clock.now_ms() + 5_000
    delay(instance, topic, due_ms, "a")
    second = second_of(due_ms, key_of(instance, topic))
    clock.time_ms = due_ms - 3_000
    assert promote_second(instance, second, FOREVER_MS) == Promotion()
    assert sent(instance)[1:] == [(second.second, 3_000)]
    clock.time_ms = due_ms - 700
    assert promote_second(instance, second, FOREVER_MS).timers == 1
    assert clock.sleeps == [700]
    assert clock.now_ms() == due_ms


def test_work_that_is_not_done_in_time_is_left_to_another_message(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    delay(instance, topic, clock.now_ms(), "a")
    second = second_of(clock.now_ms(), key_of(instance, topic))
    before = len(sent(instance))
    assert not promote_second(instance, second, clock.monotonic_ms()).is_finished
    assert len(sent(instance)) == before + 1
    mark = instance.stores.timers.get(second.key, place(clock.now_ms()))
    assert mark is not None
    assert mark.state is TimerState.WAITING
