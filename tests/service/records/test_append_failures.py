"""An append that is cut short anywhere is all or nothing, its answer is true, and a retry works."""

from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey
from penstock_core.limits import LONG_TAIL_ROLL_REFS, ROLL_PAGES_MAX, TAIL_ROLL_REFS
from penstock_core.log.index import Head
from penstock_core.log.ref import Ref
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.ports.segments import SegmentStore
from penstock_service.records.produce import produce
from penstock_service.topics.alter_topic import delete_topic
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    Killed,
    another_instance,
    appended,
    batch,
    entry,
    head_of,
    new_topic,
    read_all,
    send,
    with_stores,
)


def _raise(error: BaseException) -> Any:
    def hook(_original: Any, *_arguments: Any) -> None:
        raise error

    return hook


def test_append_leaves_nothing_visible_when_killed_before_the_put(instance: Instance) -> None:
    topic = new_topic(instance)
    zones: list[SegmentStore] = [Intercepted(zone, put=_raise(Killed())) for zone in instance.stores.zones]
    with pytest.raises(Killed):
        send(with_stores(instance, zones=zones), topic, "lost")
    assert all(not zone.segments for zone in instance.stores.zones)  # type: ignore[attr-defined]
    assert read_all(instance, topic) == []
    assert send(instance, topic, "again") == appended(0, 1)


def test_append_leaves_nothing_visible_when_killed_between_put_and_update(instance: Instance) -> None:
    topic = new_topic(instance)
    send(instance, topic, "before")
    dying = another_instance(instance, log=Intercepted(instance.stores.log, append=_raise(Killed())))
    with pytest.raises(Killed):
        send(dying, topic, "lost")
    assert len(instance.stores.zones[0].segments) == 2, "the object is there, and no ref names it"  # type: ignore[attr-defined]
    assert read_all(instance, topic) == [(0, "before")]
    assert send(instance, topic, "again") == appended(1, 2)
    assert read_all(instance, topic) == [(0, "before"), (1, "again")]


@pytest.mark.parametrize("step", ["put_page", "shorten_tail"])
def test_append_is_whole_when_killed_in_the_roll(instance: Instance, step: str) -> None:
    topic = new_topic(instance)
    for number in range(TAIL_ROLL_REFS - 1):
        send(instance, topic, str(number))
    dying = another_instance(instance, log=Intercepted(instance.stores.log, **{step: _raise(Killed())}))
    with pytest.raises(Killed):
        send(dying, topic, str(TAIL_ROLL_REFS - 1))
    assert read_all(instance, topic) == [(number, str(number)) for number in range(TAIL_ROLL_REFS)]


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
    instance: Instance, is_applied: bool
) -> None:
    topic = new_topic(instance, partitions=3)
    hook = _failing_for(1, LOST_ANSWER, is_applied=is_applied)
    faulty = another_instance(instance, log=Intercepted(instance.stores.log, append=hook))
    left, middle, right = produce(faulty, [entry(topic, number, batch("x")) for number in range(3)], Acks.QUORUM)
    assert left == right == appended(0, 1)
    assert isinstance(middle, PenstockError)
    assert (middle.code, middle.maybe_applied) == (ErrorCode.STORAGE_UNAVAILABLE, True)
    assert head_of(instance, topic, 1).next_offset == int(is_applied)


def test_append_fails_its_partition_only_when_the_update_is_refused(instance: Instance) -> None:
    topic = new_topic(instance, partitions=2)
    throttled = PenstockError(ErrorCode.THROTTLED, "slow down")
    hook = _failing_for(0, throttled, is_applied=False)
    faulty = another_instance(instance, log=Intercepted(instance.stores.log, append=hook))
    refused, taken = produce(faulty, [entry(topic, number, batch("x")) for number in range(2)], Acks.QUORUM)
    assert refused is throttled
    assert taken == appended(0, 1)
    assert read_all(instance, topic, 0) == []
    assert send(instance, topic, "again") == appended(0, 1)


def test_append_tells_of_a_second_attempt_that_fails_only_those_it_was_for(instance: Instance) -> None:
    """One topic was deleted and created again, so its append is tried once more; by then the zones are gone."""
    new_topic(instance, "kept")
    new_topic(instance, "changed")
    stale = another_instance(instance)
    send(stale, "changed", "old")
    delete_topic(instance, "changed")
    new_topic(instance, "changed")
    puts: list[object] = []

    def put(original: Any, *arguments: Any) -> None:
        puts.append(arguments[0])
        if len(set(puts)) > 1:
            raise UNAVAILABLE
        original(*arguments)

    faulty = with_stores(stale, zones=[Intercepted(zone, put=put) for zone in instance.stores.zones])
    kept, changed = produce(faulty, [entry("kept", 0, batch("x")), entry("changed", 0, batch("y"))], Acks.QUORUM)
    assert kept == appended(0, 1)
    assert isinstance(changed, PenstockError)
    assert changed.code is ErrorCode.NOT_ENOUGH_ZONES
    assert read_all(instance, "kept") == [(0, "x")]
    assert read_all(instance, "changed") == []


@pytest.mark.parametrize("step", ["put_page", "shorten_tail"])
@pytest.mark.parametrize("refs", [1, 20, 100, 300])
def test_append_loses_nothing_and_the_head_shrinks_again_when_rolls_fail(
    instance: Instance, step: str, refs: int
) -> None:
    topic = new_topic(instance)
    is_broken = True

    def broken(original: Any, *arguments: Any) -> Any:
        if is_broken:
            raise UNAVAILABLE
        return original(*arguments)

    faulty = another_instance(instance, log=Intercepted(instance.stores.log, **{step: broken}))
    longest = refs + TAIL_ROLL_REFS
    for number in range(longest):
        send(faulty, topic, str(number))
    assert len(head_of(instance, topic).tail) == longest
    assert read_all(instance, topic) == [(number, str(number)) for number in range(longest)]
    is_broken = False
    turns = longest // (ROLL_PAGES_MAX * TAIL_ROLL_REFS) + 1
    count = longest + turns * max(LONG_TAIL_ROLL_REFS, TAIL_ROLL_REFS if turns == 1 else 0)
    for number in range(longest, count):
        send(faulty, topic, str(number))
    assert len(head_of(instance, topic).tail) < 2 * TAIL_ROLL_REFS
    assert read_all(instance, topic) == [(number, str(number)) for number in range(count)]


def test_failed_roll_is_told(instance: Instance) -> None:
    topic = new_topic(instance)

    def broken(*_: Any) -> Any:
        raise UNAVAILABLE

    faulty = another_instance(instance, log=Intercepted(instance.stores.log, put_page=broken))
    for number in range(TAIL_ROLL_REFS):
        send(faulty, topic, str(number))
    counts, entries = faulty.telemetry.take()
    assert counts["rolls_failed"] == 1
    assert [name for name, _ in entries] == ["rolls_failed"]
