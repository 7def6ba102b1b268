"""Idempotent producers: a retry yields one copy and the first offset, however late and among which other appends."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import HEAD_PRODUCERS_KEPT, TAIL_ROLL_REFS
from penstock_core.log.index import HeadAppend
from penstock_core.records.codec import BatchBuilder
from penstock_core.zones.zone_state import Acks
from penstock_service.index import reader as find_module
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import truncate
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    appended,
    counted_instance,
    entry,
    head_of,
    new_topic,
    patient_instance,
    read_all,
    send,
)


def numbered(first: int, *values: str, producer_id: int = 7, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(1_000, None, value.encode())
    return builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=first)


def tell(instance: Instance, topic: str, *batches: bytes, partition: int = 0) -> AppendedRange:
    [result] = produce(instance, [entry(topic, partition, *batches)], Acks.QUORUM)
    if isinstance(result, PenstockError):
        raise result
    return result


def refusal(instance: Instance, topic: str, *batches: bytes) -> ErrorCode:
    with pytest.raises(PenstockError) as caught:
        tell(instance, topic, *batches)
    assert caught.value.maybe_applied == (caught.value.code is ErrorCode.PRODUCER_FENCED)
    return caught.value.code


def crowd(instance: Instance, topic: str, count: int = HEAD_PRODUCERS_KEPT + 2 * TAIL_ROLL_REFS) -> None:
    """So many producers write that the earlier ones leave the head."""
    for number in range(count):
        instance.clock.sleep_ms(100)
        tell(
            instance,
            topic,
            numbered(0, f"crowd {number}", producer_id=1_000_000 + head_of(instance, topic).next_offset),
        )


def test_repeat_is_answered_as_the_first_time(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "before")
    first = tell(instance, topic, numbered(0, "a", "b"))
    second = tell(instance, topic, numbered(2, "c"))
    for _ in range(3):
        assert tell(instance, topic, numbered(0, "a", "b")) == first == appended(1, 3)
        assert tell(instance, topic, numbered(2, "c")) == second == appended(3, 4)
    assert read_all(instance, topic) == list(enumerate(["before", "a", "b", "c"]))


def test_repeat_of_a_part_finds_its_own_offset(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a", "b"), numbered(2, "c"))
    assert tell(instance, topic, numbered(2, "c")) == appended(2, 3)
    assert refusal(instance, topic, numbered(2, "c", "d")) is ErrorCode.OUT_OF_ORDER_SEQUENCE


def test_repeat_of_what_was_not_sent_together_is_told_to_be_one(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    send(instance, topic, "between")
    tell(instance, topic, numbered(1, "b"))
    assert refusal(instance, topic, numbered(0, "a"), numbered(1, "b")) is ErrorCode.DUPLICATE_SEQUENCE
    assert len(read_all(instance, topic)) == 3


@pytest.mark.parametrize("appends_since", [TAIL_ROLL_REFS, 120 * TAIL_ROLL_REFS])
def test_repeat_is_found_in_pages_however_many_appends_later(instance: Instance, appends_since: int) -> None:
    topic = new_topic(instance)
    send(instance, topic, "before")
    first = tell(instance, topic, numbered(0, "a", "b"))
    for number in range(appends_since):
        send(instance, topic, str(number))
    assert tell(instance, topic, numbered(0, "a", "b")) == first
    assert head_of(instance, topic).next_offset == 3 + appends_since


def test_repeat_is_known_after_its_producer_left_the_head(instance: Instance) -> None:
    topic = new_topic(instance)
    first = tell(instance, topic, numbered(0, "a", "b"))
    crowd(instance, topic)
    assert 7 not in head_of(instance, topic).producers
    length = head_of(instance, topic).next_offset
    assert tell(instance, topic, numbered(0, "a", "b")) == first
    assert refusal(instance, topic, numbered(3, "d")) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert tell(instance, topic, numbered(2, "c")) == appended(length, length + 1)
    assert tell(instance, topic, numbered(2, "c")) == appended(length, length + 1)
    assert tell(instance, topic, numbered(0, "a", "b")) == first


def test_repeat_whose_records_have_expired_is_told_to_be_one(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, topic, str(number))
    truncate(instance, topic, {0: 20})
    log = Intercepted(instance.stores.log, pages_before=lambda original, *arguments: [])
    expired = another_instance(instance, log=log)
    assert refusal(expired, topic, numbered(0, "a")) is ErrorCode.DUPLICATE_SEQUENCE


@pytest.mark.parametrize("method", ["evicted_producer", "pages_before"])
def test_repeat_that_cannot_be_placed_now_says_maybe_applied(instance: Instance, method: str) -> None:
    """This very request may have made the append, in an update whose answer was lost."""
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    crowd(instance, topic)

    def refused(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    with pytest.raises(PenstockError) as caught:
        tell(
            another_instance(instance, log=Intercepted(instance.stores.log, **{method: refused})),
            topic,
            numbered(0, "a"),
        )
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)


def test_repeat_that_is_too_far_back_costs_a_bounded_walk_and_is_told_to_be_one(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    crowd(instance, topic, 5 * TAIL_ROLL_REFS)
    monkeypatch.setattr(find_module, "INDEX_REPEAT_PAGES", 1)
    monkeypatch.setattr(find_module, "REPEAT_PAGES_MAX", 3)
    counts: Counter[str] = Counter()
    assert refusal(counted_instance(instance, counts), topic, numbered(0, "a")) is ErrorCode.DUPLICATE_SEQUENCE
    assert counts["log.pages_before"] == 3


def test_gap_is_refused_and_what_is_missing_may_still_come(instance: Instance) -> None:
    topic = new_topic(instance)
    assert refusal(instance, topic, numbered(1, "b")) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    tell(instance, topic, numbered(0, "a"))
    assert refusal(instance, topic, numbered(2, "c")) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    tell(instance, topic, numbered(1, "b"))
    tell(instance, topic, numbered(2, "c"))
    assert read_all(instance, topic) == list(enumerate("abc"))


def test_older_epoch_is_fenced(instance: Instance) -> None:
    topic = new_topic(instance)
    tell(instance, topic, numbered(0, "a"))
    tell(instance, topic, numbered(0, "b", epoch=1))
    assert refusal(instance, topic, numbered(0, "a")) is ErrorCode.PRODUCER_FENCED
    assert refusal(instance, topic, numbered(1, "c")) is ErrorCode.PRODUCER_FENCED
    crowd(instance, topic)
    assert refusal(instance, topic, numbered(1, "c")) is ErrorCode.PRODUCER_FENCED
    tell(instance, topic, numbered(1, "c", epoch=1))


def test_producers_do_not_meet(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    for producer_id in (7, 8):
        tell(instance, topic, numbered(0, "a", producer_id=producer_id))
        tell(instance, topic, numbered(0, "a", producer_id=producer_id), partition=1)
    assert len(read_all(instance, topic, 0)) == len(read_all(instance, topic, 1)) == 2


def test_bad_sequence_fails_alone(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    gap, good = produce(instance, [entry(topic, 0, numbered(5, "a")), entry(topic, 1, numbered(0, "b"))], Acks.QUORUM)
    assert isinstance(gap, PenstockError)
    assert good == appended(0, 1)


@pytest.mark.parametrize("is_known", [False, True])
def test_twins_yield_one_copy_when_they_overtake_each_other(instance: Instance, is_known: bool) -> None:
    """The twin appends, and may even leave the head, just before the update of the one that was first."""
    topic = new_topic(instance)
    if is_known:
        tell(instance, topic, numbered(0, "a"))
    wanted = numbered(int(is_known), "twin")
    twins: list[AppendedRange] = []

    def overtaken(original: Any, *arguments: Any) -> Any:
        if not twins:
            twins.append(tell(instance, topic, wanted))
            crowd(instance, topic)
        return original(*arguments)

    slow = another_instance(instance, log=Intercepted(instance.stores.log, append_in_sequence=overtaken))
    assert tell(slow, topic, wanted) == twins[0]
    assert [value for _, value in read_all(instance, topic)].count("twin") == 1


def test_producer_that_leaves_between_look_up_and_update_is_looked_up_again(instance: Instance) -> None:
    topic = new_topic(instance)
    crowd(instance, topic)  # some have left: new ones are looked up
    twins: list[AppendedRange] = []

    def meanwhile(original: Any, *arguments: Any) -> Any:
        found = original(*arguments)
        if not twins:
            twins.append(tell(instance, topic, numbered(0, "twin")))
            crowd(instance, topic)
        return found

    slow = another_instance(instance, log=Intercepted(instance.stores.log, evicted_producer=meanwhile))
    assert tell(slow, topic, numbered(0, "twin")) == twins[0]
    assert [value for _, value in read_all(instance, topic)].count("twin") == 1


def test_append_is_given_up_when_the_tail_passes_every_look(instance: Instance) -> None:
    topic = new_topic(instance)
    crowd(instance, topic)
    before = read_all(instance, topic)

    def churning(original: Any, key: PartitionKey, *arguments: Any) -> HeadAppend:
        head = original(key, *arguments[:-1], Offset(-1)).head
        return HeadAppend(is_appended=False, head=head)

    restless = another_instance(instance, log=Intercepted(instance.stores.log, append_in_sequence=churning))
    assert refusal(restless, topic, numbered(0, "a")) is ErrorCode.THROTTLED
    assert read_all(instance, topic) == before


def test_idempotent_append_costs_what_any_costs_when_the_head_knows_the_producer(instance: Instance) -> None:
    counts: Counter[str] = Counter()
    topic = new_topic(instance)
    warm = counted_instance(instance, counts)
    tell(warm, topic, numbered(0, "first"))
    assert counts["log.append_in_sequence"] == 1, "nor does a new producer cost more, while none has left"
    counts.clear()
    tell(warm, topic, numbered(1, "second"))
    assert counts == {"zone.put": 3, "log.append_in_sequence": 1}


def test_first_append_costs_a_read_and_an_update_more_when_others_have_left(instance: Instance) -> None:
    counts: Counter[str] = Counter()
    topic = new_topic(instance)
    crowd(instance, topic)
    warm = counted_instance(instance, counts)
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
        st.integers(0, 10**6),  # picks the earlier batch to repeat
    ),
    max_size=150,
)


@settings(max_examples=60)
@given(_STEPS)
def test_every_record_stands_once_where_its_producer_was_told(steps: list[tuple[int, str, int, int]]) -> None:
    """Against a model of the batches that each producer has sent, their epochs, and the answers."""
    instance = patient_instance(SteppedClock())
    topic = new_topic(instance)
    lossy = another_instance(instance, log=Intercepted(instance.stores.log, append_in_sequence=_losing_the_answer))
    next_sequence: Counter[int] = Counter()
    epochs: Counter[int] = Counter()
    sent: dict[int, list[tuple[bytes, AppendedRange]]] = {}
    expected: list[str] = []
    for number, (producer_id, step, count, which) in enumerate(steps):
        instance.clock.sleep_ms(700)
        if step == "new epoch":
            epochs[producer_id] += 1
            next_sequence[producer_id] = 0
            sent.pop(producer_id, None)
            continue
        if step == "repeat":
            if earlier := sent.get(producer_id):
                data, told = earlier[which % len(earlier)]
                assert tell(instance, topic, data) == told
            continue
        values = [f"{producer_id}/{number}/{index}" for index in range(count)]
        first = next_sequence[producer_id] + (step == "gap")
        data = numbered(first, *values, producer_id=producer_id, epoch=epochs[producer_id])
        if step == "gap":
            assert refusal(instance, topic, data) is ErrorCode.OUT_OF_ORDER_SEQUENCE
            continue
        if step == "lost answer":
            with pytest.raises(PenstockError) as caught:
                tell(lossy, topic, data)
            assert caught.value.maybe_applied
        told = tell(instance, topic, data)
        assert told == appended(len(expected), len(expected) + count)
        expected += values
        next_sequence[producer_id] += count
        sent.setdefault(producer_id, []).append((data, told))
    assert [value for _, value in read_all(instance, topic)] == expected


def _losing_the_answer(original: Any, *arguments: Any) -> Any:
    done = original(*arguments)
    if done.is_appended:
        raise LOST_ANSWER
    return done
