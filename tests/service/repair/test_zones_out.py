"""Zones that fail, hang and flap: who waits for them, for how long, and what the states say."""

from collections import Counter
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import PartitionKey, ZoneName
from penstock_core.log.index import Head
from penstock_core.zones.zone_state import REMEMBERED_MS_MAX, Acks, ZoneStatus
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.segments.move_zone import move_zone_by_operator
from tests.service.repair.zone_statuses import IN, OUT, TAKEN, UP, Hanging, append_refused, statuses
from tests.support.service import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_instance,
    entry,
    head_of,
    new_topic,
    read_all,
    send,
    with_stores,
    zone_of,
)


@pytest.mark.parametrize("dead", range(3))
def test_append_by_all_comes_through_with_the_second_failure_of_a_dead_zone(instance: Instance, dead: int) -> None:
    topic = new_topic(instance)
    zone_of(instance, dead).is_down = True
    append_refused(instance, topic, Acks.ALL)
    assert statuses(instance) == [IN, IN, IN]
    send(instance, topic, "x", acks=Acks.ALL)
    assert statuses(instance) == [OUT if zone == dead else IN for zone in range(3)]
    counts, told = instance.telemetry.take()
    assert counts["zone_out_of_sync"] == 1
    [(name, facts)] = told
    assert (name, facts["zone"], facts["by"]) == ("zone_out_of_sync", "abc"[dead], "appender")


def test_zone_gets_no_put_and_no_repair_when_it_is_out(instance: Instance) -> None:
    topic = new_topic(instance)
    zone_of(instance, 2).is_down = True
    send(instance, topic, "a")
    send(instance, topic, "b")
    assert statuses(instance) == [IN, IN, OUT]
    zone_of(instance, 2).is_down = False
    noted: list[int] = []

    def append(original: Any, key: PartitionKey, ref: Any, unconfirmed: int) -> Head:
        noted.append(unconfirmed)
        head: Head = original(key, ref, unconfirmed)
        return head

    counts: Counter[str] = Counter()
    another = counted_instance(with_stores(instance, log=Intercepted(instance.stores.log, append=append)), counts)
    send(another, topic, "c", acks=Acks.ALL)
    assert counts["zone.put"] == 2
    assert noted == [0]
    assert [ref.zones for ref in head_of(instance, topic).tail] == [0b011] * 3
    assert zone_of(instance, 2).segments == {}


def test_zone_stays_in_sync_when_one_put_fails_between_successes(instance: Instance) -> None:
    topic = new_topic(instance)
    for _ in range(5):
        zone_of(instance, 1).is_down = True
        send(instance, topic, "x")
        zone_of(instance, 1).is_down = False
        send(instance, topic, "x")
    assert statuses(instance) == [IN, IN, IN]


def test_failures_of_two_instances_are_not_added_up(instance: Instance) -> None:
    topic = new_topic(instance)
    zone_of(instance, 1).is_down = True
    for _ in range(3):
        send(another_instance(instance), topic, "x")
    assert statuses(instance) == [IN, IN, IN]


def test_instance_that_remembers_older_states_succeeds_as_soon_as_a_zone_is_out(instance: Instance) -> None:
    topic = new_topic(instance)
    other = another_instance(instance)
    send(other, topic, "remembers")
    zone_of(instance, 0).is_down = True
    append_refused(instance, topic, Acks.ALL)
    send(instance, topic, "moves it out", acks=Acks.ALL)
    send(other, topic, "its first failure", acks=Acks.ALL)
    assert other.stores.zone_states.get().version == 1


def test_appenders_leave_a_majority_in_sync_however_many_zones_fail(instance: Instance) -> None:
    topic = new_topic(instance)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = zone_of(instance, 2).is_down = True
    instances = [another_instance(instance) for _ in range(4)]
    for _ in range(4):
        for another in instances:
            append_refused(another, topic, Acks.QUORUM)
    assert sorted(status.value for status in statuses(instance)) == ["in_sync", "in_sync", "out_of_sync"]
    for zone in range(3):
        zone_of(instance, zone).is_down = False
    assert send(instances[0], topic, "x").base_offset == 0


def test_appenders_that_blame_different_zones_at_once_take_out_one(instance: Instance) -> None:
    """Both have read that all are in sync; the version lets only the first change it."""
    topic = new_topic(instance)
    blames_b = another_instance(instance, zones=_failing(instance, 1))

    def change(original: Any, old: Any, new: Any) -> None:
        if instance.stores.zone_states.get().version == 0:
            for _ in range(2):
                send(blames_b, topic, "x")
        original(old, new)

    blames_a = another_instance(
        instance, zones=_failing(instance, 0), zone_states=Intercepted(instance.stores.zone_states, change=change)
    )
    for _ in range(2):
        send(blames_a, topic, "y")
    assert statuses(instance) == [IN, OUT, IN]


def _failing(instance: Instance, index: int) -> list[Any]:
    def put(_original: Any, *_arguments: Any) -> None:
        raise UNAVAILABLE

    zones: list[Any] = list(instance.stores.zones)
    zones[index] = Intercepted(zones[index], put=put)
    return zones


@pytest.mark.parametrize("method", ["get", "change"])
@pytest.mark.parametrize("error", [UNAVAILABLE, LOST_ANSWER])
def test_append_by_quorum_goes_on_when_states_cannot_be_read_or_changed(
    instance: Instance, method: str, error: PenstockError
) -> None:
    topic = new_topic(instance)
    failing = False

    def fail(original: Any, *arguments: Any) -> Any:
        if failing:
            raise error
        return original(*arguments)

    another = another_instance(instance, zone_states=Intercepted(instance.stores.zone_states, **{method: fail}))
    send(another, topic, "warm")
    failing = True
    zone_of(instance, 0).is_down = True
    for number in range(4):
        assert send(another, topic, str(number)).base_offset == number + 1
    failing = False
    for _ in range(2):
        send(another, topic, "x")
    assert statuses(instance) == [OUT, IN, IN]


def test_change_whose_answer_was_lost_is_found_made(instance: Instance) -> None:
    topic = new_topic(instance)

    def change(original: Any, *arguments: Any) -> None:
        original(*arguments)
        raise LOST_ANSWER

    another = another_instance(instance, zone_states=Intercepted(instance.stores.zone_states, change=change))
    zone_of(instance, 0).is_down = True
    append_refused(another, topic, Acks.ALL)
    send(another, topic, "x", acks=Acks.ALL)
    assert instance.stores.zone_states.get().version == 1


def test_states_are_read_once_in_ten_seconds_when_nothing_fails(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)
    counts: Counter[str] = Counter()
    another = counted_instance(instance, counts)
    send(another, topic, "x")
    for _ in range(5):
        send(another, topic, "x", acks=Acks.ALL)
        clock.time_ms += (REMEMBERED_MS_MAX - 1) / 5
    assert counts["zone_states.get"] == 1
    clock.time_ms += 1
    send(another, topic, "x")
    assert counts["zone_states.get"] == 2


def test_states_are_not_remembered_longer_when_the_monotonic_clock_stood_still(
    instance: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.zone_cache.get()
    move_zone_by_operator(another_instance(instance), "b", TAKEN, "work on it")
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 1_000_000.0)
    assert instance.zone_cache.get().version == 0
    clock.time_ms += REMEMBERED_MS_MAX
    assert instance.zone_cache.get().version == 1


@pytest.mark.parametrize("hangs", range(3))
def test_append_by_all_fails_when_its_time_is_up_and_the_second_moves_the_zone_out(
    instance: Instance, hangs: int
) -> None:
    topic = new_topic(instance)
    hanging = Hanging(instance, hangs)
    # Long enough for the two that answer, whatever else this machine does.
    another = another_instance(instance, zones=hanging.zones, put_timeout_ms=500, straggler_grace_ms=0)
    try:
        assert "no answer" in append_refused(another, topic, Acks.ALL).message
        send(another, topic, "x", acks=Acks.ALL)
        assert statuses(instance)[hangs] is OUT
    finally:
        hanging.answer.set()
    assert read_all(instance, topic) == [(0, "x")]


def test_put_that_its_request_gave_up_counts_once(instance: Instance) -> None:
    watch = instance.zone_health.begin_put(ZoneName("a"))
    watch.end(is_failed=True)
    watch.end(is_failed=True)
    assert not instance.zone_health.is_failing(ZoneName("a"))
    instance.zone_health.begin_put(ZoneName("a")).end(is_failed=True)
    assert instance.zone_health.is_failing(ZoneName("a"))
    instance.zone_health.begin_put(ZoneName("a")).end(is_failed=False)
    assert not instance.zone_health.is_failing(ZoneName("a"))


def test_zone_that_answers_too_late_counts_as_failed(instance: Instance, clock: SteppedClock) -> None:
    topic = new_topic(instance)

    def put(original: Any, *arguments: Any) -> None:
        clock.time_ms += 4_000
        original(*arguments)

    zones: list[Any] = [Intercepted(instance.stores.zones[0], put=put), *instance.stores.zones[1:]]
    slow = another_instance(instance, zones=zones, put_timeout_ms=4_000)
    for _ in range(2):
        send(slow, topic, "x")
    assert slow.zone_health.is_failing(ZoneName("a"))


# min_insync_zones


def test_append_is_refused_before_anything_is_put_when_too_few_zones_are_in_sync(instance: Instance) -> None:
    strict, usual = new_topic(instance, "strict", min_insync_zones=3), new_topic(instance, "usual")
    move_zone_by_operator(instance, "c", TAKEN, "work on it")
    counts: Counter[str] = Counter()
    another = counted_instance(instance, counts)
    for acks in Acks:
        assert "min_insync_zones=3" in append_refused(another, strict, acks).message
    assert counts["zone.put"] == 0
    assert counts["log.append"] == 0
    left, right = produce(another, [entry(strict, 0, batch("x")), entry(usual, 0, batch("y"))], Acks.ALL)
    assert isinstance(left, PenstockError)
    assert left.code is ErrorCode.NOT_ENOUGH_ZONES
    assert not isinstance(right, PenstockError)
    assert read_all(instance, strict) == []
    assert read_all(instance, usual) == [(0, "y")]


def test_append_is_refused_when_its_own_failures_leave_too_few_in_sync(instance: Instance) -> None:
    topic = new_topic(instance, min_insync_zones=3)
    zone_of(instance, 2).is_down = True
    send(instance, topic, "two of three by quorum")
    assert "2 of 3 zones are in sync" in append_refused(instance, topic, Acks.QUORUM).message
    assert read_all(instance, topic) == [(0, "two of three by quorum")]


@pytest.mark.parametrize("wanted", [0, 4, 9, "2", True])
def test_min_insync_zones_is_from_one_to_the_number_of_zones(instance: Instance, wanted: Any) -> None:
    with pytest.raises(PenstockError) as caught:
        new_topic(instance, min_insync_zones=wanted)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    for good in (1, 2, 3):
        new_topic(instance, f"t{good}", min_insync_zones=good)


# Operators


def test_operator_takes_a_zone_out_and_back(instance: Instance) -> None:
    taken = move_zone_by_operator(instance, "b", TAKEN, "disk work")
    assert (taken.status, taken.version, taken.reason) == (TAKEN, 1, "disk work")
    assert move_zone_by_operator(instance, "b", TAKEN, "again") == taken
    back = move_zone_by_operator(instance, "b", UP, "done")
    assert (back.status, back.version) == (UP, 2)


@pytest.mark.parametrize(
    ("zone", "to", "code"),
    [
        ("d", TAKEN, ErrorCode.UNKNOWN_ZONE),
        ("a", UP, ErrorCode.ZONE_STATE_CONFLICT),
        ("c", UP, ErrorCode.ZONE_STATE_CONFLICT),
        ("a", TAKEN, ErrorCode.ZONE_STATE_CONFLICT),
    ],
)
def test_operator_is_refused_when_a_move_cannot_be(
    instance: Instance, zone: str, to: ZoneStatus, code: ErrorCode
) -> None:
    topic = new_topic(instance)
    zone_of(instance, 2).is_down = True
    for _ in range(2):
        send(instance, topic, "x")
    with pytest.raises(PenstockError) as caught:
        move_zone_by_operator(instance, zone, to, "")
    assert caught.value.code is code
    assert statuses(instance) == [IN, IN, OUT]


def test_reason_of_an_operator_is_bounded(instance: Instance) -> None:
    with pytest.raises(PenstockError) as caught:
        move_zone_by_operator(instance, "a", TAKEN, "x" * 501)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
