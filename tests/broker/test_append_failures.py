"""An append that is cut short anywhere: all or nothing, told truthfully, and the retry works."""

from dataclasses import replace
from typing import Any

import pytest

from penstock_broker.append import Appended
from penstock_broker.broker import Broker
from penstock_broker.delete_topic import delete_topic
from penstock_broker.ports import SegmentStore
from penstock_broker.produce import produce
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.index import Head, Roll
from penstock_core.keys import PartitionKey
from penstock_core.limits import PAGE_REFS_MAX, TAIL_ROLL_REFS
from penstock_core.quorum import Acks
from penstock_core.ref import Ref
from tests.broker.setting import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    another_instance,
    batch,
    entry,
    head_of,
    new_topic,
    read_all,
    send,
)


def _raise(error: BaseException) -> Any:
    def hook(_original: Any, *_arguments: Any) -> None:
        raise error

    return hook


def test_append_leaves_nothing_visible_when_killed_before_the_put(broker: Broker) -> None:
    topic = new_topic(broker)
    zones: list[SegmentStore] = [Intercepted(zone, put=_raise(Killed())) for zone in broker.zones]  # type: ignore[misc]
    with pytest.raises(Killed):
        send(replace(broker, zones=zones), topic, "lost")
    assert all(not zone.segments for zone in broker.zones)  # type: ignore[attr-defined]
    assert read_all(broker, topic) == []
    assert send(broker, topic, "again") == Appended(base_offset=0, next_offset=1)


def test_append_leaves_nothing_visible_when_killed_between_put_and_update(broker: Broker) -> None:
    topic = new_topic(broker)
    send(broker, topic, "before")
    dying = another_instance(broker, log=Intercepted(broker.log, append=_raise(Killed())))
    with pytest.raises(Killed):
        send(dying, topic, "lost")
    assert len(broker.zones[0].segments) == 2, "the object is there, and no ref names it"  # type: ignore[attr-defined]
    assert read_all(broker, topic) == [(0, "before")]
    assert send(broker, topic, "again") == Appended(base_offset=1, next_offset=2)
    assert read_all(broker, topic) == [(0, "before"), (1, "again")]


def test_append_is_whole_when_killed_before_the_roll(broker: Broker) -> None:
    topic = new_topic(broker)
    for number in range(TAIL_ROLL_REFS - 1):
        send(broker, topic, str(number))
    dying = another_instance(broker, log=Intercepted(broker.log, roll=_raise(Killed())))
    with pytest.raises(Killed):
        send(dying, topic, str(TAIL_ROLL_REFS - 1))
    assert read_all(broker, topic) == [(number, str(number)) for number in range(TAIL_ROLL_REFS)]


def _failing_for(partition: int, error: PenstockError, *, is_applied: bool) -> Any:
    def append(original: Any, key: PartitionKey, ref: Ref, unconfirmed_zones: int) -> Head:
        if key.partition != partition:
            head: Head = original(key, ref, unconfirmed_zones)
            return head
        if is_applied:
            original(key, ref, unconfirmed_zones)
        raise error

    return append


@pytest.mark.parametrize("is_applied", [False, True])
def test_append_is_maybe_applied_for_its_partition_only_when_the_answer_is_lost(
    broker: Broker, is_applied: bool
) -> None:
    topic = new_topic(broker, partitions=3)
    hook = _failing_for(1, LOST_ANSWER, is_applied=is_applied)
    faulty = another_instance(broker, log=Intercepted(broker.log, append=hook))
    left, middle, right = produce(faulty, [entry(topic, number, batch("x")) for number in range(3)], Acks.QUORUM)
    assert left == right == Appended(base_offset=0, next_offset=1)
    assert isinstance(middle, PenstockError)
    assert (middle.code, middle.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    assert head_of(broker, topic, 1).next_offset == int(is_applied)


def test_append_fails_its_partition_only_when_the_update_is_refused(broker: Broker) -> None:
    topic = new_topic(broker, partitions=2)
    throttled = PenstockError(ErrorCode.THROTTLED, "slow down")
    hook = _failing_for(0, throttled, is_applied=False)
    faulty = another_instance(broker, log=Intercepted(broker.log, append=hook))
    refused, taken = produce(faulty, [entry(topic, number, batch("x")) for number in range(2)], Acks.QUORUM)
    assert refused is throttled
    assert taken == Appended(base_offset=0, next_offset=1)
    assert read_all(broker, topic, 0) == []
    assert send(broker, topic, "again") == Appended(base_offset=0, next_offset=1)


def test_append_tells_of_a_second_attempt_that_fails_only_those_it_was_for(broker: Broker) -> None:
    """One topic was deleted and created again, so its append is tried once more; by then the zones are gone."""
    new_topic(broker, "kept")
    new_topic(broker, "changed")
    stale = another_instance(broker)
    send(stale, "changed", "old")
    delete_topic(broker, "changed")
    new_topic(broker, "changed")
    puts: list[object] = []

    def put(original: Any, *arguments: Any) -> None:
        puts.append(arguments[0])
        if len(set(puts)) > 1:
            raise UNAVAILABLE
        original(*arguments)

    faulty = replace(stale, zones=[Intercepted(zone, put=put) for zone in broker.zones])  # type: ignore[misc]
    kept, changed = produce(faulty, [entry("kept", 0, batch("x")), entry("changed", 0, batch("y"))], Acks.QUORUM)
    assert kept == Appended(base_offset=0, next_offset=1)
    assert isinstance(changed, PenstockError)
    assert changed.code is ErrorCode.NOT_ENOUGH_ZONES
    assert read_all(broker, "kept") == [(0, "x")]
    assert read_all(broker, "changed") == []


def _refusing_rolls(fates: list[bool]) -> Any:
    """Rolls succeed or not as told, then always; a refusal is False or an error, in turn."""

    def roll(original: Any, key: PartitionKey, wanted: Roll) -> bool:
        if fates and not fates.pop(0):
            if len(fates) % 2:
                raise UNAVAILABLE
            return False
        return bool(original(key, wanted))

    return roll


@pytest.mark.parametrize("failures", [1, 2, 5, 20])
def test_append_loses_nothing_and_the_head_shrinks_again_when_rolls_fail(broker: Broker, failures: int) -> None:
    topic = new_topic(broker)
    faulty = another_instance(broker, log=Intercepted(broker.log, roll=_refusing_rolls([False] * failures)))
    longest = failures * TAIL_ROLL_REFS
    for number in range(longest):
        send(faulty, topic, str(number))
    assert len(head_of(broker, topic).tail) == longest
    assert read_all(broker, topic) == [(number, str(number)) for number in range(longest)]
    rolls = longest // PAGE_REFS_MAX + 1
    count = longest + rolls * TAIL_ROLL_REFS
    for number in range(longest, count):
        send(faulty, topic, str(number))
    assert len(head_of(broker, topic).tail) < TAIL_ROLL_REFS
    assert read_all(broker, topic) == [(number, str(number)) for number in range(count)]
