"""Function instances: what they share, what each of them remembers for itself, and how much of it."""

from collections import Counter
from dataclasses import fields

from penstock_core.groups.group import GroupState
from penstock_core.groups.group_target import EMPTY_TARGET
from penstock_core.ids import GroupName, TopicId, TopicName
from penstock_core.limits import (
    INSTANCE_LOG_ENTRIES_MAX,
    INSTANCE_READS_BYTES_MAX,
    INSTANCE_READS_MS,
    INSTANCE_TARGETS_MAX,
    INSTANCE_TOPICS_MAX,
)
from penstock_core.log.topic import Topic
from penstock_service.adapters.memory.service import memory_instance
from penstock_service.instance.caches import TopicCache
from penstock_service.instance.instance import Instance, RecentReads
from penstock_service.instance.telemetry import Telemetry
from tests.support.service import SteppedClock, another_instance, counted_instance, head_of, new_topic, read_all, send

SHARED = {"stores", "clock", "entropy", "executor", "tuning"}


def _memory(instance: Instance) -> dict[str, object]:
    """What it remembers. None is no memory: `proven_callers` of a stage without direct calls."""
    found = {each.name: getattr(instance, each.name) for each in fields(Instance) if each.name not in SHARED}
    return {name: remembered for name, remembered in found.items() if remembered is not None}


def test_new_instance_shares_no_memory_with_the_instance_before() -> None:
    first = memory_instance()
    for second in (Instance.new(first.stores, first.runtime, first.tuning), another_instance(first)):
        assert _memory(first).keys() == _memory(second).keys() != set()
        for name, remembered in _memory(first).items():
            assert _memory(second)[name] is not remembered, name
            assert type(_memory(second)[name]) is type(remembered), name


def test_new_instance_shares_stores_runtime_and_tuning() -> None:
    first = memory_instance()
    second = Instance.new(first.stores, first.runtime, first.tuning)
    for name in SHARED:
        assert getattr(second, name) is getattr(first, name), name


class _AnyTopic:
    """A store that has every topic; `reads` counts."""

    def __init__(self) -> None:
        self.reads = 0

    def get(self, name: TopicName) -> Topic:
        self.reads += 1
        return Topic(name=name, topic_id=TopicId(name), partitions=1, created_at_ms=0)


def test_topic_cache_forgets_when_it_is_full() -> None:
    topics = _AnyTopic()
    cache = TopicCache(topics, SteppedClock())  # type: ignore[arg-type] # the one method that the cache uses
    for number in range(INSTANCE_TOPICS_MAX):
        cache.get(f"t{number}")
    cache.get("t0")
    assert topics.reads == INSTANCE_TOPICS_MAX
    cache.get("one.more")
    cache.get("t0")
    assert topics.reads == INSTANCE_TOPICS_MAX + 2


def test_group_cache_forgets_the_oldest_target_when_it_is_full() -> None:
    cache = memory_instance().group_cache
    groups = [
        GroupState(name=GroupName(f"g{number}"), epoch=1, target_id="t") for number in range(INSTANCE_TARGETS_MAX + 1)
    ]
    for group in groups:
        cache.remember(group, EMPTY_TARGET)
    assert cache.target_of(groups[0]) is None, "it is not in the store either"
    assert all(cache.target_of(group) is EMPTY_TARGET for group in groups[1:])


def test_telemetry_counts_without_logging_when_there_are_many_entries() -> None:
    telemetry = Telemetry()
    for number in range(INSTANCE_LOG_ENTRIES_MAX + 5):
        telemetry.log("repair_failed", number=number)
    counts, entries = telemetry.take()
    assert counts == {"repair_failed": INSTANCE_LOG_ENTRIES_MAX + 5}
    assert [facts["number"] for _, facts in entries] == list(range(INSTANCE_LOG_ENTRIES_MAX))
    telemetry.log("repair_failed", number=0)
    assert telemetry.take() == ({"repair_failed": 1}, [("repair_failed", {"number": 0})])


def test_next_fetch_of_an_instance_needs_no_get_for_a_moment() -> None:
    clock = SteppedClock()
    instance = memory_instance(clock=clock)
    topic = new_topic(instance)
    send(instance, topic, "a")
    counts: Counter[str] = Counter()
    reader = counted_instance(instance, counts)
    for _ in range(10):
        assert read_all(reader, topic) == [(0, "a")]
    assert counts["zone.get"] == 1
    send(instance, topic, "b")
    assert read_all(reader, topic) == [(0, "a"), (1, "b")]
    assert counts["zone.get"] == 2
    clock.time_ms += INSTANCE_READS_MS
    assert read_all(reader, topic) == [(0, "a"), (1, "b")]
    assert counts["zone.get"] == 4


def test_reads_that_an_instance_keeps_are_bounded_and_the_oldest_go() -> None:
    instance = memory_instance()
    topic = new_topic(instance)
    for number in range(3):
        send(instance, topic, str(number))
    refs = [*head_of(instance, topic).located_tail()]
    reads = RecentReads(instance.clock)
    for each in refs:
        reads.keep({each: memoryview(bytes(INSTANCE_READS_BYTES_MAX // 2))[:1]})
    assert [*reads.find(refs)] == refs[1:]
    reads.keep({refs[0]: memoryview(bytes(INSTANCE_READS_BYTES_MAX + 1))})
    assert not reads.find(refs)
