"""Due timers reach the log: in order, once, and whatever dies or comes between."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import PROMOTE_ATTEMPTS_MAX, TIMER_SHARDS, TIMERS_PROMOTED_MAX
from penstock_core.log.delivery import Delivery, DeliveryOutcome
from penstock_core.log.timer import TimerState, second_of
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.timers.promote import Promotion, promote_partition, promote_second
from tests.service.timers.delays import FOREVER_MS, delay, place, sent
from tests.support.refusals import refused
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    counted_instance,
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
    assert {ref.appended_ms for ref in head_of(instance, topic).tail} == {None, now_ms + 2_000}
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
    chunks: list[tuple[int, int]] = []

    def counting(original: Any, delivery: Delivery) -> object:
        chunks.append((len(delivery.timers), delivery.actions))
        return original(delivery)

    counted = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=counting))
    assert promote(counted, topic).timers == count
    assert chunks == [(90, 1 + 5 + 90), (90, 1 + 6 + 90), (1, 1 + 1)], "pages go in the same transaction"
    assert values(instance, topic) == [*map(str, range(count))]
    assert len(head_of(instance, topic).tail) < 16


def test_promotion_costs_a_transaction_for_ninety_timers_and_few_reads(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    for number in range(8 * TIMERS_PROMOTED_MAX):
        delay(instance, topic, clock.now_ms(), str(number), number=number)
    counts: Counter[str] = Counter()
    assert promote(counted_instance(instance, counts), topic).timers == 8 * TIMERS_PROMOTED_MAX
    assert counts["timers.promote"] == 8
    assert counts["timers.waiting"] == 2 * TIMER_SHARDS
    assert counts["log.heads"] == 2
    assert not counts["log.put_page"] + counts["log.shorten_tail"], "no roll of its own"


def test_cancelled_timer_never_comes_and_those_beside_it_do(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    for number in range(3):
        delay(instance, topic, clock.now_ms(), str(number), number=number)
    key, due_ms = key_of(instance, topic), clock.now_ms()

    def cancel_first(original: Any, *arguments: Any) -> object:
        instance.stores.timers.cancel(key, place(due_ms, 1), due_ms)
        return original(*arguments)

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=cancel_first))
    done = promote(raced, topic)
    assert (done.timers, done.refused, done.is_finished) == (2, 1, True)
    assert values(instance, topic) == ["0", "2"]


def test_second_promoter_is_refused_and_finds_nothing_left(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")

    def other_first(original: Any, *arguments: Any) -> object:
        promote(instance, topic)
        return original(*arguments)

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=other_first))
    assert promote(raced, topic) == Promotion(refused=1)
    assert values(instance, topic) == ["a"]


def test_promoter_that_others_always_overtake_gives_up(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")
    tries: list[int] = []

    def overtaken(*_: Any) -> DeliveryOutcome:
        tries.append(1)
        return DeliveryOutcome.SETTLED

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=overtaken))
    refused(ErrorCode.CONCURRENT_UPDATE, lambda: promote(raced, topic))
    assert len(tries) == PROMOTE_ATTEMPTS_MAX
    assert promote(instance, topic).timers == 1


def test_lost_answer_delivers_once(instance: Instance, clock: SteppedClock, topic: str) -> None:
    delay(instance, topic, clock.now_ms(), "a")

    def lost(original: Any, *arguments: Any) -> None:
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
    rounds = [sum(reads[at : at + TIMER_SHARDS]) for at in range(0, len(reads), TIMER_SHARDS)]
    assert rounds == [1, 1, 0]
    assert head_of(instance, topic).tail[0].appended_ms == clock.now_ms()


def test_append_that_comes_between_changes_no_offset_and_ends_the_rolling(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    count = 2 * TIMERS_PROMOTED_MAX
    for number in range(count):
        delay(instance, topic, clock.now_ms(), str(number), number=number)
    outcomes: list[tuple[bool, DeliveryOutcome]] = []

    def append_first(original: Any, delivery: Delivery) -> DeliveryOutcome:
        if not outcomes:
            send(instance, topic, "now")
        outcome: DeliveryOutcome = original(delivery)
        outcomes.append((delivery.roll is not None, outcome))
        return outcome

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=append_first))
    done = promote(raced, topic)
    assert (done.timers, done.refused, done.is_finished) == (count, 1, True)
    plain = (False, DeliveryOutcome.DONE)
    assert outcomes == [(True, DeliveryOutcome.MOVED), plain, plain]
    assert values(instance, topic) == ["now", *map(str, range(count))]
    assert len(head_of(instance, topic).tail) < 16


def test_promoter_that_is_overtaken_waits_and_looks_again(instance: Instance, clock: SteppedClock, topic: str) -> None:
    count = 3 * TIMERS_PROMOTED_MAX
    for number in range(count):
        delay(instance, topic, clock.now_ms(), str(number), number=number)
    key, tries = key_of(instance, topic), []

    def other_is_faster(original: Any, delivery: Delivery) -> object:
        tries.append(1)
        if len(tries) % 2:
            plain = Delivery(key=key, timers=delivery.timers, now_ms=delivery.now_ms)
            assert instance.stores.timers.promote(plain) is DeliveryOutcome.DONE
        return original(delivery)

    raced = with_stores(instance, timers=Intercepted(instance.stores.timers, promote=other_is_faster))
    done = promote(raced, topic)
    assert (done.timers, done.refused) == (TIMERS_PROMOTED_MAX, 2), "no refusal in a row: another one made progress"
    assert len(clock.sleeps) == 2
    assert values(instance, topic) == [*map(str, range(count))]


def armed(instance: Instance, topic: str, wake_ups: MemoryWakeUps) -> Instance:
    """The instance, and a reader that waits for the first record."""
    waking = with_stores(instance, wake_ups=wake_ups)
    entries = [FetchEntry(topic=topic, partition=0, offset=0, max_bytes=1_000)]
    fetch(waking, entries, max_bytes=1_000, min_bytes=1, wait_ms=0, must_arm=True).all_ok()
    return waking


def test_failure_behind_a_delivery_leaves_no_reader_asleep(instance: Instance, clock: SteppedClock, topic: str) -> None:
    wake_ups = MemoryWakeUps()
    waking = armed(instance, topic, wake_ups)
    for number in range(TIMERS_PROMOTED_MAX + 1):
        delay(waking, topic, clock.now_ms(), str(number), number=number)
    tries: list[int] = []

    def failing(original: Any, delivery: Delivery) -> object:
        tries.append(1)
        if len(tries) == 2:
            raise UNAVAILABLE
        return original(delivery)

    unlucky = with_stores(waking, timers=Intercepted(instance.stores.timers, promote=failing))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: promote(unlucky, topic))
    assert head_of(instance, topic).next_offset == TIMERS_PROMOTED_MAX
    assert len(wake_ups.messages) == 1


def test_promotion_wakes_the_readers_that_wait(instance: Instance, clock: SteppedClock, topic: str) -> None:
    wake_ups = MemoryWakeUps()
    waking = armed(instance, topic, wake_ups)
    delay(waking, topic, clock.now_ms(), "a", "b")
    assert not wake_ups.messages
    promote(waking, topic)
    [message] = wake_ups.messages
    assert '"next_offset":2' in message.event


def test_delivery_whose_repeat_finds_it_done_wakes_the_readers(
    instance: Instance, clock: SteppedClock, topic: str
) -> None:
    wake_ups = MemoryWakeUps()
    waking = armed(instance, topic, wake_ups)
    delay(waking, topic, clock.now_ms(), "a")

    def repeated(original: Any, delivery: Delivery) -> DeliveryOutcome:
        """The driver repeats the call, because the first answer was lost."""
        original(delivery)
        outcome: DeliveryOutcome = original(delivery)
        return outcome

    promote(with_stores(waking, timers=Intercepted(instance.stores.timers, promote=repeated)), topic)
    assert len(wake_ups.messages) == 1


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
