"""Readers that wait: a fetch arms the heads, and the append that follows wakes them (docs/adr/0025)."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import Offset, PartitionKey
from penstock_core.limits import TAIL_ROLL_REFS, WAKE_UP_MS_MAX, WAKE_UP_PARTITIONS_MAX
from penstock_core.log.wake_up import WakeUpMessage
from penstock_core.outcomes import Outcomes
from penstock_core.records.codec import NewRecord, encode
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.groups.heartbeat import still_armed
from penstock_service.instance.instance import Instance
from penstock_service.records import scan
from penstock_service.records.fetch import FetchEntry, FetchResult, fetch
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import delete_topic
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Counted,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    head_of,
    key_of,
    new_topic,
    patient_instance,
    send,
    with_stores,
)


@pytest.fixture
def wake_ups() -> MemoryWakeUps:
    return MemoryWakeUps()


@pytest.fixture
def instance(clock: SteppedClock, wake_ups: MemoryWakeUps) -> Instance:
    return with_stores(patient_instance(clock), wake_ups=wake_ups)


def wait_for(instance: Instance, topic: str, *offsets: int, wait_ms: int = 0) -> Outcomes[FetchResult]:
    """A fetch that arms: partition 0 from the first offset on, partition 1 from the second, and so on."""
    entries = [
        FetchEntry(topic=topic, partition=partition, offset=offset, max_bytes=1_000)
        for partition, offset in enumerate(offsets)
    ]
    return fetch(instance, entries, max_bytes=1_000, min_bytes=1, wait_ms=wait_ms, must_arm=True)


def armed(results: Outcomes[FetchResult]) -> list[bool]:
    return [each.is_armed for each in results.all_ok()]


def events(wake_ups: MemoryWakeUps) -> list[Any]:
    return [json.loads(each.event) for each in wake_ups.messages]


def test_append_wakes_the_reader_that_has_armed_once(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance, partitions=2)
    send(instance, topic, "before")
    assert armed(wait_for(instance, topic, 1, 0)) == [True, True]
    assert wake_ups.messages == []
    send(instance, topic, "a", "b")
    send(instance, topic, "nobody waits for it any more")
    key = key_of(instance, topic)
    assert wake_ups.messages[0].channel == f"/wake/{key.topic_id}/0"
    assert events(wake_ups) == [{"topic_id": key.topic_id, "partition": 0, "next_offset": 3}]


def test_append_that_nobody_waits_for_costs_no_call_and_publishes_nothing(
    instance: Instance, wake_ups: MemoryWakeUps
) -> None:
    topic = new_topic(instance)
    send(instance, topic, "warm")
    counts: Counter[str] = Counter()
    counting = another_instance(counted_instance(instance, counts), wake_ups=Counted(wake_ups, "wake_ups", counts))
    send(counting, topic, "cold")
    counts.clear()
    send(counting, topic, "plain")
    assert counts == {"log.append": 1, "zone.put": 3}


def test_many_readers_share_one_waiter_and_one_update(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance)
    counts: Counter[str] = Counter()
    counting = counted_instance(instance, counts)
    for _ in range(5):
        assert armed(wait_for(counting, topic, 0)) == [True]
    assert counts["log.arm"] == 1
    send(instance, topic, "a")
    assert len(wake_ups.messages) == 1


def test_fetch_with_records_arms_nothing(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    send(instance, topic, "a", partition=1)
    assert armed(wait_for(instance, topic, 0, 0)) == [False, False]
    assert head_of(instance, topic).waiter_ms is None
    assert armed(wait_for(instance, topic, 0, 1)) == [True, True]


def test_fetch_reads_the_record_that_came_between_its_look_and_its_update(
    instance: Instance, wake_ups: MemoryWakeUps
) -> None:
    topic = new_topic(instance, partitions=2)

    def late(original: Any, key: PartitionKey, *rest: Any) -> Any:
        if key.partition == 0:
            send(instance, topic, "a")
        return original(key, *rest)

    slow = another_instance(instance, log=Intercepted(instance.stores.log, arm=late))
    results = wait_for(slow, topic, 0, 0)
    assert armed(results) == [False, True]
    assert [each.next_offset for each in results.all_ok()] == [1, 0]
    assert wake_ups.messages == [], "the reader has the record"


@pytest.mark.parametrize(
    ("policy", "is_armed"), [({"type": ["order"]}, [True, True]), ({"type": ["x"]}, [False, False])]
)
def test_fetch_with_a_filter_arms_where_nothing_is_left_behind_what_does_not_match(
    instance: Instance, policy: dict[str, Any], is_armed: list[bool]
) -> None:
    topic = new_topic(instance, partitions=2)
    data = encode([NewRecord(1_000, None, b"v", (("type", b"x"),))])
    produce(instance, [entry(topic, 0, data)], Acks.QUORUM).all_ok()
    entries = [
        FetchEntry(topic=topic, partition=number, offset=0, max_bytes=1_000, filter=parse_filter(policy))
        for number in (0, 1)
    ]
    results = fetch(instance, entries, max_bytes=1_000, min_bytes=1, wait_ms=0, must_arm=True)
    assert [each.next_offset for each in results.all_ok()] == [1, 0]
    assert armed(results) == is_armed


def test_fetch_with_a_filter_arms_nothing_before_its_end(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(instance)
    for _ in range(3):
        send(instance, topic, "v")
    bounds = scan._Bounds
    monkeypatch.setattr(scan, "_Bounds", lambda **given: bounds(**given, refs=1))
    wanted = FetchEntry(topic=topic, partition=0, offset=0, max_bytes=1_000, filter=parse_filter({"type": ["x"]}))
    results = fetch(instance, [wanted], max_bytes=1_000, min_bytes=1, wait_ms=0, must_arm=True)
    assert (results.all_ok()[0].next_offset, armed(results)) == (1, [False])


def test_fetch_waits_first_and_arms_at_the_end(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    clock.on_sleep = lambda: _unarmed(instance, topic)
    started_ms = clock.time_ms
    assert armed(wait_for(instance, topic, 0, wait_ms=1_000)) == [True]
    assert clock.time_ms - started_ms == 1_000
    assert head_of(instance, topic).waiter_ms == clock.now_ms()


def _unarmed(instance: Instance, topic: str) -> None:
    assert head_of(instance, topic).waiter_ms is None


def test_fetch_arms_the_others_when_one_partition_is_wrong(instance: Instance) -> None:
    topic = new_topic(instance)
    good, missing = wait_for(instance, topic, 0, 0)
    assert isinstance(good, FetchResult)
    assert good.is_armed
    assert isinstance(missing, PenstockError)


def test_fetch_fails_for_the_partition_whose_update_is_refused(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)

    def refused(original: Any, key: PartitionKey, *rest: Any) -> Any:
        if key.partition == 0:
            raise UNAVAILABLE
        return original(key, *rest)

    failed, good = wait_for(another_instance(instance, log=Intercepted(instance.stores.log, arm=refused)), topic, 0, 0)
    assert failed == UNAVAILABLE
    assert isinstance(good, FetchResult)
    assert good.is_armed


def test_fetch_arms_nothing_where_the_stage_has_no_wake_ups(clock: SteppedClock) -> None:
    instance = patient_instance(clock)
    topic = new_topic(instance)
    assert armed(wait_for(instance, topic, 0)) == [False]
    assert head_of(instance, topic).waiter_ms is None


def test_append_wakes_blindly_when_its_answer_is_lost(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance, partitions=2)
    wait_for(instance, topic, 0, 0)

    def lost(original: Any, key: PartitionKey, *rest: Any) -> Any:
        done = original(key, *rest)
        if key.partition == 0:
            raise LOST_ANSWER
        return done

    failing = another_instance(instance, log=Intercepted(instance.stores.log, append=lost))
    produce(failing, [entry(topic, partition, batch("v")) for partition in (0, 1)], Acks.QUORUM)
    assert {each["partition"]: each["next_offset"] for each in events(wake_ups)} == {0: None, 1: 1}


def test_append_that_surely_failed_wakes_nobody(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance)
    wait_for(instance, topic, 0)

    def refused(_original: Any, *_arguments: Any) -> Any:
        raise UNAVAILABLE

    failing = another_instance(instance, log=Intercepted(instance.stores.log, append=refused))
    produce(failing, [entry(topic, 0, batch("v"))], Acks.QUORUM)
    assert wake_ups.messages == []
    assert head_of(instance, topic).waiter_ms is not None


def test_many_partitions_of_one_append_share_a_message(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    count = WAKE_UP_PARTITIONS_MAX + 1
    topic = new_topic(instance, partitions=count)
    wait_for(instance, topic, *[0] * count)
    produce(instance, [entry(topic, partition, batch("v")) for partition in range(count)], Acks.QUORUM)
    [event] = events(wake_ups)
    assert event["partitions"] == {str(partition): 1 for partition in range(count)}


class LateExecutor:
    """An executor on which the calls of one lane do not end before `first_of` gives up."""

    def __init__(self, executor: Any, late_lane: str) -> None:
        self._executor = executor
        self._late_lane = late_lane
        self.graces_ms: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def first_of(self, function: Any, items: Sequence[Any], is_enough: Any, grace_ms: int, **options: Any) -> Any:
        lanes = options.get("lanes", ())
        if self._late_lane not in lanes:
            return self._executor.first_of(function, items, is_enough, grace_ms, **options)
        self.graces_ms.append(grace_ms)
        results = [None if lane == self._late_lane else function(item) for lane, item in zip(lanes, items, strict=True)]
        assert is_enough(results)
        return results


def test_append_gives_up_a_slow_wake_up_and_is_answered(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance)
    wait_for(instance, topic, 0)
    executor = LateExecutor(instance.executor, "wake-ups")
    impatient = another_instance(instance, executor=executor)
    send(impatient, topic, "v")
    assert executor.graces_ms == [WAKE_UP_MS_MAX]
    counts, entries = impatient.telemetry.take()
    assert counts["wake_ups_failed"] == 1
    assert "50 ms" in entries[0][1]["error"]


def test_append_is_answered_when_its_wake_up_fails(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance)
    wait_for(instance, topic, 0)

    def refuse(_original: Any, message: WakeUpMessage) -> None:
        raise UNAVAILABLE

    failing = another_instance(instance, wake_ups=Intercepted(wake_ups, publish=refuse))
    send(failing, topic, "v")
    assert failing.telemetry.take()[0]["wake_ups_failed"] == 1
    assert wake_ups.messages == []


def test_append_rolls_beside_its_wake_up(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    topic = new_topic(instance)
    for number in range(TAIL_ROLL_REFS - 1):
        send(instance, topic, str(number))
    wait_for(instance, topic, TAIL_ROLL_REFS - 1)
    send(instance, topic, "the last of a page")
    assert len(wake_ups.messages) == 1
    head = head_of(instance, topic)
    assert (head.tail_base, len(head.tail)) == (TAIL_ROLL_REFS, 0)


def watched(instance: Instance, topic: str, *offsets: int) -> dict[PartitionKey, Offset]:
    return {key_of(instance, topic, partition): Offset(offset) for partition, offset in enumerate(offsets)}


def test_look_finds_what_is_armed_at_the_readers_position(instance: Instance) -> None:
    topic = new_topic(instance, partitions=3)
    wait_for(instance, topic, 0, 0)
    send(instance, topic, "a")
    send(instance, topic, "b", partition=1)
    wait_for(instance, topic, 1)  # another reader has read all of partition 0
    looked = still_armed(instance, watched(instance, topic, 1, 1, 0))
    assert looked == {key_of(instance, topic, 0)}  # nothing is armed in 1 and 2
    assert still_armed(instance, watched(instance, topic, 0)) == frozenset()  # the other reader's waiter


def test_look_reads_the_heads_once_and_writes_nothing(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    wait_for(instance, topic, 0, 0)
    counts: Counter[str] = Counter()
    counting = counted_instance(instance, counts)
    assert len(still_armed(counting, watched(instance, topic, 0, 0))) == 2
    assert still_armed(counting, {}) == frozenset()
    assert counts == {"log.heads": 1}


def test_look_finds_nothing_armed_in_a_deleted_topic_or_without_wake_ups(
    instance: Instance, clock: SteppedClock
) -> None:
    topic = new_topic(instance)
    wait_for(instance, topic, 0)
    keys = watched(instance, topic, 0)
    without = patient_instance(clock)
    assert still_armed(without, watched(without, new_topic(without), 0)) == frozenset()
    delete_topic(instance, topic)
    assert still_armed(instance, keys) == frozenset()


def test_fetch_tells_how_many_partitions_the_topic_has(instance: Instance) -> None:
    topic = new_topic(instance, partitions=3)
    [result] = wait_for(instance, topic, 0).all_ok()
    assert result.topic_partitions == 3
