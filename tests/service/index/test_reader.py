"""The reader of the index: every page once, whatever is merged or removed meanwhile, and no gap unnoticed.

The shards of a partition's timers, merged: in order, none passed over, and never empty while one waits.

What an operator who died has left closed opens, and a move is made again, once.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Offset, Partition, PartitionKey, TopicId
from penstock_core.limits import TAIL_ROLL_REFS, TIMER_SHARDS
from penstock_core.log.index import Head, Page
from penstock_core.log.timer import PlaceRange, Timer
from penstock_service.index.heads import move_again_if_closed, open_partitions, waiting_timers
from penstock_service.index.reader import (
    find_ref,
    page_at,
    pages_backward,
    pages_below,
    pages_between,
    pages_forward,
    refs_of,
)
from penstock_service.instance.instance import Instance
from penstock_service.ports.log import LogIndex
from penstock_service.topics.alter_topic import alter_topic
from tests.support.interleaving import catch_kill, killed_at
from tests.support.refusals import refused
from tests.support.service import (
    UNAVAILABLE,
    Counted,
    Intercepted,
    appended,
    counted_instance,
    head_of,
    key_of,
    new_topic,
    send,
    with_stores,
)
from tests.support.timers import timer_at

PAGES = 5
BY_TWO = 2


@pytest.fixture
def log(instance: Instance) -> LogIndex:
    return instance.stores.log


@pytest.fixture
def key(instance: Instance) -> PartitionKey:
    """A partition with five pages of 16 offsets each, and three refs in the tail."""
    topic = new_topic(instance)
    for number in range(PAGES * TAIL_ROLL_REFS + 3):
        send(instance, topic, str(number))
    return key_of(instance, topic)


@pytest.fixture
def head(instance: Instance, key: PartitionKey) -> Head:
    return head_of(instance, "orders")


def bases(pages: Any) -> list[int]:
    return [page.base_offset for page in pages]


def without(log: LogIndex, *end_offsets: int) -> LogIndex:
    """The index without the pages that end at these offsets."""

    def query(original: Callable[..., list[Page]], *arguments: Any) -> list[Page]:
        return [page for page in original(*arguments) if page.end_offset not in end_offsets]

    return Intercepted(log, pages=query, pages_before=query)


def test_pages_forward_begin_with_the_page_that_covers_the_offset(log: LogIndex, key: PartitionKey, head: Head) -> None:
    assert bases(pages_forward(log, key, head, Offset(17), BY_TWO)) == [16, 32, 48, 64]
    assert bases(pages_forward(log, key, head, head.tail_base, BY_TWO)) == []


def test_pages_backward_end_at_the_log_start(log: LogIndex, key: PartitionKey) -> None:
    head = log.raise_log_start(key, Offset(20))
    assert bases(pages_backward(log, key, head, BY_TWO)) == [64, 48, 32, 16]


def test_pages_between_reach_over_both_ends(log: LogIndex, key: PartitionKey) -> None:
    assert bases(pages_between(log, key, Offset(20), Offset(33), BY_TWO)) == [16, 32]


@pytest.mark.parametrize(("below", "found"), [(0, []), (33, [0, 16]), (None, [0, 16, 32, 48, 64])])
def test_pages_below_end_at_the_offset(log: LogIndex, key: PartitionKey, below: int | None, found: list[int]) -> None:
    assert bases(pages_below(log, key, None if below is None else Offset(below), BY_TWO)) == found


def test_reader_asks_for_no_page_before_it_is_wanted(log: LogIndex, key: PartitionKey, head: Head) -> None:
    counts: Counter[str] = Counter()
    counted: Any = Counted(log, "log", counts)
    forward, backward = pages_forward(counted, key, head, Offset(0), 3), pages_backward(counted, key, head, 3)
    assert not counts
    assert bases(forward) == [0, 16, 32, 48, 64]
    assert bases(backward) == [64, 48, 32, 16, 0]
    assert counts == {"log.pages": 2, "log.pages_before": 2}


@pytest.mark.parametrize("end_offset", [16, 48, 80])
def test_gap_is_refused_when_a_page_is_missing(log: LogIndex, key: PartitionKey, head: Head, end_offset: int) -> None:
    damaged = without(log, end_offset)
    looks: list[Callable[[], object]] = [
        lambda: list(pages_forward(damaged, key, head, Offset(0), BY_TWO)),
        lambda: list(pages_between(damaged, key, Offset(0), head.tail_base, BY_TWO)),
        lambda: list(pages_backward(damaged, key, head, BY_TWO)),
        lambda: page_at(damaged, key, Offset(end_offset - 1)),
        lambda: list(refs_of(damaged, key, 0)),
        lambda: find_ref(damaged, key, head, lambda _: False),
    ]
    for look in looks:
        with pytest.raises(PenstockError) as caught:
            look()
        assert caught.value.code is ErrorCode.CORRUPT_SEGMENT


def test_search_for_a_repeat_says_that_the_append_may_be_applied_when_it_fails(
    log: LogIndex, key: PartitionKey, head: Head
) -> None:
    with pytest.raises(PenstockError) as caught:
        find_ref(without(log, 48), key, head, lambda _: False)
    assert caught.value.maybe_applied


def test_gap_does_not_count_when_the_second_read_does_not_meet_it(log: LogIndex, key: PartitionKey, head: Head) -> None:
    queries = Counter[str]()

    def half_of_a_swap(name: str) -> Callable[..., list[Page]]:
        def query(original: Callable[..., list[Page]], *arguments: Any) -> list[Page]:
            queries[name] += 1
            found = original(*arguments)
            return [page for page in found if page.end_offset != 48] if queries[name] == 1 else found

        return query

    torn: Any = Intercepted(log, pages=half_of_a_swap("pages"), pages_before=half_of_a_swap("pages_before"))
    assert bases(pages_forward(torn, key, head, Offset(32), 100)) == [32, 48, 64]
    assert bases(pages_backward(torn, key, head, 100)) == [64, 48, 32, 16, 0]


def test_merged_page_is_cut_to_the_refs_not_met_yet(log: LogIndex, key: PartitionKey, head: Head) -> None:
    """A swap merges the pages `[0, 80)` after the reader has taken some of them."""
    pages = log.pages(key, Offset(0), 100)
    merged = Page(
        base_offset=pages[0].base_offset,
        refs=tuple(ref for page in pages for ref in page.refs),
        max_timestamp_ms=pages[-1].max_timestamp_ms,
        rolled_bytes=pages[-1].rolled_bytes,
    )
    swapped: list[Page] = []

    def query(original: Callable[..., list[Page]], _: object, offset: int, limit: int) -> list[Page]:
        return [page for page in swapped if page.end_offset > offset] or original(_, offset, limit)

    def query_before(original: Callable[..., list[Page]], _: object, offset: int, limit: int) -> list[Page]:
        return [page for page in swapped if page.end_offset <= offset] if swapped else original(_, offset, limit)

    other: Any = Intercepted(log, pages=query, pages_before=query_before)
    for reader in (pages_forward(other, key, head, Offset(0), BY_TWO), pages_backward(other, key, head, BY_TWO)):
        swapped.clear()
        first, second = next(reader), next(reader)
        swapped.append(merged)
        [rest] = reader
        located = sorted(each.base_offset for page in (first, second, rest) for each in page.located())
        assert located == list(range(80))


def test_refs_go_on_at_the_log_start_when_retention_deletes_pages_meanwhile(log: LogIndex, key: PartitionKey) -> None:
    refs = refs_of(log, key, 0)
    before = [next(refs).base_offset for _ in range(TAIL_ROLL_REFS * 4)]
    log.raise_log_start(key, Offset(80))
    log.delete_page(key, Offset(80))
    assert before == list(range(64))
    assert [each.base_offset for each in refs] == [80, 81, 82]


def test_refs_end_when_the_partition_is_deleted_meanwhile(log: LogIndex, key: PartitionKey) -> None:
    refs = refs_of(log, key, 0)
    next(refs)
    log.delete_head(key)
    for page in log.pages(key, Offset(0), 100):
        log.delete_page(key, page.end_offset)
    assert [each.base_offset for each in refs] == list(range(1, 64))
    assert list(refs_of(log, key, 0)) == []


def test_refs_end_at_the_high_watermark_of_the_first_look(instance: Instance, log: LogIndex, key: PartitionKey) -> None:
    refs = refs_of(log, key, 70)
    first = next(refs).base_offset
    for number in range(2 * TAIL_ROLL_REFS):
        send(instance, "orders", str(number))
    assert [first, *(each.base_offset for each in refs)] == list(range(70, 83))


KEY = PartitionKey(TopicId("0f" * 10), Partition(3))
ALL = PlaceRange(0, 10**9)


def put(instance: Instance, timers: list[Timer]) -> list[Timer]:
    for timer in timers:
        instance.stores.timers.put(timer)
    return sorted(timers, key=lambda timer: timer.place)


@pytest.mark.parametrize("limit", [1, 7, 64, 1_000])
def test_walk_meets_every_timer_once_and_in_order(instance: Instance, limit: int) -> None:
    timers = put(instance, [timer_at(KEY, 1_000 + number % 50, number) for number in range(300)])
    assert {timer.place.shard for timer in timers} == set(range(TIMER_SHARDS))
    found: list[Timer] = []
    places = ALL
    while part := waiting_timers(instance, KEY, places, limit):
        assert len(part) <= limit
        found += part
        places = places._replace(after=part[-1].place)
    assert found == timers


def test_timers_of_one_shard_alone_are_found(instance: Instance) -> None:
    timers = put(instance, [each for number in range(900) if (each := timer_at(KEY, 5, number)).place.shard == 2])
    part = waiting_timers(instance, KEY, ALL, 80)
    assert list(part) == timers[: len(part)]
    assert part


def test_look_asks_each_shard_once_for_its_share(instance: Instance) -> None:
    put(instance, [timer_at(KEY, 5, number) for number in range(20)])
    counts: Counter[str] = Counter()
    waiting_timers(counted_instance(instance, counts), KEY, ALL, 900)
    assert counts == {"timers.waiting": TIMER_SHARDS}


def test_shard_that_cannot_be_read_is_not_passed_over(instance: Instance) -> None:
    put(instance, [timer_at(KEY, 5, number) for number in range(20)])

    def failing(original: object, key: PartitionKey, shard: int, *arguments: object) -> object:
        if shard == 5:
            raise UNAVAILABLE
        return original(key, shard, *arguments)  # type: ignore[operator]

    broken = with_stores(instance, timers=Intercepted(instance.stores.timers, waiting=failing))
    refused(ErrorCode.STORAGE_UNAVAILABLE, lambda: waiting_timers(broken, KEY, ALL, 900))


CLOSED = PenstockError(ErrorCode.PARTITION_CLOSED, "closed")


def test_generation_that_comes_is_opened(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2, ordering_on_change="wait")
    with catch_kill():
        alter_topic(killed_at(instance, 2, is_applied=True), topic, 1, {})
    open_partitions(instance, topic)
    assert instance.topic_cache.get(topic).generations == (0, 2)
    assert send(instance, topic, "a", partition=2) == appended(0, 1)


def test_head_that_was_left_closed_is_opened(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    alter_topic(instance, topic, 1, {})
    with catch_kill():
        alter_topic(killed_at(instance, 1, is_applied=True), topic, 2, {})
    assert head_of(instance, topic, 1).is_closed
    open_partitions(instance, topic)
    assert not head_of(instance, topic, 1).is_closed


@pytest.mark.parametrize("refusals", [[], [CLOSED], [CLOSED, CLOSED], [PenstockError(ErrorCode.THROTTLED, "slow")]])
def test_move_is_made_again_once_after_a_refusal_by_a_closed_partition(
    instance: Instance, refusals: list[PenstockError]
) -> None:
    names, left = [new_topic(instance)], [*refusals]

    def move() -> str:
        if left:
            raise left.pop(0)
        return "moved"

    if refusals in ([], [CLOSED]):
        assert move_again_if_closed(instance, names, move) == "moved"
    else:
        refused(refusals[-1].code, lambda: move_again_if_closed(instance, names, move))
    assert left == []
