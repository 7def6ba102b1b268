"""Many writers of one partition, and readers while they write."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock_core.ids import Offset, Partition, PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_core.log.index import Head, Page
from penstock_core.log.roll import next_page
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.instance import Instance
from tests.support.deadlines import DEADLINE_S
from tests.support.service import (
    Intercepted,
    another_instance,
    ask,
    counted_instance,
    new_topic,
    patient_instance,
    read_all,
    send,
    values_of,
    with_tuning,
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
