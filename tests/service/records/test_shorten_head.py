"""Rolls and evictions at the same time, during repairs and merges, and with rollers that were frozen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.compaction.merging import CompactionState, Swap
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import (
    EVICTION_PRODUCERS_MIN,
    HEAD_PRODUCERS_KEPT,
    PAGE_PUT_MS_MAX,
    ROLL_ATTEMPTS_MAX,
    TAIL_ROLL_REFS,
)
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import Ref, Tier
from penstock_core.log.roll import next_page
from penstock_service.index.reader import refs_of
from penstock_service.instance.instance import Instance
from penstock_service.instance.update_window import UpdateWindow
from penstock_service.records.shorten_head import GrownHead, shorten_heads
from tests.support.refs import one_sequence, ref_at
from tests.support.rolling import roll
from tests.support.service import Intercepted, SteppedClock, another_instance, key_of, new_topic, patient_instance

UNAVAILABLE = PenstockError(ErrorCode.STORAGE_UNAVAILABLE, "away")


@pytest.fixture
def instance() -> Instance:
    return patient_instance()


@pytest.fixture
def key(instance: Instance) -> PartitionKey:
    return key_of(instance, new_topic(instance))


def _ref(number: int, producer_id: int | None = None, sequence: int = 0) -> Ref:
    numbered = None if producer_id is None else one_sequence(producer_id, sequence)
    return ref_at(1_000 + number, numbered, zones=0b011)


def _fill(instance: Instance, key: PartitionKey, count: int) -> Head:
    head = instance.stores.log.heads([key])[key]
    for number in range(count):
        head = instance.stores.log.append(key, _ref(number), 0).head
    return head


def _write(instance: Instance, key: PartitionKey, producer_id: int, sequence: int = 0) -> Head:
    """One append of a producer that the caller knows to follow."""
    head = instance.stores.log.heads([key])[key]
    ref = _ref(head.next_offset, producer_id, sequence)
    assert ref.sequence is not None
    done = instance.stores.log.append_in_sequence(key, ref, 0, ref.sequence, head.next_offset)
    assert done.is_appended
    return done.head


def _crowd(instance: Instance, key: PartitionKey, count: int) -> Head:
    """So many producers in the head, none of them with a ref in the tail."""
    for producer_id in range(count):
        _write(instance, key, producer_id)
    _fill(instance, key, -count % TAIL_ROLL_REFS)
    while next_page(instance.stores.log.heads([key])[key]) is not None:
        roll(instance.stores.log, key)
    return instance.stores.log.heads([key])[key]


def _shorten(instance: Instance, key: PartitionKey, head: Head, **grown: Any) -> Head:
    shorten_heads(instance, UpdateWindow.open(instance.clock), [GrownHead(key=key, head=head, **grown)])
    return instance.stores.log.heads([key])[key]


def _with_log(instance: Instance, **hooks: Callable[..., Any]) -> Instance:
    return another_instance(instance, log=Intercepted(instance.stores.log, **hooks))


def _offsets(instance: Instance, key: PartitionKey) -> list[int]:
    return [located.base_offset for located in refs_of(instance.stores.log, key, 0)]


def test_roll_takes_several_pages_of_a_long_tail(instance: Instance, key: PartitionKey) -> None:
    after = _shorten(instance, key, _fill(instance, key, 5 * TAIL_ROLL_REFS))
    assert (after.tail, after.tail_base) == ((), 5 * TAIL_ROLL_REFS)
    pages = instance.stores.log.pages(key, Offset(0), 9)
    assert [len(page.refs) for page in pages] == [TAIL_ROLL_REFS] * 5
    assert _offsets(instance, key) == list(range(5 * TAIL_ROLL_REFS))


def test_roll_is_completed_by_another_writer_when_its_own_died_between_its_writes(
    instance: Instance, key: PartitionKey
) -> None:
    head = _fill(instance, key, TAIL_ROLL_REFS)
    page = next_page(head)
    assert page is not None
    instance.stores.log.put_page(key, page)
    assert _offsets(instance, key) == list(range(TAIL_ROLL_REFS)), "an invisible page is met once, in the tail"
    after = _shorten(instance, key, _fill(instance, key, TAIL_ROLL_REFS))
    assert after.tail == ()
    assert _offsets(instance, key) == list(range(2 * TAIL_ROLL_REFS))
    assert not instance.stores.log.shorten_tail(key, page)[0], "the first one wakes"


def test_roll_keeps_the_bits_that_a_repair_sets_between_its_writes(instance: Instance, key: PartitionKey) -> None:
    head = _fill(instance, key, TAIL_ROLL_REFS)
    debts = list(head.located_tail())[:3]

    def put_page(original: Any, *arguments: Any) -> Any:
        stored = original(*arguments)
        if debts:
            assert instance.stores.log.mark_stored(key, {debts.pop(): 0b100})
        return stored

    after = _shorten(_with_log(instance, put_page=put_page), key, head)
    assert after.tail == (), "each attempt met one more bit, and the last one none"
    [page] = instance.stores.log.pages(key, Offset(0), 9)
    assert [index for index, ref in enumerate(page.refs) if ref.zones == 0b111] == [0, 1, 2]


def test_roll_gives_its_bits_to_a_page_that_an_older_roll_has_put(instance: Instance, key: PartitionKey) -> None:
    old = next_page(_fill(instance, key, TAIL_ROLL_REFS))
    assert old is not None
    instance.stores.log.put_page(key, old)
    head = instance.stores.log.heads([key])[key]
    assert instance.stores.log.mark_stored(key, {head.located_tail()[3]: 0b100})
    after = _shorten(instance, key, head)
    assert after.tail == ()
    [page] = instance.stores.log.pages(key, Offset(0), 9)
    assert [index for index, ref in enumerate(page.refs) if ref.zones == 0b111] == [3]


@pytest.mark.parametrize("slept", ["both clocks", "wall clock", "monotonic clock"])
def test_roller_that_was_frozen_puts_no_page(slept: str) -> None:
    clock = SteppedClock()
    instance = patient_instance(clock=clock)
    key = key_of(instance, new_topic(instance))
    head = _fill(instance, key, TAIL_ROLL_REFS)
    window = UpdateWindow.open(clock)
    if slept != "monotonic clock":
        window = replace(window, opened=replace(window.opened, wall_ms=window.opened.wall_ms - PAGE_PUT_MS_MAX - 1))
    if slept != "wall clock":
        window = replace(
            window, opened=replace(window.opened, monotonic_ms=window.opened.monotonic_ms - PAGE_PUT_MS_MAX - 1)
        )
    roll(instance.stores.log, key)
    instance.stores.log.delete_page(key, head.next_offset)  # as retention does
    shorten_heads(instance, window, [GrownHead(key=key, head=head)])
    assert instance.stores.log.pages(key, Offset(0), 9) == []


def test_late_put_is_refused_by_the_mark_of_the_merge(instance: Instance, key: PartitionKey) -> None:
    late = _fill(instance, key, TAIL_ROLL_REFS)
    _fill(instance, key, TAIL_ROLL_REFS)
    roll(instance.stores.log, key)
    roll(instance.stores.log, key)
    merged = _merge(instance, key)
    after = _shorten(instance, key, late)
    assert list(instance.stores.log.pages(key, Offset(0), 9)) == [merged]
    assert (after.tail, after.tail_base) == ((), 2 * TAIL_ROLL_REFS)
    assert instance.telemetry.take()[0] == {}


def _merge(instance: Instance, key: PartitionKey) -> Page:
    pages = tuple(instance.stores.log.pages(key, Offset(0), 9))
    lease = instance.stores.compaction.acquire(key, 1, 2)
    assert isinstance(lease, CompactionState)
    span = pages[-1].end_offset
    ref = replace(_ref(99), offset_span=span, record_count=span, tier=Tier.ARCHIVE)
    new = replace(pages[-1], base_offset=Offset(0), refs=(ref,))
    swap = Swap(old=pages, new=(new,), epoch=lease.epoch, deadline_ms=9, swapped_ms=5)
    assert instance.stores.compaction.swap(key, swap)
    return new


def test_roll_tells_of_a_page_in_its_way_and_stops(instance: Instance, key: PartitionKey) -> None:
    head = _fill(instance, key, TAIL_ROLL_REFS)
    page = next_page(head)
    assert page is not None
    strange = replace(page, refs=(replace(page.refs[0], length=1), *page.refs[1:]))
    instance.stores.log.put_page(key, strange)
    assert _shorten(instance, key, head) == head
    counts, [(name, facts)] = instance.telemetry.take()
    assert (counts["roll_blocked"], name, facts["base_offset"]) == (1, "roll_blocked", 0)


def test_roller_stops_when_another_was_faster(instance: Instance, key: PartitionKey) -> None:
    head = _fill(instance, key, 3 * TAIL_ROLL_REFS)
    roll(instance.stores.log, key)
    after = _shorten(instance, key, head)
    assert len(after.tail) == 2 * TAIL_ROLL_REFS, "the other one rolls the rest"


@pytest.mark.parametrize("step", ["put_page", "shorten_tail", "put_evicted", "remove_producers"])
def test_step_that_storage_refuses_is_taken_again(instance: Instance, key: PartitionKey, step: str) -> None:
    failures = [UNAVAILABLE] * (ROLL_ATTEMPTS_MAX - 1)

    def refused(original: Any, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return original(*arguments)

    _crowd(instance, key, HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN)
    head = _fill(instance, key, TAIL_ROLL_REFS)
    faulty = _with_log(instance, **{step: refused})
    after = _shorten(faulty, key, head, added_producers=1)
    assert (len(after.tail), len(after.producers), failures) == (0, HEAD_PRODUCERS_KEPT, [])


def test_step_that_fails_each_time_is_told_and_leaves_the_head_longer(instance: Instance, key: PartitionKey) -> None:
    def refused(*_: Any) -> Any:
        raise UNAVAILABLE

    _crowd(instance, key, HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN)
    head = _fill(instance, key, TAIL_ROLL_REFS)
    faulty = _with_log(instance, shorten_tail=refused, put_evicted=refused)
    assert _shorten(faulty, key, head, added_producers=1) == head
    assert faulty.telemetry.take()[0] == {"rolls_failed": 1, "evictions_failed": 1}


def test_many_producers_neither_stop_rolls_nor_fill_the_head(instance: Instance, key: PartitionKey) -> None:
    """A burst of producers, whose evictions all fail at first."""

    def refused(*_: Any) -> Any:
        raise UNAVAILABLE

    faulty = _with_log(instance, remove_producers=refused)
    for producer_id in range(400):
        _shorten(faulty, key, _write(instance, key, producer_id), added_producers=1)
    head = instance.stores.log.heads([key])[key]
    assert (len(head.tail), len(head.producers)) == (0, 400)
    for producer_id in range(400, 500):
        head = _shorten(instance, key, _write(instance, key, producer_id), added_producers=1)
    assert len(head.tail) < TAIL_ROLL_REFS
    assert len(head.producers) < HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN
    gone = set(range(500)) - set(head.producers)
    assert all(instance.stores.log.evicted_producer(key, each) is not None for each in gone)


def test_evicted_producer_has_its_own_item_before_it_leaves(instance: Instance, key: PartitionKey) -> None:
    head = _crowd(instance, key, HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN)

    def remove(original: Any, *arguments: Any) -> Any:
        leaving = arguments[1]
        found = {each: instance.stores.log.evicted_producer(key, each) for each in leaving}
        assert found == leaving
        return original(*arguments)

    after = _shorten(_with_log(instance, remove_producers=remove), key, head, added_producers=1)
    assert set(after.producers) == set(range(EVICTION_PRODUCERS_MIN, EVICTION_PRODUCERS_MIN + HEAD_PRODUCERS_KEPT))
    assert after.evictions == 1


def test_eviction_chooses_again_when_one_of_its_producers_writes(instance: Instance, key: PartitionKey) -> None:
    head = _crowd(instance, key, HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN)
    writes = [0]

    def remove(original: Any, *arguments: Any) -> Any:
        if writes:
            _write(instance, key, writes.pop(), sequence=1)
        return original(*arguments)

    after = _shorten(_with_log(instance, remove_producers=remove), key, head, added_producers=1)
    assert 0 in after.producers
    assert after.producers[0].last_sequence == 1
    assert len(after.producers) == HEAD_PRODUCERS_KEPT
    assert set(range(1, EVICTION_PRODUCERS_MIN + 1)).isdisjoint(after.producers)


def test_late_eviction_neither_removes_nor_turns_back_a_producer_that_came_again(
    instance: Instance, key: PartitionKey
) -> None:
    head = _crowd(instance, key, HEAD_PRODUCERS_KEPT + EVICTION_PRODUCERS_MIN)
    _shorten(instance, key, head, added_producers=1)
    now = _write(instance, key, 0, sequence=1)
    instance.stores.log.put_evicted(key, 0, now.producers[0], 1)  # it has left once more, and come again
    assert _shorten(instance, key, head, added_producers=1) == now
    found = instance.stores.log.evicted_producer(key, 0)
    assert found is not None
    assert found.last_sequence == 1
