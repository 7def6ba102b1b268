"""Long poll, on a clock that only moves when fetch sleeps."""

from collections import Counter

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import FETCH_POLL_MS_MAX, FETCH_WAIT_MS_MAX
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, fetch
from penstock_service.topics.alter_topic import delete_topic
from tests.support.service import (
    Counted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    new_topic,
    send,
    values_of,
)

ONE = len(batch("0"))


def _after(clock: SteppedClock, waited_ms: float, act: object) -> None:
    """`act()` once, as soon as the clock has been moved by `waited_ms`."""
    due_ms, pending = clock.time_ms + waited_ms, [act]

    def on_sleep() -> None:
        if pending and clock.time_ms >= due_ms:
            pending.pop()()  # type: ignore[operator]

    clock.on_sleep = on_sleep


def test_fetch_does_not_wait_when_data_are_there(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "0")
    assert values_of(ask(instance, topic, wait_ms=20_000)) == [(0, "0")]
    assert clock.sleeps == []


@pytest.mark.parametrize("wait_ms", [1, 9, 1_000, 20_000])
def test_fetch_ends_at_the_deadline_when_nothing_comes(instance: Instance, clock: SteppedClock, wait_ms: int) -> None:
    topic = new_topic(instance)
    started_ms = clock.time_ms
    assert ask(instance, topic, wait_ms=wait_ms).data == b""
    assert clock.time_ms - started_ms == pytest.approx(wait_ms)


def test_fetch_wakes_when_data_come(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    _after(clock, 5_000, lambda: send(instance, topic, "0"))
    started_ms = clock.time_ms
    assert values_of(ask(instance, topic, wait_ms=20_000)) == [(0, "0")]
    assert clock.time_ms - started_ms <= 5_000 + 2 * FETCH_POLL_MS_MAX


def test_fetch_waits_for_min_bytes(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "0")
    _after(clock, 3_000, lambda: send(instance, topic, "1"))
    assert len(ask(instance, topic, min_bytes=2 * ONE, wait_ms=20_000).data) == 2 * ONE
    assert sum(clock.sleeps) >= 3_000


def test_fetch_answers_what_there_is_when_min_bytes_do_not_come(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "0")
    assert values_of(ask(instance, topic, min_bytes=2 * ONE, wait_ms=1_000)) == [(0, "0")]
    assert sum(clock.sleeps) == pytest.approx(1_000)


def test_fetch_counts_min_bytes_across_partitions(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance, partitions=2)
    for partition in range(2):
        send(instance, topic, "0", partition=partition)
    entries = [FetchEntry(topic=topic, partition=number, offset=0, max_bytes=1_000) for number in range(2)]
    fetch(instance, entries, max_bytes=1_000, min_bytes=2 * ONE, wait_ms=1_000)
    assert clock.sleeps == []


def test_fetch_does_not_wait_for_more_than_max_bytes(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "0")
    ask(instance, topic, max_bytes=ONE, min_bytes=1_000_000, wait_ms=20_000)
    assert clock.sleeps == []


def test_fetch_does_not_count_what_lies_below_the_offset(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    send(instance, topic, "0")
    assert ask(instance, topic, 1, wait_ms=1_000).data == b""
    assert sum(clock.sleeps) == pytest.approx(1_000)


def test_fetch_ends_the_wait_at_once_when_a_partition_has_an_error(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    entries = [FetchEntry(topic=name, partition=0, offset=0, max_bytes=1_000) for name in (topic, "missing")]
    empty, error = fetch(instance, entries, max_bytes=1_000, min_bytes=1, wait_ms=20_000)
    assert not isinstance(empty, PenstockError)
    assert isinstance(error, PenstockError)
    assert clock.sleeps == []


def test_fetch_ends_the_wait_when_the_topic_is_deleted_meanwhile(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    reader = another_instance(instance)
    ask(reader, topic)
    _after(clock, 1_000, lambda: delete_topic(instance, topic))
    with pytest.raises(PenstockError) as caught:
        ask(reader, topic, wait_ms=20_000)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
    assert sum(clock.sleeps) <= 1_000 + 2 * FETCH_POLL_MS_MAX


def test_fetch_reads_heads_about_once_a_second_while_it_waits(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    counts: Counter[str] = Counter()
    ask(another_instance(instance, log=Counted(instance.stores.log, "log", counts)), topic, wait_ms=FETCH_WAIT_MS_MAX)
    assert 20 <= counts["log.heads"] <= 32
    assert counts["log.pages"] == 0
    assert clock.sleeps[0] <= 10, "the first looks come soon: most waits at the tail are short"
