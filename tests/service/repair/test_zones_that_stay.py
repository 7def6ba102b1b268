"""A zone that fails and has to stay in sync, since another one catches up: appends wait for it, within bounds."""

import pytest

from penstock_core.ids import ZoneName
from penstock_core.zones.zone_state import Acks, Mover
from penstock_service.instance.instance import Instance
from penstock_service.segments.move_zone import change_zone, move_zone_by_operator
from tests.service.repair.zone_statuses import IN, OUT, TAKEN, UP, Hanging, append_refused, statuses
from tests.support.service import (
    another_instance,
    head_of,
    new_topic,
    patient_instance,
    read_all,
    send,
    with_tuning,
    zone_of,
)


@pytest.fixture
def catching_up(instance: Instance) -> str:
    """A topic; zone a catches up, and b and c are in sync."""
    topic = new_topic(instance)
    move_zone_by_operator(instance, "a", TAKEN, "work on it")
    move_zone_by_operator(instance, "a", UP, "done")
    return topic


def test_append_by_all_comes_through_with_the_second_failure_although_the_zone_has_to_stay_in_sync(
    instance: Instance, catching_up: str
) -> None:
    another = another_instance(instance)
    zone_of(instance, 1).is_down = True
    assert "zone b" in append_refused(another, catching_up, Acks.ALL).message
    for number in range(3):
        assert send(another, catching_up, str(number), acks=Acks.ALL).base_offset == number
    assert statuses(instance) == [UP, IN, IN]
    assert [ref.zones for ref in head_of(instance, catching_up).tail] == [0b101] * 3


def test_zone_that_hangs_and_has_to_stay_is_waited_for_twice_only(instance: Instance, catching_up: str) -> None:
    hanging = Hanging(instance, 1)
    another = another_instance(instance, zones=hanging.zones, put_timeout_ms=500, straggler_grace_ms=0)
    try:
        assert "no answer" in append_refused(another, catching_up, Acks.ALL).message
        send(another, catching_up, "0", acks=Acks.ALL)
        patient = with_tuning(another, put_timeout_ms=60_000)
        send(patient, catching_up, "1", acks=Acks.ALL)  # ends long before that
        assert statuses(instance) == [UP, IN, IN]
    finally:
        hanging.answer.set()


def test_zone_that_had_to_stay_is_waited_for_again_after_a_put_that_succeeded(
    instance: Instance, catching_up: str
) -> None:
    another = another_instance(instance)
    zone_of(instance, 1).is_down = True
    append_refused(another, catching_up, Acks.ALL)
    send(another, catching_up, "without b", acks=Acks.ALL)
    zone_of(instance, 1).is_down = False
    send(another, catching_up, "with b", acks=Acks.ALL)
    assert [ref.zones for ref in head_of(instance, catching_up).tail] == [0b101, 0b111]
    zone_of(instance, 1).is_down = True
    append_refused(another, catching_up, Acks.ALL)


def test_zone_that_had_to_stay_is_moved_out_when_the_other_is_in_sync_again(
    instance: Instance, catching_up: str
) -> None:
    another = another_instance(instance)
    zone_of(instance, 1).is_down = True
    append_refused(another, catching_up, Acks.ALL)
    send(another, catching_up, "x", acks=Acks.ALL)
    states = instance.stores.zone_states.get()
    change_zone(another_instance(instance), states, ZoneName("a"), IN, Mover.RECOVERY, "it has everything")
    send(another, catching_up, "y", acks=Acks.ALL)
    assert statuses(instance) == [IN, OUT, IN]


def test_append_by_all_has_no_fewer_copies_than_min_insync_zones(instance: Instance) -> None:
    """Of five zones d is out, e catches up, and c fails but has to stay: three are in sync, and two of them confirm."""
    zones = patient_instance(instance.clock, "abcde")
    topic = new_topic(zones, min_insync_zones=3)
    for zone in "de":
        move_zone_by_operator(zones, zone, TAKEN, "work on it")
    move_zone_by_operator(zones, "e", UP, "done")
    another = another_instance(zones)
    zone_of(zones, 2).is_down = True
    append_refused(another, topic, Acks.ALL)
    send(another, topic, "x", acks=Acks.ALL)
    assert [ref.zones for ref in head_of(zones, topic).tail] == [0b10011]
    zone_of(zones, 4).is_down = True
    append_refused(another, topic, Acks.ALL)


def test_append_by_all_fails_without_a_majority_whatever_is_waited_for(instance: Instance, catching_up: str) -> None:
    another = another_instance(instance)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    for _ in range(5):
        append_refused(another, catching_up, Acks.ALL)
    assert read_all(another_instance(instance), catching_up) == []


def test_one_zone_that_has_to_stay_keeps_no_other_in(instance: Instance, catching_up: str) -> None:
    """b may not leave, for c alone would be in sync; a, which catches up, may."""
    another = another_instance(instance)
    zone_of(instance, 0).is_down = zone_of(instance, 1).is_down = True
    for _ in range(2):
        append_refused(another, catching_up, Acks.QUORUM)
    assert statuses(instance) == [OUT, IN, IN]
