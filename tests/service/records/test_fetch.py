"""Fetch: whole batches from the offset on, within every budget. The next fetch goes on exactly where it ended.

Long poll, on a clock that only moves when fetch sleeps.
"""

from collections import Counter

import pytest

from penstock_core import limits
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import FETCH_POLL_MS_MAX, FETCH_WAIT_MS_MAX
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import delete_topic, truncate
from tests.support.service import (
    Counted,
    SteppedClock,
    another_instance,
    ask,
    batch,
    entry,
    new_topic,
    read_all,
    send,
    values_of,
)

ONE = len(batch("0"))  # bytes of a batch of one short record


def _wanted(topic: str, partition: int, offset: int = 0, max_bytes: int = limits.FETCH_BYTES_MAX) -> FetchEntry:
    return FetchEntry(topic=topic, partition=partition, offset=offset, max_bytes=max_bytes)


def _fetch(instance: Instance, *entries: FetchEntry, max_bytes: int = limits.FETCH_BYTES_MAX) -> list[FetchResult]:
    results = fetch(instance, entries, max_bytes=max_bytes, min_bytes=1, wait_ms=0)
    return [result for result in results if isinstance(result, FetchResult)]


@pytest.fixture
def filled(instance: Instance) -> Instance:
    """orders-0: 50 appends, three pages and a tail, each of two batches: offsets 4n, 4n+1 | 4n+2, 4n+3."""
    new_topic(instance)
    for number in range(0, 200, 4):
        pair = (batch(str(number), str(number + 1)), batch(str(number + 2), str(number + 3)))
        produce(instance, [entry("orders", 0, *pair)], Acks.QUORUM)
    return instance


@pytest.mark.parametrize("max_bytes", [1, 150, 400, 1_000, 5_000, limits.FETCH_BYTES_MAX])
def test_fetch_answers_the_batch_that_holds_the_offset_and_goes_on_exactly(filled: Instance, max_bytes: int) -> None:
    for offset in (*range(0, 200, 7), 191, 192, 193, 198, 199):
        fetched = ask(filled, "orders", offset, max_bytes=max_bytes)
        records = values_of(fetched)
        assert records[0][0] == offset - offset % 2, "the first batch is the one with the offset, and no earlier one"
        assert [number for number, _ in records] == list(range(records[0][0], fetched.next_offset))
        assert all(value == str(number) for number, value in records)
        assert len(fetched.data) <= max_bytes or len(records) == 2
        assert (fetched.log_start_offset, fetched.high_watermark) == (0, 200)
        rest = read_all(filled, "orders", offset=fetched.next_offset)
        assert rest == [(n, str(n)) for n in range(fetched.next_offset, 200)]


@pytest.mark.parametrize("max_bytes", [1, ONE, 200, 1_111, limits.FETCH_BYTES_MAX])
def test_fetch_after_fetch_reads_every_record_once(filled: Instance, max_bytes: int) -> None:
    assert read_all(filled, "orders", max_bytes=max_bytes) == [(number, str(number)) for number in range(200)]


def test_fetch_uses_its_budget_when_it_could_hold_more(filled: Instance) -> None:
    """While there is more, a fetch returns at least half of `max_bytes`: a fetch per batch would be expensive."""
    fetched = ask(filled, "orders", 0, max_bytes=2_000)
    assert 1_000 < len(fetched.data) <= 2_000


def test_fetch_joins_pages_and_tail_when_both_are_needed(filled: Instance) -> None:
    fetched = ask(filled, "orders", 0)
    assert values_of(fetched) == [(number, str(number)) for number in range(200)]
    assert fetched.next_offset == 200


def test_fetch_stops_at_the_limit_of_refs_when_they_are_small(instance: Instance) -> None:
    topic = new_topic(instance)
    count = limits.FETCH_REFS_MAX + 40
    for number in range(count):
        send(instance, topic, str(number))
    assert values_of(ask(instance, topic)) == [(number, str(number)) for number in range(limits.FETCH_REFS_MAX)]
    assert read_all(instance, topic) == [(number, str(number)) for number in range(count)]


def test_fetch_shares_the_limit_of_refs_between_partitions(instance: Instance) -> None:
    topic = new_topic(instance, partitions=3)
    for number in range(150):
        produce(instance, [entry(topic, partition, batch(str(number))) for partition in range(3)], Acks.QUORUM)
    results = _fetch(instance, *(_wanted(topic, partition) for partition in range(3)))
    assert [result.next_offset for result in results] == [150, limits.FETCH_REFS_MAX - 150, 0]


@pytest.fixture
def three(instance: Instance) -> Instance:
    """orders-0 to orders-2 with ten appends of one record each, orders-3 empty."""
    new_topic(instance, partitions=4)
    for number in range(10):
        produce(instance, [entry("orders", partition, batch(str(number))) for partition in range(3)], Acks.QUORUM)
    return instance


def test_fetch_keeps_max_bytes_across_partitions(three: Instance) -> None:
    results = _fetch(three, *(_wanted("orders", number) for number in range(3)), max_bytes=15 * ONE + 1)
    assert [result.next_offset for result in results] == [10, 5, 0]
    assert [len(result.data) for result in results] == [10 * ONE, 5 * ONE, 0]


def test_fetch_keeps_max_bytes_of_a_partition(three: Instance) -> None:
    entries = [_wanted("orders", 0, 0, 3 * ONE), _wanted("orders", 1, 4, 2 * ONE), _wanted("orders", 2, 9, ONE)]
    results = _fetch(three, *entries)
    assert [(result.next_offset, len(result.data)) for result in results] == [(3, 3 * ONE), (6, 2 * ONE), (10, ONE)]


@pytest.mark.parametrize("max_bytes", [1, ONE - 1])
def test_fetch_answers_one_batch_when_it_is_over_max_bytes(three: Instance, max_bytes: int) -> None:
    entries = [_wanted("orders", 3), _wanted("orders", 0, 10), _wanted("orders", 1, 2), _wanted("orders", 2)]
    results = _fetch(three, *entries, max_bytes=max_bytes)
    assert [(result.next_offset, len(result.data)) for result in results] == [(0, 0), (10, 0), (3, ONE), (0, 0)]


def test_fetch_of_an_empty_partition_is_empty_and_no_error(three: Instance) -> None:
    [result] = _fetch(three, _wanted("orders", 3))
    assert (result.log_start_offset, result.high_watermark, result.next_offset) == (0, 0, 0)
    assert result.data == b""


def test_fetch_of_the_same_partition_twice_answers_both(three: Instance) -> None:
    first, second = _fetch(three, _wanted("orders", 0), _wanted("orders", 0, 8))
    assert (len(values_of(first)), len(values_of(second))) == (10, 2)


def test_fetch_is_out_of_range_below_the_log_start_and_above_the_high_watermark(three: Instance) -> None:
    truncate(three, "orders", {0: 4})
    assert ask(three, "orders", 10).data == b""
    assert values_of(ask(three, "orders", 4))[0] == (4, "4")
    for offset in (0, 3, 11, limits.OFFSET_MAX):
        with pytest.raises(PenstockError) as caught:
            ask(three, "orders", offset)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        topic_id = three.topic_cache.get("orders").topic_id
        assert caught.value.facts == {"log_start_offset": 4, "high_watermark": 10, "topic_id": topic_id}
        assert f"offset {offset}" in caught.value.message


def test_fetch_fails_one_partition_alone_when_it_is_bad(three: Instance) -> None:
    entries = [_wanted("orders", 0), _wanted("missing", 0), _wanted("orders", 7), _wanted("a b", 0)]
    entries += [_wanted("orders", 1, 99), _wanted("orders", 2)]
    results = fetch(three, entries, max_bytes=limits.FETCH_BYTES_MAX, min_bytes=1, wait_ms=0)
    codes = [result.code.name if isinstance(result, PenstockError) else len(values_of(result)) for result in results]
    assert codes == [10, "UNKNOWN_TOPIC", "UNKNOWN_PARTITION", "INVALID_NAME", "OFFSET_OUT_OF_RANGE", 10]


@pytest.mark.parametrize("count", [0, limits.REQUEST_PARTITIONS_MAX + 1])
def test_fetch_refuses_the_request_when_it_has_too_few_or_too_many_partitions(three: Instance, count: int) -> None:
    with pytest.raises(PenstockError, match=f"{count} topic-partitions") as caught:
        _fetch(three, *[_wanted("orders", 0)] * count)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


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
