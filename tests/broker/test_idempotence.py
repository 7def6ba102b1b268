"""Idempotent producers: a retry, however late and beside whom, yields one copy and the offset of the first."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.produce import produce
from penstock_broker.truncate import truncate
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.limits import HEAD_PRODUCERS_KEPT, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.records import BatchBuilder
from tests.broker.setting import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    counted_broker,
    entry,
    head_of,
    new_topic,
    patient_broker,
    read_all,
    send,
)


def numbered(first: int, *values: str, producer_id: int = 7, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value.encode())
    return builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=first)


def tell(broker: Broker, topic: str, *batches: bytes, partition: int = 0) -> Appended:
    [result] = produce(broker, [entry(topic, partition, *batches)], Acks.QUORUM)
    if isinstance(result, PenstockError):
        raise result
    return result


def refusal(broker: Broker, topic: str, *batches: bytes) -> ErrorCode:
    with pytest.raises(PenstockError) as caught:
        tell(broker, topic, *batches)
    assert caught.value.maybe_applied == (caught.value.code is ErrorCode.PRODUCER_FENCED)
    return caught.value.code


def crowd(broker: Broker, topic: str, count: int = HEAD_PRODUCERS_KEPT + TAIL_ROLL_REFS) -> None:
    """So many producers write that those before them leave the head."""
    for number in range(count):
        broker.clock.sleep_ms(1_000)
        tell(broker, topic, numbered(0, f"crowd {number}", producer_id=1_000_000 + head_of(broker, topic).next_offset))


def test_repeat_is_answered_as_the_first_time(broker: Broker) -> None:
    topic = new_topic(broker)
    send(broker, topic, "before")
    first = tell(broker, topic, numbered(0, "a", "b"))
    second = tell(broker, topic, numbered(2, "c"))
    for _ in range(3):
        assert tell(broker, topic, numbered(0, "a", "b")) == first == Appended(base_offset=1, next_offset=3)
        assert tell(broker, topic, numbered(2, "c")) == second == Appended(base_offset=3, next_offset=4)
    assert read_all(broker, topic) == list(enumerate(["before", "a", "b", "c"]))


def test_repeat_of_a_part_finds_its_own_offset(broker: Broker) -> None:
    topic = new_topic(broker)
    tell(broker, topic, numbered(0, "a", "b"), numbered(2, "c"))
    assert tell(broker, topic, numbered(2, "c")) == Appended(base_offset=2, next_offset=3)
    assert refusal(broker, topic, numbered(2, "c", "d")) is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_repeat_of_what_was_not_sent_together_is_told_to_be_one(broker: Broker) -> None:
    topic = new_topic(broker)
    tell(broker, topic, numbered(0, "a"))
    send(broker, topic, "between")
    tell(broker, topic, numbered(1, "b"))
    assert refusal(broker, topic, numbered(0, "a"), numbered(1, "b")) is ErrorCode.DUPLICATE_SEQUENCE
    assert len(read_all(broker, topic)) == 3


@pytest.mark.parametrize("appends_since", [TAIL_ROLL_REFS, 120 * TAIL_ROLL_REFS])
def test_repeat_is_found_in_pages_however_many_appends_later(broker: Broker, appends_since: int) -> None:
    topic = new_topic(broker)
    send(broker, topic, "before")
    first = tell(broker, topic, numbered(0, "a", "b"))
    for number in range(appends_since):
        send(broker, topic, str(number))
    assert tell(broker, topic, numbered(0, "a", "b")) == first
    assert head_of(broker, topic).next_offset == 3 + appends_since


def test_repeat_is_known_after_its_producer_left_the_head(broker: Broker) -> None:
    topic = new_topic(broker)
    first = tell(broker, topic, numbered(0, "a", "b"))
    crowd(broker, topic)
    assert 7 not in head_of(broker, topic).producers
    length = head_of(broker, topic).next_offset
    assert tell(broker, topic, numbered(0, "a", "b")) == first
    assert refusal(broker, topic, numbered(3, "d")) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert tell(broker, topic, numbered(2, "c")) == Appended(base_offset=length, next_offset=length + 1)
    assert tell(broker, topic, numbered(2, "c")) == Appended(base_offset=length, next_offset=length + 1)
    assert tell(broker, topic, numbered(0, "a", "b")) == first


def test_repeat_whose_records_have_expired_is_told_to_be_one(broker: Broker) -> None:
    topic = new_topic(broker)
    tell(broker, topic, numbered(0, "a"))
    for number in range(2 * TAIL_ROLL_REFS):
        send(broker, topic, str(number))
    truncate(broker, topic, {0: 20})
    log = Intercepted(broker.log, pages_before=lambda original, *arguments: [])
    expired = another_instance(broker, log=log)
    assert refusal(expired, topic, numbered(0, "a")) is ErrorCode.DUPLICATE_SEQUENCE


@pytest.mark.parametrize("method", ["evicted_producer", "pages_before"])
def test_repeat_that_cannot_be_placed_now_says_maybe_applied(broker: Broker, method: str) -> None:
    """The append may have been made by this very request, in an update whose answer was lost."""
    topic = new_topic(broker)
    tell(broker, topic, numbered(0, "a"))
    crowd(broker, topic)

    def refused(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    with pytest.raises(PenstockError) as caught:
        tell(another_instance(broker, log=Intercepted(broker.log, **{method: refused})), topic, numbered(0, "a"))
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)


def test_gap_is_refused_and_what_is_missing_may_still_come(broker: Broker) -> None:
    topic = new_topic(broker)
    assert refusal(broker, topic, numbered(1, "b")) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    tell(broker, topic, numbered(0, "a"))
    assert refusal(broker, topic, numbered(2, "c")) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    tell(broker, topic, numbered(1, "b"))
    tell(broker, topic, numbered(2, "c"))
    assert read_all(broker, topic) == list(enumerate("abc"))


def test_older_epoch_is_fenced(broker: Broker) -> None:
    topic = new_topic(broker)
    tell(broker, topic, numbered(0, "a"))
    tell(broker, topic, numbered(0, "b", epoch=1))
    assert refusal(broker, topic, numbered(0, "a")) is ErrorCode.PRODUCER_FENCED
    assert refusal(broker, topic, numbered(1, "c")) is ErrorCode.PRODUCER_FENCED
    crowd(broker, topic)
    assert refusal(broker, topic, numbered(1, "c")) is ErrorCode.PRODUCER_FENCED
    tell(broker, topic, numbered(1, "c", epoch=1))


def test_producers_do_not_meet(broker: Broker) -> None:
    topic = new_topic(broker, partitions=2)
    for producer_id in (7, 8):
        tell(broker, topic, numbered(0, "a", producer_id=producer_id))
        tell(broker, topic, numbered(0, "a", producer_id=producer_id), partition=1)
    assert len(read_all(broker, topic, 0)) == len(read_all(broker, topic, 1)) == 2


def test_bad_sequence_fails_alone(broker: Broker) -> None:
    topic = new_topic(broker, partitions=2)
    gap, good = produce(broker, [entry(topic, 0, numbered(5, "a")), entry(topic, 1, numbered(0, "b"))], Acks.QUORUM)
    assert isinstance(gap, PenstockError)
    assert good == Appended(base_offset=0, next_offset=1)


@pytest.mark.parametrize("is_known", [False, True])
def test_twins_yield_one_copy_when_they_overtake_each_other(broker: Broker, is_known: bool) -> None:
    """The twin appends, and may even leave the head, just before the update of the one that was first."""
    topic = new_topic(broker)
    if is_known:
        tell(broker, topic, numbered(0, "a"))
    wanted = numbered(int(is_known), "twin")
    twins: list[Appended] = []

    def overtaken(original: Any, *arguments: Any) -> Any:
        if not twins:
            twins.append(tell(broker, topic, wanted))
            crowd(broker, topic)
        return original(*arguments)

    slow = another_instance(broker, log=Intercepted(broker.log, append_in_sequence=overtaken))
    assert tell(slow, topic, wanted) == twins[0]
    assert [value for _, value in read_all(broker, topic)].count("twin") == 1


def test_producer_that_leaves_between_look_up_and_update_is_looked_up_again(broker: Broker) -> None:
    topic = new_topic(broker)
    crowd(broker, topic)  # some have left: new ones are looked up
    twins: list[Appended] = []

    def meanwhile(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        if not twins:
            twins.append(tell(broker, topic, numbered(0, "twin")))
            crowd(broker, topic)
        return found

    slow = another_instance(broker, log=Intercepted(broker.log, evicted_producer=meanwhile))
    assert tell(slow, topic, numbered(0, "twin")) == twins[0]
    assert [value for _, value in read_all(broker, topic)].count("twin") == 1


def test_append_is_given_up_when_producers_leave_all_the_time(broker: Broker) -> None:
    topic = new_topic(broker)

    def churning(original: Any, key: PartitionKey, *arguments: Any) -> tuple[bool, Head]:
        _, head = original(key, *arguments[:-1], -1)
        return False, replace(head, evictions=head.evictions + 1)

    restless = another_instance(broker, log=Intercepted(broker.log, append_in_sequence=churning))
    assert refusal(restless, topic, numbered(0, "a")) is ErrorCode.THROTTLED
    assert read_all(broker, topic) == []


def test_idempotent_append_costs_what_any_costs_when_the_head_knows_the_producer(broker: Broker) -> None:
    counts: Counter[str] = Counter()
    topic = new_topic(broker)
    warm = counted_broker(broker, counts)
    tell(warm, topic, numbered(0, "first"))
    assert counts["log.append_in_sequence"] == 1, "nor does a new producer cost more, while none has left"
    counts.clear()
    tell(warm, topic, numbered(1, "second"))
    assert counts == {"zone.put": 3, "log.append_in_sequence": 1}


def test_first_append_of_a_producer_costs_a_read_and_an_update_more_when_others_have_left(broker: Broker) -> None:
    counts: Counter[str] = Counter()
    topic = new_topic(broker)
    crowd(broker, topic)
    warm = counted_broker(broker, counts)
    send(warm, topic, "warm")
    counts.clear()
    tell(warm, topic, numbered(0, "first"))
    assert counts == {"zone.put": 3, "log.append_in_sequence": 2, "log.evicted_producer": 1}
    counts.clear()
    tell(warm, topic, numbered(1, "second"))
    assert counts == {"zone.put": 3, "log.append_in_sequence": 1}


_STEPS = st.lists(
    st.tuples(
        st.integers(0, 40),  # producer
        st.sampled_from(["next", "next", "next", "repeat", "lost answer", "gap", "new epoch"]),
        st.integers(1, 3),  # records
        st.integers(0, 10**6),  # which earlier batch is repeated
    ),
    max_size=150,
)


@settings(max_examples=60)
@given(_STEPS)
def test_every_record_stands_once_where_its_producer_was_told(steps: list[tuple[int, str, int, int]]) -> None:
    """Against a model: what each producer has sent, in which epoch, and what it was told."""
    broker = patient_broker(SteppedClock())
    topic = new_topic(broker)
    lossy = another_instance(broker, log=Intercepted(broker.log, append_in_sequence=_losing_the_answer))
    next_sequence: Counter[int] = Counter()
    epochs: Counter[int] = Counter()
    sent: dict[int, list[tuple[bytes, Appended]]] = {}
    expected: list[str] = []
    for number, (producer_id, step, count, which) in enumerate(steps):
        broker.clock.sleep_ms(700)
        if step == "new epoch":
            epochs[producer_id] += 1
            next_sequence[producer_id] = 0
            sent.pop(producer_id, None)
            continue
        if step == "repeat":
            if earlier := sent.get(producer_id):
                data, told = earlier[which % len(earlier)]
                assert tell(broker, topic, data) == told
            continue
        values = [f"{producer_id}/{number}/{index}" for index in range(count)]
        first = next_sequence[producer_id] + (step == "gap")
        data = numbered(first, *values, producer_id=producer_id, epoch=epochs[producer_id])
        if step == "gap":
            assert refusal(broker, topic, data) is ErrorCode.OUT_OF_ORDER_SEQUENCE
            continue
        if step == "lost answer":
            with pytest.raises(PenstockError) as caught:
                tell(lossy, topic, data)
            assert caught.value.maybe_applied
        told = tell(broker, topic, data)
        assert told == Appended(base_offset=len(expected), next_offset=len(expected) + count)
        expected += values
        next_sequence[producer_id] += count
        sent.setdefault(producer_id, []).append((data, told))
    assert [value for _, value in read_all(broker, topic)] == expected


def _losing_the_answer(original: Any, *arguments: Any) -> Any:
    is_appended, head = original(*arguments)
    if is_appended:
        raise LOST_ANSWER
    return is_appended, head
