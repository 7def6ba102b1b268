"""Many writers of one partition, and readers while they write."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from penstock_broker.adapters.memory import memory_broker
from penstock_broker.broker import Broker
from penstock_core.ids import Offset, Partition
from penstock_core.index import Head, Page, roll_due
from penstock_core.keys import PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS
from tests.broker.setting import (
    Intercepted,
    another_instance,
    ask,
    counted_broker,
    new_topic,
    patient_broker,
    read_all,
    send,
    values_of,
)

APPENDS = 200


@pytest.fixture
def shared() -> Broker:
    return replace(memory_broker(), straggler_grace_ms=0)


def _at_once(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs all from the same moment on; raises what any of them raises."""
    start = threading.Barrier(len(functions))

    def run(function: Callable[[], Any]) -> Any:
        start.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(run, functions))


def _writer(broker: Broker, topic: str, name: str) -> Callable[[], None]:
    def write() -> None:
        for number in range(APPENDS):
            send(broker, topic, f"{name}{number}")

    return write


def test_append_keeps_offsets_dense_and_orders_kept_when_two_instances_write_at_once(shared: Broker) -> None:
    topic = new_topic(shared)
    counts: Counter[str] = Counter()
    writers = [_writer(counted_broker(shared, counts), topic, name) for name in "ab"]
    _at_once(writers)
    records = read_all(shared, topic)
    assert [offset for offset, _ in records] == list(range(2 * APPENDS))
    for name in "ab":
        assert [value for _, value in records if value[0] == name] == [f"{name}{number}" for number in range(APPENDS)]
    assert counts["log.append"] == 2 * APPENDS
    assert counts["log.heads"] == 0


def test_append_answers_each_writer_the_offset_its_record_got(shared: Broker) -> None:
    topic = new_topic(shared)

    def write(name: str) -> dict[int, str]:
        return {send(shared, topic, f"{name}{number}").base_offset: f"{name}{number}" for number in range(50)}

    answered = _at_once([lambda name=name: write(name) for name in "abcd"])  # type: ignore[misc]
    assert dict(read_all(shared, topic)) == {offset: value for part in answered for offset, value in part.items()}


def test_fetch_sees_every_record_once_when_writers_roll_the_tail(shared: Broker) -> None:
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
    """Between the read of the head and the query for pages, and between two such queries, others append and roll."""
    broker = patient_broker()
    topic = new_topic(broker)
    for number in range(before):
        send(broker, topic, str(number))

    def append_and_roll() -> None:
        end = len(read_all(broker, topic))
        for number in range(end, end + TAIL_ROLL_REFS + 1):
            send(broker, topic, str(number))

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

    slow = another_instance(broker, log=Intercepted(broker.log, heads=heads, pages=pages))
    fetched = ask(slow, topic, min(start, before))
    assert fetched.high_watermark == fetched.next_offset == before
    assert values_of(fetched) == [(number, str(number)) for number in range(min(start, before), before)]
    rest = read_all(broker, topic, offset=fetched.next_offset)
    assert [value for _, value in rest] == [str(number) for number in range(before, before + len(rest))]


def test_roll_is_done_once_when_two_writers_hold_the_same_one(shared: Broker) -> None:
    topic = new_topic(shared)
    key = PartitionKey(shared.directory.find(topic).topic_id, Partition(0))
    lazy = another_instance(shared, log=Intercepted(shared.log, roll=lambda *_: False))
    heads: list[Head] = []
    for number in range(2 * TAIL_ROLL_REFS):
        send(lazy, topic, str(number))
        heads.append(shared.log.heads([key])[key])
    early, late = (roll_due(heads[length - 1]) for length in (TAIL_ROLL_REFS, 2 * TAIL_ROLL_REFS))
    assert early is not None
    assert late is not None
    assert sum(_at_once([lambda: shared.log.roll(key, early), lambda: shared.log.roll(key, late)])) == 1
    assert read_all(shared, topic) == [(number, str(number)) for number in range(2 * TAIL_ROLL_REFS)]
