"""Zones that fail, hang and flap: who waits for them, for how long, and what the states say."""

import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock_broker.broker import Broker
from penstock_broker.move_zone import change_zone, list_zones, move_zone_by_operator
from penstock_broker.produce import produce
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import SegmentId, ZoneName
from penstock_core.index import Head
from penstock_core.keys import PartitionKey
from penstock_core.quorum import Acks
from penstock_core.zone_state import REMEMBERED_MS_MAX, Mover, ZoneStatus
from tests.broker.setting import (
    LOST_ANSWER,
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    counted_broker,
    entry,
    head_of,
    new_topic,
    patient_broker,
    read_all,
    send,
    zone_of,
)

IN, OUT, UP, TAKEN = (
    ZoneStatus.IN_SYNC,
    ZoneStatus.OUT_OF_SYNC,
    ZoneStatus.CATCHING_UP,
    ZoneStatus.TAKEN_OUT,
)


def statuses(broker: Broker) -> list[ZoneStatus]:
    return [state.status for _, state in list_zones(another_instance(broker))]


def refused(broker: Broker, topic: str, acks: Acks) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        send(broker, topic, "x", acks=acks)
    assert (caught.value.code, caught.value.maybe_applied) == (ErrorCode.NOT_ENOUGH_ZONES, False)
    return caught.value


@pytest.mark.parametrize("dead", range(3))
def test_append_by_all_comes_through_with_the_second_failure_of_a_dead_zone(broker: Broker, dead: int) -> None:
    topic = new_topic(broker)
    zone_of(broker, dead).is_down = True
    refused(broker, topic, Acks.ALL)
    assert statuses(broker) == [IN, IN, IN]
    send(broker, topic, "x", acks=Acks.ALL)
    assert statuses(broker) == [OUT if zone == dead else IN for zone in range(3)]
    counts, told = broker.events.take()
    assert counts["zone_out_of_sync"] == 1
    [(name, facts)] = told
    assert (name, facts["zone"], facts["by"]) == ("zone_out_of_sync", "abc"[dead], "appender")


def test_nobody_puts_to_a_zone_that_is_out_and_nobody_is_woken_for_it(broker: Broker) -> None:
    topic = new_topic(broker)
    zone_of(broker, 2).is_down = True
    send(broker, topic, "a")
    send(broker, topic, "b")
    assert statuses(broker) == [IN, IN, OUT]
    zone_of(broker, 2).is_down = False
    noted: list[int] = []

    def append(original: Any, key: PartitionKey, ref: Any, unconfirmed: int) -> Head:
        noted.append(unconfirmed)
        head: Head = original(key, ref, unconfirmed)
        return head

    counts: Counter[str] = Counter()
    instance = counted_broker(replace(broker, log=Intercepted(broker.log, append=append)), counts)
    send(instance, topic, "c", acks=Acks.ALL)
    assert counts["zone.put"] == 2
    assert noted == [0]
    assert [ref.zones for ref in head_of(broker, topic).tail] == [0b011] * 3
    assert zone_of(broker, 2).segments == {}


def test_one_failure_between_successes_moves_nobody(broker: Broker) -> None:
    topic = new_topic(broker)
    for _ in range(5):
        zone_of(broker, 1).is_down = True
        send(broker, topic, "x")
        zone_of(broker, 1).is_down = False
        send(broker, topic, "x")
    assert statuses(broker) == [IN, IN, IN]


def test_failures_of_two_instances_are_not_added_up(broker: Broker) -> None:
    topic = new_topic(broker)
    zone_of(broker, 1).is_down = True
    for _ in range(3):
        send(another_instance(broker), topic, "x")
    assert statuses(broker) == [IN, IN, IN]


def test_instance_that_remembers_older_states_succeeds_as_soon_as_a_zone_is_out(broker: Broker) -> None:
    topic = new_topic(broker)
    other = another_instance(broker)
    send(other, topic, "remembers")
    zone_of(broker, 0).is_down = True
    refused(broker, topic, Acks.ALL)
    send(broker, topic, "moves it out", acks=Acks.ALL)
    send(other, topic, "its first failure", acks=Acks.ALL)
    assert other.zone_states.get().version == 1


def test_appenders_leave_a_majority_in_sync_however_many_zones_fail(broker: Broker) -> None:
    topic = new_topic(broker)
    zone_of(broker, 0).is_down = zone_of(broker, 1).is_down = zone_of(broker, 2).is_down = True
    instances = [another_instance(broker) for _ in range(4)]
    for _ in range(4):
        for instance in instances:
            refused(instance, topic, Acks.QUORUM)
    assert sorted(status.value for status in statuses(broker)) == ["in_sync", "in_sync", "out_of_sync"]
    for zone in range(3):
        zone_of(broker, zone).is_down = False
    assert send(instances[0], topic, "x").base_offset == 0


def test_appenders_that_blame_different_zones_at_once_take_out_one(broker: Broker) -> None:
    """Both have read that all are in sync; the version lets only the first change it."""
    topic = new_topic(broker)
    blames_b = another_instance(broker, zones=_failing(broker, 1))

    def change(original: Any, old: Any, new: Any) -> None:
        if broker.zone_states.get().version == 0:
            for _ in range(2):
                send(blames_b, topic, "x")
        original(old, new)

    blames_a = another_instance(
        broker, zones=_failing(broker, 0), zone_states=Intercepted(broker.zone_states, change=change)
    )
    for _ in range(2):
        send(blames_a, topic, "y")
    assert statuses(broker) == [IN, OUT, IN]


def _failing(broker: Broker, index: int) -> list[Any]:
    def put(_original: Any, *_arguments: Any) -> None:
        raise UNAVAILABLE

    zones: list[Any] = list(broker.zones)
    zones[index] = Intercepted(zones[index], put=put)
    return zones


@pytest.mark.parametrize("method", ["get", "change"])
@pytest.mark.parametrize("error", [UNAVAILABLE, LOST_ANSWER])
def test_append_by_quorum_goes_on_when_states_cannot_be_read_or_changed(
    broker: Broker, method: str, error: PenstockError
) -> None:
    topic = new_topic(broker)
    failing = False

    def fail(original: Any, *arguments: Any) -> Any:
        if failing:
            raise error
        return original(*arguments)

    instance = another_instance(broker, zone_states=Intercepted(broker.zone_states, **{method: fail}))
    send(instance, topic, "warm")
    failing = True
    zone_of(broker, 0).is_down = True
    for number in range(4):
        assert send(instance, topic, str(number)).base_offset == number + 1
    failing = False
    for _ in range(2):
        send(instance, topic, "x")
    assert statuses(broker) == [OUT, IN, IN]


def test_change_whose_answer_was_lost_is_found_made(broker: Broker) -> None:
    topic = new_topic(broker)

    def change(original: Any, *arguments: Any) -> None:
        original(*arguments)
        raise LOST_ANSWER

    instance = another_instance(broker, zone_states=Intercepted(broker.zone_states, change=change))
    zone_of(broker, 0).is_down = True
    refused(instance, topic, Acks.ALL)
    send(instance, topic, "x", acks=Acks.ALL)
    assert broker.zone_states.get().version == 1


def test_states_are_read_once_in_ten_seconds_when_nothing_fails(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)
    counts: Counter[str] = Counter()
    instance = counted_broker(broker, counts)
    send(instance, topic, "x")
    for _ in range(5):
        send(instance, topic, "x", acks=Acks.ALL)
        clock.time_ms += (REMEMBERED_MS_MAX - 1) / 5
    assert counts["zone_states.get"] == 1
    clock.time_ms += 1
    send(instance, topic, "x")
    assert counts["zone_states.get"] == 2


def test_states_are_not_remembered_longer_when_the_monotonic_clock_stood_still(
    broker: Broker, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.zone_directory.find()
    move_zone_by_operator(another_instance(broker), "b", TAKEN, "work on it")
    monkeypatch.setattr(clock, "monotonic_ms", lambda: 1_000_000.0)
    assert broker.zone_directory.find().version == 0
    clock.time_ms += REMEMBERED_MS_MAX
    assert broker.zone_directory.find().version == 1


class Hanging:
    """A zone that takes puts and answers none until it is told to."""

    def __init__(self, broker: Broker, index: int) -> None:
        self.answer = threading.Event()
        self.zones: list[Any] = list(broker.zones)
        self.zones[index] = Intercepted(self.zones[index], put=self._put)

    def _put(self, original: Any, segment_id: SegmentId, body: bytes, crc32c: int) -> None:
        self.answer.wait()
        original(segment_id, body, crc32c)


@pytest.mark.parametrize("hangs", range(3))
def test_append_by_all_fails_when_its_time_is_up_and_the_second_moves_the_zone_out(broker: Broker, hangs: int) -> None:
    topic = new_topic(broker)
    hanging = Hanging(broker, hangs)
    # Long enough for the two that answer, whatever else this machine does.
    instance = another_instance(broker, zones=hanging.zones, put_timeout_ms=500, straggler_grace_ms=0)
    try:
        assert "no answer" in refused(instance, topic, Acks.ALL).message
        send(instance, topic, "x", acks=Acks.ALL)
        assert statuses(broker)[hangs] is OUT
    finally:
        hanging.answer.set()
    assert read_all(broker, topic) == [(0, "x")]


def test_put_that_its_request_gave_up_counts_once(broker: Broker) -> None:
    watch = broker.health.begin_put(ZoneName("a"))
    watch.end(is_failed=True)
    watch.end(is_failed=True)
    assert not broker.health.is_failing(ZoneName("a"))
    broker.health.begin_put(ZoneName("a")).end(is_failed=True)
    assert broker.health.is_failing(ZoneName("a"))
    broker.health.begin_put(ZoneName("a")).end(is_failed=False)
    assert not broker.health.is_failing(ZoneName("a"))


def test_zone_that_answers_too_late_counts_as_failed(broker: Broker, clock: SteppedClock) -> None:
    topic = new_topic(broker)

    def put(original: Any, *arguments: Any) -> None:
        clock.time_ms += 4_000
        original(*arguments)

    zones: list[Any] = [Intercepted(broker.zones[0], put=put), *broker.zones[1:]]
    slow = another_instance(broker, zones=zones, put_timeout_ms=4_000)
    for _ in range(2):
        send(slow, topic, "x")
    assert slow.health.is_failing(ZoneName("a"))


# A second zone fails while another catches up: it cannot be moved out, for no majority would be left in sync.


@pytest.fixture
def catching_up(broker: Broker) -> str:
    """A topic; zone a catches up, and b and c are in sync."""
    topic = new_topic(broker)
    move_zone_by_operator(broker, "a", TAKEN, "work on it")
    move_zone_by_operator(broker, "a", UP, "done")
    return topic


def test_append_by_all_comes_through_with_the_second_failure_although_the_zone_has_to_stay_in_sync(
    broker: Broker, catching_up: str
) -> None:
    instance = another_instance(broker)
    zone_of(broker, 1).is_down = True
    assert "zone b" in refused(instance, catching_up, Acks.ALL).message
    for number in range(3):
        assert send(instance, catching_up, str(number), acks=Acks.ALL).base_offset == number
    assert statuses(broker) == [UP, IN, IN]
    assert [ref.zones for ref in head_of(broker, catching_up).tail] == [0b101] * 3


def test_zone_that_hangs_and_has_to_stay_is_waited_for_twice_only(broker: Broker, catching_up: str) -> None:
    hanging = Hanging(broker, 1)
    instance = another_instance(broker, zones=hanging.zones, put_timeout_ms=500, straggler_grace_ms=0)
    try:
        assert "no answer" in refused(instance, catching_up, Acks.ALL).message
        send(instance, catching_up, "0", acks=Acks.ALL)
        patient = replace(instance, put_timeout_ms=60_000)
        send(patient, catching_up, "1", acks=Acks.ALL)  # ends long before that
        assert statuses(broker) == [UP, IN, IN]
    finally:
        hanging.answer.set()


def test_zone_that_had_to_stay_is_waited_for_again_after_a_put_that_succeeded(broker: Broker, catching_up: str) -> None:
    instance = another_instance(broker)
    zone_of(broker, 1).is_down = True
    refused(instance, catching_up, Acks.ALL)
    send(instance, catching_up, "without b", acks=Acks.ALL)
    zone_of(broker, 1).is_down = False
    send(instance, catching_up, "with b", acks=Acks.ALL)
    assert [ref.zones for ref in head_of(broker, catching_up).tail] == [0b101, 0b111]
    zone_of(broker, 1).is_down = True
    refused(instance, catching_up, Acks.ALL)


def test_zone_that_had_to_stay_is_moved_out_when_the_other_is_in_sync_again(broker: Broker, catching_up: str) -> None:
    instance = another_instance(broker)
    zone_of(broker, 1).is_down = True
    refused(instance, catching_up, Acks.ALL)
    send(instance, catching_up, "x", acks=Acks.ALL)
    states = broker.zone_states.get()
    change_zone(another_instance(broker), states, ZoneName("a"), IN, Mover.KEEPER, "it has everything")
    send(instance, catching_up, "y", acks=Acks.ALL)
    assert statuses(broker) == [IN, OUT, IN]


def test_append_by_all_has_no_fewer_copies_than_min_insync_zones(broker: Broker) -> None:
    """Of five zones d is out, e catches up, and c fails but has to stay: three are in sync, and two of them confirm."""
    zones = patient_broker(broker.clock, "abcde")
    topic = new_topic(zones, min_insync_zones=3)
    for zone in "de":
        move_zone_by_operator(zones, zone, TAKEN, "work on it")
    move_zone_by_operator(zones, "e", UP, "done")
    instance = another_instance(zones)
    zone_of(zones, 2).is_down = True
    refused(instance, topic, Acks.ALL)
    send(instance, topic, "x", acks=Acks.ALL)
    assert [ref.zones for ref in head_of(zones, topic).tail] == [0b10011]
    zone_of(zones, 4).is_down = True
    refused(instance, topic, Acks.ALL)


def test_append_by_all_fails_without_a_majority_whatever_is_waited_for(broker: Broker, catching_up: str) -> None:
    instance = another_instance(broker)
    zone_of(broker, 0).is_down = zone_of(broker, 1).is_down = True
    for _ in range(5):
        refused(instance, catching_up, Acks.ALL)
    assert read_all(another_instance(broker), catching_up) == []


def test_one_zone_that_has_to_stay_keeps_no_other_in(broker: Broker, catching_up: str) -> None:
    """b may not leave, for c alone would be in sync; a, which catches up, may."""
    instance = another_instance(broker)
    zone_of(broker, 0).is_down = zone_of(broker, 1).is_down = True
    for _ in range(2):
        refused(instance, catching_up, Acks.QUORUM)
    assert statuses(broker) == [OUT, IN, IN]


# min_insync_zones


def test_append_is_refused_before_anything_is_put_when_too_few_zones_are_in_sync(broker: Broker) -> None:
    strict, usual = new_topic(broker, "strict", min_insync_zones=3), new_topic(broker, "usual")
    move_zone_by_operator(broker, "c", TAKEN, "work on it")
    counts: Counter[str] = Counter()
    instance = counted_broker(broker, counts)
    for acks in Acks:
        assert "min_insync_zones=3" in refused(instance, strict, acks).message
    assert counts["zone.put"] == 0
    assert counts["log.append"] == 0
    left, right = produce(instance, [entry(strict, 0, batch("x")), entry(usual, 0, batch("y"))], Acks.ALL)
    assert isinstance(left, PenstockError)
    assert left.code is ErrorCode.NOT_ENOUGH_ZONES
    assert not isinstance(right, PenstockError)
    assert read_all(broker, strict) == []
    assert read_all(broker, usual) == [(0, "y")]


def test_append_is_refused_when_its_own_failures_leave_too_few_in_sync(broker: Broker) -> None:
    topic = new_topic(broker, min_insync_zones=3)
    zone_of(broker, 2).is_down = True
    send(broker, topic, "two of three by quorum")
    assert "2 of 3 zones are in sync" in refused(broker, topic, Acks.QUORUM).message
    assert read_all(broker, topic) == [(0, "two of three by quorum")]


@pytest.mark.parametrize("wanted", [0, 4, 9, "2", True])
def test_min_insync_zones_is_from_one_to_the_number_of_zones(broker: Broker, wanted: Any) -> None:
    with pytest.raises(PenstockError) as caught:
        new_topic(broker, min_insync_zones=wanted)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    for good in (1, 2, 3):
        new_topic(broker, f"t{good}", min_insync_zones=good)


# Operators


def test_operator_takes_a_zone_out_and_back(broker: Broker) -> None:
    taken = move_zone_by_operator(broker, "b", TAKEN, "disk work")
    assert (taken.status, taken.version, taken.reason) == (TAKEN, 1, "disk work")
    assert move_zone_by_operator(broker, "b", TAKEN, "again") == taken
    back = move_zone_by_operator(broker, "b", UP, "done")
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
def test_operator_is_told_what_cannot_be(broker: Broker, zone: str, to: ZoneStatus, code: ErrorCode) -> None:
    topic = new_topic(broker)
    zone_of(broker, 2).is_down = True
    for _ in range(2):
        send(broker, topic, "x")
    with pytest.raises(PenstockError) as caught:
        move_zone_by_operator(broker, zone, to, "")
    assert caught.value.code is code
    assert statuses(broker) == [IN, IN, OUT]


def test_operator_s_reason_is_bounded(broker: Broker) -> None:
    with pytest.raises(PenstockError) as caught:
        move_zone_by_operator(broker, "a", TAKEN, "x" * 501)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
