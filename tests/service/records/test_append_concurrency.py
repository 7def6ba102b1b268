"""Many writers of one partition, and readers while they write.

Acks: each kind waits for its zones, refuses when too few answer, and notes the zones that missed the segment.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, SegmentId
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import Head, Page
from penstock_core.log.ref import Ref
from penstock_core.log.roll import next_page
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from penstock_service.records.append import AppendedRange
from penstock_service.records.produce import produce
from tests.support.deadlines import DEADLINE_S
from tests.support.service import (
    Intercepted,
    another_instance,
    appended,
    ask,
    batch,
    counted_instance,
    entry,
    head_of,
    new_topic,
    patient_instance,
    read_all,
    send,
    values_of,
    with_stores,
    with_tuning,
    zone_of,
)

APPENDS = 200


@pytest.fixture
def shared() -> Instance:
    return with_tuning(memory_instance(), straggler_grace_ms=0)


def _at_once(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all calls from the same moment on. Raise the error of any of them."""
    start = threading.Barrier(len(functions), timeout=DEADLINE_S)

    def run(function: Callable[[], Any]) -> Any:
        start.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(run, functions))


def _writer(instance: Instance, topic: str, name: str) -> Callable[[], None]:
    def write() -> None:
        for number in range(APPENDS):
            send(instance, topic, f"{name}{number}")

    return write


def test_append_keeps_offsets_dense_when_two_instances_write_at_once(shared: Instance) -> None:
    topic = new_topic(shared)
    counts: Counter[str] = Counter()
    writers = [_writer(counted_instance(shared, counts), topic, name) for name in "ab"]
    _at_once(writers)
    records = read_all(shared, topic)
    assert [offset for offset, _ in records] == list(range(2 * APPENDS))
    for name in "ab":
        assert [value for _, value in records if value[0] == name] == [f"{name}{number}" for number in range(APPENDS)]
    assert counts["log.append"] == 2 * APPENDS
    assert counts["log.heads"] == 0


def test_append_answers_each_writer_the_offset_its_record_got(shared: Instance) -> None:
    topic = new_topic(shared)

    def write(name: str) -> dict[int, str]:
        return {send(shared, topic, f"{name}{number}").base_offset: f"{name}{number}" for number in range(50)}

    answered = _at_once([lambda name=name: write(name) for name in "abcd"])  # type: ignore[misc]
    assert dict(read_all(shared, topic)) == {offset: value for part in answered for offset, value in part.items()}


def test_fetch_sees_every_record_once_when_writers_roll_the_tail(shared: Instance) -> None:
    topic = new_topic(shared)

    def consume() -> list[tuple[int, str]]:
        reader = another_instance(shared)
        records: list[tuple[int, str]] = []
        while len(records) < 2 * APPENDS:
            fetched = ask(reader, topic, len(records), wait_ms=20_000, max_bytes=700)
            found = values_of(fetched, len(records))
            assert found, "a wait of 20 s must not end without a record"
            records += found
        return records

    writers = [_writer(another_instance(shared), topic, name) for name in "ab"]
    first, second, *_ = _at_once([consume, consume, *writers])
    assert first == second == read_all(shared, topic)
    assert [offset for offset, _ in first] == list(range(2 * APPENDS))


@pytest.mark.parametrize("before", [TAIL_ROLL_REFS - 1, 2 * TAIL_ROLL_REFS - 1, 3 * TAIL_ROLL_REFS + 5])
@pytest.mark.parametrize("start", [0, 1, TAIL_ROLL_REFS - 1, TAIL_ROLL_REFS, TAIL_ROLL_REFS + 1])
@pytest.mark.parametrize("moment", ["heads", "pages"])
def test_fetch_reads_what_its_head_showed_when_the_tail_rolls_meanwhile(before: int, start: int, moment: str) -> None:
    """Other instances append and roll between the read of the head and the queries for pages."""
    instance = patient_instance()
    topic = new_topic(instance)
    for number in range(before):
        send(instance, topic, str(number))

    def append_and_roll() -> None:
        end = len(read_all(instance, topic))
        for number in range(end, end + TAIL_ROLL_REFS + 1):
            send(instance, topic, str(number))

    def heads(original: Any, keys: Sequence[PartitionKey]) -> Any:
        found = original(keys)
        if moment == "heads":
            append_and_roll()
        return found

    def pages(original: Any, key: PartitionKey, offset: Offset, limit: int) -> Sequence[Page]:
        if moment == "heads":
            found: Sequence[Page] = original(key, offset, limit)
        else:
            found = original(key, offset, 1)
            append_and_roll()
        return found

    slow = another_instance(instance, log=Intercepted(instance.stores.log, heads=heads, pages=pages))
    fetched = ask(slow, topic, min(start, before))
    assert fetched.high_watermark == fetched.next_offset == before
    assert values_of(fetched) == [(number, str(number)) for number in range(min(start, before), before)]
    rest = read_all(instance, topic, offset=fetched.next_offset)
    assert [value for _, value in rest] == [str(number) for number in range(before, before + len(rest))]


def test_roll_is_done_once_when_two_writers_hold_the_same_one(shared: Instance) -> None:
    topic = new_topic(shared)
    key = PartitionKey(shared.topic_cache.get(topic).topic_id, Partition(0))
    lazy = another_instance(shared, log=Intercepted(shared.stores.log, put_page=lambda *_: None))
    heads: list[Head] = []
    for number in range(2 * TAIL_ROLL_REFS):
        send(lazy, topic, str(number))
        heads.append(shared.stores.log.heads([key])[key])
    early, late = (next_page(heads[length - 1]) for length in (TAIL_ROLL_REFS, 2 * TAIL_ROLL_REFS))
    assert early is not None
    assert early == late, "whoever rolls makes the same page"

    def roll() -> bool:
        stored = shared.stores.log.put_page(key, early)
        assert stored == early
        return shared.stores.log.shorten_tail(key, stored)[0]

    assert sum(_at_once([roll, roll])) == 1
    assert read_all(shared, topic) == [(number, str(number)) for number in range(2 * TAIL_ROLL_REFS)]


NEEDED = {Acks.NONE: 1, Acks.ONE: 1, Acks.QUORUM: 2, Acks.ALL: 3}
OUTAGES = [down for count in range(4) for down in itertools.combinations(range(3), count)]


def _noting(instance: Instance) -> tuple[Instance, list[tuple[Ref, int]]]:
    noted: list[tuple[Ref, int]] = []

    def append(original: Any, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:
        noted.append((ref, unconfirmed_zones))
        head: Head = original(key, ref, unconfirmed_zones)
        return head

    return with_stores(instance, log=Intercepted(instance.stores.log, append=append)), noted


@pytest.mark.parametrize("down", OUTAGES)
@pytest.mark.parametrize("acks", list(Acks))
def test_append_needs_as_many_zones_as_its_acks_when_zones_are_down(acks: Acks, down: tuple[int, ...]) -> None:
    instance, noted = _noting(patient_instance())
    topic = new_topic(instance)
    for index in down:
        zone_of(instance, index).is_down = True
    up = [index for index in range(3) if index not in down]
    if len(up) >= NEEDED[acks]:
        assert send(instance, topic, "x", acks=acks) == appended(0, 1)
        [(ref, unconfirmed)] = noted
        assert ref.zones == sum(1 << index for index in up)
        assert unconfirmed == sum(1 << index for index in down)
        assert all(ref.segment_id in zone_of(instance, index).segments for index in up)
        assert read_all(instance, topic) == [(0, "x")]
    else:
        with pytest.raises(PenstockError) as caught:
            produce(instance, [entry(topic, 0, batch("x"))], acks)
        assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.NOT_ENOUGH_ZONES, False)
        assert f"{len(up)} of 3 zones" in caught.value.message
        assert all(f"zone {'abc'[index]}" in caught.value.message for index in down)
        assert noted == []
        for index in down:
            zone_of(instance, index).is_down = False
        assert read_all(instance, topic) == []


@pytest.mark.parametrize(("zones", "may_be_down"), [("a", 0), ("ab", 0), ("abcd", 1), ("abcde", 2)])
def test_append_by_quorum_bears_a_minority_when_zones_are_not_three(zones: str, may_be_down: int) -> None:
    instance = patient_instance(zones=zones)
    topic = new_topic(instance)
    for index in range(may_be_down):
        zone_of(instance, index).is_down = True
    assert send(instance, topic, "x").next_offset == 1
    zone_of(instance, may_be_down).is_down = True
    with pytest.raises(PenstockError, match="NOT_ENOUGH_ZONES"):
        send(instance, topic, "y")


class _Hanging:
    """Hooks for a zone that takes calls and answers none of them until `answer` is set."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.taken = 0

    def put(self, original: Any, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.taken += 1
        self.answer.wait()
        original(segment_id, body, crc32c)


@pytest.mark.parametrize("hangs", range(3))
def test_append_by_quorum_is_not_held_up_when_a_zone_hangs(hangs: int) -> None:
    """There are far more appends than threads. No append may wait behind the puts that hang."""
    hanging = _Hanging()
    instance, noted = _noting(with_tuning(patient_instance(), straggler_grace_ms=0))
    zones: list[Any] = list(instance.stores.zones)
    zones[hangs] = Intercepted(zones[hangs], put=hanging.put)
    instance = with_stores(instance, zones=zones)
    topic = new_topic(instance)
    try:
        for number in range(100):
            assert send(instance, topic, str(number)).base_offset == number
    finally:
        hanging.answer.set()
    assert 0 < hanging.taken < 100
    assert {(ref.zones, unconfirmed) for ref, unconfirmed in noted} == {(0b111 ^ 1 << hangs, 1 << hangs)}
    assert read_all(instance, topic) == [(number, str(number)) for number in range(100)]


def test_append_by_all_waits_for_the_last_zone() -> None:
    hanging = _Hanging()
    instance = with_tuning(patient_instance(), straggler_grace_ms=0)
    instance = with_stores(
        instance, zones=[*instance.stores.zones[:2], Intercepted(instance.stores.zones[2], put=hanging.put)]
    )
    topic = new_topic(instance)
    results: list[AppendedRange] = []
    waiting = threading.Thread(target=lambda: results.append(send(instance, topic, "x", acks=Acks.ALL)))
    waiting.start()
    try:
        send(another_instance(instance, zones=instance.stores.zones[:2]), topic, "meanwhile")
        assert results == []
        assert head_of(instance, topic).next_offset == 1
    finally:
        hanging.answer.set()
        waiting.join(DEADLINE_S)
    assert results == [appended(1, 2)]
    assert head_of(instance, topic).tail[1].zones == 0b111


def test_append_refuses_when_the_zones_that_are_left_can_no_longer_be_enough() -> None:
    """Two of three zones refuse. The put that hangs cannot make a quorum, so the append does not wait for it."""
    hanging = _Hanging()
    instance = with_tuning(patient_instance(), straggler_grace_ms=0)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    instance = with_stores(
        instance, zones=[*instance.stores.zones[:2], Intercepted(instance.stores.zones[2], put=hanging.put)]
    )
    topic = new_topic(instance)
    try:
        with pytest.raises(PenstockError, match="NOT_ENOUGH_ZONES"):
            send(instance, topic, "x")
    finally:
        hanging.answer.set()
    assert head_of(instance, topic).next_offset == 0
