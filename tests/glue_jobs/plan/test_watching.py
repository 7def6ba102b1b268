"""A stream's view of its partitions while topics come, grow and go, and the cost of its looks.

Without Spark, on a stepped clock.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import TAIL_ROLL_REFS
from penstock_service.instance.caches import TTL_MS
from penstock_service.instance.instance import Instance
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from penstock_spark.plan.options import parse_read_options
from penstock_spark.plan.planning import plan_slices
from penstock_spark.plan.stream_offsets import Positions, to_json
from penstock_spark.plan.watching import IDLE_MS_MAX, IDLE_MS_MIN, Watch
from tests.service.topics.test_fewer_partitions import retire
from tests.support.restoring import jump
from tests.support.service import FrozenClock, SteppedClock, counted_instance, new_topic, patient_instance, send


@dataclass
class WatchedService:
    """A service, and queries that watch it through an instance whose calls are counted."""

    clock: SteppedClock = field(default_factory=SteppedClock)
    counts: Counter[str] = field(default_factory=Counter)
    instance: Instance = field(init=False)

    def __post_init__(self) -> None:
        self.instance = patient_instance(self.clock)

    def watch(self, **options: str) -> Watch:
        given = {"startingOffsets": "earliest", **options}
        return Watch(counted_instance(self.instance, self.counts), parse_read_options(given, is_stream=True))

    def later(self, duration_ms: float = TTL_MS) -> None:
        self.clock.sleep_ms(duration_ms)


@pytest.fixture
def watched() -> WatchedService:
    return WatchedService()


def offsets(positions: Positions) -> dict[str, dict[str, int]]:
    return {topic: found for topic, found in to_json(positions).items() if topic != "#ids"}


def advance(watch: Watch, start: Positions, offsets_max: int | None = None) -> Positions:
    """The end of the next micro-batch, which is planned."""
    end = watch.next_positions(start, offsets_max)
    watch.ranges(start, end)
    return end


def test_a_micro_batch_costs_one_read_of_the_heads(watched: WatchedService) -> None:
    new_topic(watched.instance, "orders", partitions=3)
    watch = watched.watch(subscribe="orders")
    at = advance(watch, watch.first_positions())
    for number in range(3):
        send(watched.instance, "orders", "x", partition=number)
    watched.later(IDLE_MS_MIN)
    watched.counts.clear()

    end = watch.next_positions(at, None)
    ranges = watch.ranges(at, end)

    assert offsets(end) == {"orders": {"0": 1, "1": 1, "2": 1}}
    assert [(each.key.partition, each.start_offset, each.end_offset) for each in ranges] == [
        (0, 0, 1),
        (1, 0, 1),
        (2, 0, 1),
    ]
    assert watched.counts == {"log.heads": 1}


def test_stream_reads_a_draining_partition_to_its_end_and_goes_on_after_it_is_gone(watched: WatchedService) -> None:
    new_topic(watched.instance, "orders", partitions=2)
    watch = watched.watch(subscribe="orders")
    start = watch.first_positions()
    send(watched.instance, "orders", "a", partition=1)
    alter_topic(watched.instance, "orders", 1, {})
    watched.later()
    at = advance(watch, start)
    assert offsets(at) == {"orders": {"0": 0, "1": 1}}
    retire(watched.instance, watched.clock, "orders", 1)
    send(watched.instance, "orders", "b", partition=0)
    restarted = watched.watch(subscribe="orders")
    end = restarted.next_positions(at, None)
    assert [(each.key.partition, each.end_offset) for each in restarted.ranges(at, end)] == [(0, 1)]
    alter_topic(watched.instance, "orders", 2, {})
    send(watched.instance, "orders", "c", partition=1)
    watched.later()
    later = restarted.next_positions(end, None)
    found = [(each.key.partition, each.start_offset, each.end_offset) for each in restarted.ranges(end, later)]
    assert found == [(1, 1, 2)], "the partition is back, and nothing is read twice"


def test_stream_reads_new_generations(watched: WatchedService) -> None:
    new_topic(watched.instance, "orders", partitions=1, ordering_on_change="wait")
    watch = watched.watch(subscribe="orders")
    at = advance(watch, watch.first_positions())
    alter_topic(watched.instance, "orders", 2, {})
    send(watched.instance, "orders", "a", partition=2)
    watched.later()
    assert offsets(advance(watch, at)) == {"orders": {"0": 0, "1": 0, "2": 1}}


def test_planning_what_lies_at_the_tail_costs_nothing_more(watched: WatchedService) -> None:
    new_topic(watched.instance)
    for number in range(2 * TAIL_ROLL_REFS + 1):
        send(watched.instance, "orders", str(number))
    watch = watched.watch(subscribe="orders", startingOffsets='{"orders": {"0": 32}}')
    start = watch.first_positions()
    end = watch.next_positions(start, None)
    watched.counts.clear()

    [[found]] = plan_slices(
        counted_instance(watched.instance, watched.counts), watch.ranges(start, end), partition_bytes=1_000
    )

    assert (found.start_offset, found.end_offset) == (32, 33)
    assert not watched.counts


def test_a_micro_batch_that_runs_again_after_a_restart_reads_the_heads_once(watched: WatchedService) -> None:
    new_topic(watched.instance)
    before = watched.watch(subscribe="orders")
    start = before.first_positions()
    send(watched.instance, "orders", "a", "b")
    end = before.next_positions(start, None)
    send(watched.instance, "orders", "c")
    watched.counts.clear()

    [offsets_read] = watched.watch(subscribe="orders").ranges(start, end)

    assert (offsets_read.start_offset, offsets_read.end_offset) == (0, 2)
    assert watched.counts == {"log.heads": 1}


def test_heads_that_do_not_reach_far_enough_are_read_again(watched: WatchedService) -> None:
    new_topic(watched.instance)
    watch, other = watched.watch(subscribe="orders"), watched.watch(subscribe="orders")
    start = watch.first_positions()
    assert offsets(watch.next_positions(start, None)) == {"orders": {"0": 0}}
    send(watched.instance, "orders", "a")

    [offsets_read] = watch.ranges(start, other.next_positions(start, None))

    assert (offsets_read.start_offset, offsets_read.end_offset) == (0, 1)


def test_a_query_with_nothing_new_looks_less_and_less_often_but_once_a_second(watched: WatchedService) -> None:
    new_topic(watched.instance)
    watch = watched.watch(subscribe="orders")
    start = watch.first_positions()
    watched.counts.clear()
    waits: list[float] = []
    asked_ms = watched.clock.monotonic_ms()
    while len(waits) < 10:
        before = watched.counts["log.heads"]
        assert watch.next_positions(start, None) == start
        if watched.counts["log.heads"] > before:
            waits.append(watched.clock.monotonic_ms() - asked_ms)
            asked_ms = watched.clock.monotonic_ms()
        watched.later(10)

    assert waits[:4] == [0, IDLE_MS_MIN, 2 * IDLE_MS_MIN, 4 * IDLE_MS_MIN]
    assert max(waits) == IDLE_MS_MAX

    send(watched.instance, "orders", "a")
    watched.later(IDLE_MS_MAX)
    end = watch.next_positions(start, None)
    assert offsets(end) == {"orders": {"0": 1}}
    send(watched.instance, "orders", "b")
    assert offsets(watch.next_positions(end, None)) == {"orders": {"0": 2}}, "there was something, so it looks at once"


@pytest.mark.parametrize("stopped", ["monotonic", "wall"])
def test_waits_and_lists_end_by_the_clock_that_goes_on(watched: WatchedService, stopped: str) -> None:
    new_topic(watched.instance)
    clock = FrozenClock(watched.clock)
    options = parse_read_options({"subscribePattern": "orders.*", "startingOffsets": "earliest"}, is_stream=True)
    watch = Watch(replace(watched.instance, clock=clock), options)
    start = watch.first_positions()
    assert watch.next_positions(start, None) == start
    send(watched.instance, "orders", "a")
    new_topic(watched.instance, "orders.us")
    assert watch.next_positions(start, None) == start
    if stopped == "monotonic":
        clock.freeze(int(TTL_MS))
    else:
        watched.later(TTL_MS)
        clock.set_back_ms = int(TTL_MS)
    assert offsets(watch.next_positions(start, None)) == {"orders": {"0": 1}, "orders.us": {"0": 0}}


def test_partitions_and_topics_of_a_pattern_that_are_added_are_read_from_their_start(watched: WatchedService) -> None:
    new_topic(watched.instance, "orders.eu")
    watch = watched.watch(subscribePattern="orders\\..*")
    start = watch.first_positions()
    alter_topic(watched.instance, "orders.eu", 2, {})
    new_topic(watched.instance, "orders.us")
    new_topic(watched.instance, "bills")
    send(watched.instance, "orders.eu", "a", partition=1)
    send(watched.instance, "orders.us", "b", "c")
    watched.later()

    end = watch.next_positions(start, None)

    assert offsets(end) == {"orders.eu": {"0": 0, "1": 1}, "orders.us": {"0": 2}}
    ranges = watch.ranges(start, end)
    assert [(each.topic, each.key.partition, each.start_offset) for each in ranges] == [
        ("orders.eu", 1, 0),
        ("orders.us", 0, 0),
    ]


@pytest.mark.parametrize("subscription", [{"subscribe": "orders,bills"}, {"subscribePattern": "orders|bills"}])
def test_a_topic_that_is_deleted_ends_the_query_or_is_gone_on_without(
    watched: WatchedService, subscription: dict[str, str]
) -> None:
    for name in ("bills", "orders"):
        new_topic(watched.instance, name)
    strict = watched.watch(**subscription)
    lenient = watched.watch(**subscription, failOnDataLoss="false")
    start = strict.first_positions()
    assert advance(strict, start) == advance(lenient, start) == start
    delete_topic(watched.instance, "bills")
    send(watched.instance, "orders", "a")
    watched.later(IDLE_MS_MAX)

    with pytest.raises(PenstockError, match=r"partition 0 of topic 'bills' .* it is deleted") as raised:
        strict.next_positions(start, None)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    end = advance(lenient, start)
    assert offsets(end) == {"orders": {"0": 1}}

    new_topic(watched.instance, "bills", partitions=2)
    send(watched.instance, "bills", "new", partition=1)
    watched.later()
    again = lenient.next_positions(end, None)
    assert offsets(again) == {"bills": {"0": 0, "1": 1}, "orders": {"0": 1}}
    assert [(each.topic, each.start_offset) for each in lenient.ranges(end, again)] == [("bills", 0)]


def test_a_topic_deleted_and_created_again_between_two_looks_is_noticed(watched: WatchedService) -> None:
    new_topic(watched.instance)
    watch = watched.watch(subscribe="orders", failOnDataLoss="false")
    send(watched.instance, "orders", "old")
    start = watch.next_positions(watch.first_positions(), None)
    delete_topic(watched.instance, "orders")
    new_topic(watched.instance)
    send(watched.instance, "orders", "new", "newer")

    end = watch.next_positions(start, None)

    assert offsets(end) == {"orders": {"0": 2}}
    [offsets_read] = watch.ranges(start, end)
    assert (offsets_read.start_offset, offsets_read.end_offset) == (0, 2), "not from where the old one was left"


def test_a_named_topic_or_partition_that_does_not_exist_ends_the_query_or_is_waited_for(
    watched: WatchedService,
) -> None:
    new_topic(watched.instance)
    send(watched.instance, "orders", "a")
    start = watched.watch(subscribe="orders").first_positions()

    for given in ({"subscribe": "orders,bills"}, {"assign": '{"orders": [0, 1]}'}):
        with pytest.raises(PenstockError, match="does not exist"):
            watched.watch(**given).first_positions()
        with pytest.raises(PenstockError, match="does not exist"):
            watched.watch(**given).next_positions(start, None)
        lenient = watched.watch(**given, failOnDataLoss="false")
        assert offsets(lenient.next_positions(start, None)) == {"orders": {"0": 1}}


def test_a_checkpoint_of_another_subscription_is_refused_or_gone_on_without(watched: WatchedService) -> None:
    for name in ("bills", "orders"):
        new_topic(watched.instance, name, partitions=2)
        send(watched.instance, name, "a", partition=1)
    before = watched.watch(subscribe="orders")
    start = before.next_positions(before.first_positions(), None)

    for others in ({"subscribe": "bills"}, {"subscribePattern": "b.*"}, {"assign": '{"orders": [0]}'}):
        with pytest.raises(PenstockError, match="topic 'orders' is in the query's checkpoint") as raised:
            watched.watch(**others).next_positions(start, None)
        assert raised.value.code is ErrorCode.INVALID_REQUEST
    lenient = watched.watch(subscribe="bills", failOnDataLoss="false")
    assert offsets(advance(lenient, start)) == {"bills": {"0": 0, "1": 1}}
    more = watched.watch(subscribe="orders,bills")
    end = more.next_positions(start, None)
    assert offsets(end) == {"bills": {"0": 0, "1": 1}, "orders": {"0": 0, "1": 1}}
    assert [each.topic for each in more.ranges(start, end)] == ["bills"], "read from its start"


def test_a_bounded_query_reads_what_was_there_in_micro_batches_smaller_than_its_partitions(
    watched: WatchedService,
) -> None:
    new_topic(watched.instance, "orders", partitions=5)
    for number in range(5):
        send(watched.instance, "orders", *"abc", partition=number)
    watch = watched.watch(subscribe="orders")
    watch.bound()
    start = watch.first_positions()
    send(watched.instance, "orders", "late")
    alter_topic(watched.instance, "orders", 6, {})
    send(watched.instance, "orders", "late", partition=5)
    watched.later()

    counts = []
    while (end := list(watch.next_positions(start, 2))) != start:
        counts.append(sum(each.end_offset - each.start_offset for each in watch.ranges(start, end)))
        start = end

    assert counts == [2] * 7 + [1]
    assert offsets(start) == {"orders": {str(number): 3 for number in range(5)}}


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"orders": {"0": -1, "1": 0}}'},
        {"startingTimestamp": "9000000000000", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_crash_in_the_first_micro_batch_loses_nothing_of_a_query_that_begins_at_the_latest(
    watched: WatchedService, given: dict[str, str]
) -> None:
    new_topic(watched.instance, "orders", partitions=2)
    send(watched.instance, "orders", "before")
    crashed = watched.watch(subscribe="orders", **given)
    start = crashed.first_positions()
    send(watched.instance, "orders", "after")
    noted = crashed.next_positions(start, None)  # Spark stores this end, and not the start
    restarted = watched.watch(subscribe="orders", **given)

    assert restarted.ranges(restarted.first_positions(), noted) == []
    end = restarted.next_positions(noted, None)
    [offsets_read] = restarted.ranges(noted, end)
    assert (offsets_read.start_offset, offsets_read.end_offset) == (1, 2)
    assert offsets(crashed.next_positions(noted, None)) == offsets(end), "only the first is empty"


def test_starting_offsets_must_name_what_is_read_and_no_more(watched: WatchedService) -> None:
    new_topic(watched.instance, "orders", partitions=2)
    new_topic(watched.instance, "bills")

    for given, message in (
        ('{"orders": {"0": 1}}', r"missing: \[\('bills', 0\), \('orders', 1\)\]"),
        ('{"orders": {"0": 1, "1": 1, "2": 1}, "bills": {"0": 1}}', r"not read: \[\('orders', 2\)\]"),
    ):
        with pytest.raises(PenstockError, match=message):
            watched.watch(subscribe="orders,bills", startingOffsets=given).first_positions()


def test_a_position_ahead_of_the_partition_ends_the_query_or_is_set_back(watched: WatchedService) -> None:
    new_topic(watched.instance)
    send(watched.instance, "orders", "a")
    ahead = '{"orders": {"0": 5}}'
    strict = watched.watch(subscribe="orders", startingOffsets=ahead)
    lenient = watched.watch(subscribe="orders", startingOffsets=ahead, failOnDataLoss="false")
    start = strict.first_positions()

    with pytest.raises(PenstockError, match=r"offsets \[1, 5\) .* it holds \[0, 1\)"):
        strict.next_positions(start, None)
    end = advance(lenient, start)
    assert offsets(end) == {"orders": {"0": 1}}
    send(watched.instance, "orders", "b")
    assert offsets(advance(lenient, end)) == {"orders": {"0": 2}}


def test_ends_without_a_start_are_looked_for_as_seldom_while_nothing_comes(watched: WatchedService) -> None:
    new_topic(watched.instance)
    watch = watched.watch(subscribe="orders")
    watch.first_positions()
    watched.counts.clear()

    for _ in range(10):
        assert offsets(watch.ends()) == {"orders": {"0": 0}}
    assert watched.counts["log.heads"] == 2
    send(watched.instance, "orders", "a")
    watched.later(IDLE_MS_MIN)
    assert offsets(watch.ends()) == {"orders": {"0": 1}}


@pytest.fixture
def restored(watched: WatchedService) -> Positions:
    """The positions of a query that had read 15 records when the stage was restored to 10; then 1 came."""
    new_topic(watched.instance, "orders")
    send(watched.instance, "orders", *map(str, range(10)))
    jump(watched.instance, 20)
    send(watched.instance, "orders", "new")
    [start] = watched.watch(subscribe="orders").first_positions()
    return [replace(start, offset=15)]


def test_query_ahead_of_a_restore_is_told_what_is_lost(watched: WatchedService, restored: Positions) -> None:
    strict = watched.watch(subscribe="orders")
    with pytest.raises(PenstockError, match="a restore removed") as raised:
        advance(strict, restored)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_lenient_query_ahead_of_a_restore_reads_each_new_record(watched: WatchedService, restored: Positions) -> None:
    lenient = watched.watch(subscribe="orders", failOnDataLoss="false")
    [found] = lenient.ranges(restored, lenient.next_positions(restored, None))
    assert (found.start_offset, found.end_offset) == (1_020, 1_021)


def test_micro_batch_that_was_planned_before_a_restore_takes_no_new_record_along(
    watched: WatchedService, restored: Positions
) -> None:
    lenient = watched.watch(subscribe="orders", failOnDataLoss="false")
    [begun] = restored
    [found] = lenient.ranges([replace(begun, offset=8)], restored)
    assert (found.start_offset, found.end_offset) == (8, 1_020), "what comes behind is the next micro-batch's"


def test_query_at_the_end_of_the_restored_log_reads_on(watched: WatchedService, restored: Positions) -> None:
    [ahead] = restored
    watch = watched.watch(subscribe="orders")
    start = [replace(ahead, offset=10)]
    [found] = watch.ranges(start, watch.next_positions(start, None))
    assert (found.start_offset, found.end_offset) == (10, 1_021)
