"""Consumers of a share group that wait: they arm heads and share items, and are woken by what comes back."""

import json
from collections.abc import Callable

import pytest

from penstock_core.mirror.push import HeadMove
from penstock_core.share.acknowledge import AckType
from penstock_core.share.draft import ShareOutcome, ShareUpdate, arming
from penstock_core.share.share_state import ShareKey
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.share.acquire.acquire import Acquired
from penstock_service.share.admin.reset_share_group import ShareResetTo, reset_share_group
from penstock_service.topics.list_offsets import OffsetSpec
from tests.service.share.sharing import GROUP, finish, new_group, offsets_in, state_of, take
from tests.support.interleaving import interrupted_before
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    filled_topic,
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


def messages(wake_ups: MemoryWakeUps) -> list[tuple[str, dict[str, object]]]:
    return [(each.channel, json.loads(each.event)) for each in wake_ups.messages]


def test_idle_consumer_arms_and_is_woken_by_an_append(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    new_topic(instance, partitions=2)
    new_group(instance)
    idle = take(instance, must_arm=True)
    assert [each.is_armed for each in idle.watched] == [True, True]
    assert idle.next_available_ms is None
    assert head_of(instance, "orders", 1).waiter_ms is not None
    send(instance, "orders", "x", partition=1)
    assert len(messages(wake_ups)) == 1


def test_idle_consumer_of_a_moved_topic_rests(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    new_topic(instance)
    new_group(instance)
    instance.stores.log.move(key_of(instance, "orders"), HeadMove(number=1, log_id="l1", now_ms=7))
    idle = take(instance, must_arm=True)
    assert [each.is_armed for each in idle.watched] == [True]
    assert idle.next_available_ms is None
    assert not wake_ups.messages


def test_release_wakes_who_waits_on_the_channel_of_the_share_group(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    filled_topic(instance, records=2)
    share_group_id = new_group(instance)
    held = take(instance)
    idle = take(instance, must_arm=True)
    assert [each.is_armed for each in idle.watched] == [True]
    assert state_of(instance).waiter_ms is not None
    finish(instance, held, AckType.RELEASE, delay_ms=5_000)
    [(channel, event)] = messages(wake_ups)
    assert channel == f"/wake/{share_group_id}/share"
    assert event == {
        "share_group_id": share_group_id,
        "topic_id": idle.watched[0].key.topic_id,
        "partition": 0,
    }
    assert state_of(instance).waiter_ms is None


def test_consumer_is_woken_when_the_answer_of_what_an_acquire_gave_back_was_lost(
    instance: Instance, wake_ups: MemoryWakeUps
) -> None:
    """The update is applied, and takes the waiter. Its second attempt is refused, and shows the item as it left it."""
    new_topic(instance)
    share_group_id = new_group(instance)
    send(instance, "orders", "x")
    updates: list[ShareUpdate] = []

    def lose(original: Callable[..., ShareOutcome], key: ShareKey, update: ShareUpdate) -> ShareOutcome:
        updates.append(update)
        if len(updates) == 1:
            return original(key, update)
        original(key, arming(state_of(instance), 1))
        done = original(key, update)
        assert done.took_waiter
        return ShareOutcome(before=done.after, after=None)

    def fail(_original: object, *_: object) -> bytes:
        raise UNAVAILABLE

    zones = [Intercepted(zone, get=fail) for zone in instance.stores.zones]
    share = Intercepted(instance.stores.share, update=lose)
    assert offsets_in(take(another_instance(instance, share=share, zones=zones))) == []
    assert [channel for channel, _ in messages(wake_ups)] == [f"/wake/{share_group_id}/share"]


def test_nobody_is_woken_where_nobody_waits(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    filled_topic(instance, records=2)
    new_group(instance)
    finish(instance, take(instance), AckType.RELEASE)
    assert wake_ups.messages == []


def test_repeated_release_wakes_again_because_the_first_may_have_died_before(
    instance: Instance, wake_ups: MemoryWakeUps
) -> None:
    filled_topic(instance, records=2)
    new_group(instance)
    held = take(instance)
    take(instance, must_arm=True)
    for _ in range(2):
        finish(instance, held, AckType.RELEASE)
    assert len(wake_ups.messages) == 2


@pytest.mark.parametrize("place", range(8))
def test_record_that_comes_while_a_consumer_arms_is_found_or_wakes(
    instance: Instance, wake_ups: MemoryWakeUps, place: int
) -> None:
    new_topic(instance)
    new_group(instance)
    waiting = interrupted_before(instance, place, lambda: send(instance, "orders", "x"))
    found = take(waiting, must_arm=True)
    if not offsets_in(found) and head_of(instance, "orders").next_offset:
        assert found.next_available_ms == 0 or wake_ups.messages


@pytest.mark.parametrize("place", range(8))
def test_record_that_is_released_while_a_consumer_arms_is_found_or_wakes(
    instance: Instance, wake_ups: MemoryWakeUps, place: int
) -> None:
    filled_topic(instance, records=1)
    new_group(instance)
    held = take(instance)
    released: list[bool] = []

    def release() -> None:
        finish(instance, held, AckType.RELEASE, delay_ms=0)
        released.append(True)

    found = take(interrupted_before(instance, place, release), must_arm=True)
    if released and not offsets_in(found):
        assert found.next_available_ms == 0 or wake_ups.messages


def test_busy_consumer_arms_nothing(instance: Instance) -> None:
    filled_topic(instance, partitions=2, records=1)
    new_group(instance)
    assert take(instance, 1, must_arm=True).watched == []
    assert [head_of(instance, "orders", partition).waiter_ms for partition in range(2)] == [None, None]


def test_consumer_that_finds_no_room_polls_soon(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance, in_flight_max=4)
    assert len(offsets_in(take(instance))) == 4
    blocked = take(instance, must_arm=True)
    assert (offsets_in(blocked), blocked.next_available_ms) == ([], 200)
    assert [each.is_armed for each in blocked.watched] == [False]


def test_reset_wakes(instance: Instance, wake_ups: MemoryWakeUps) -> None:
    filled_topic(instance, partitions=3, records=1)
    new_group(instance)
    while offsets_in(held := take(instance)):
        finish(instance, held)
    take(instance, must_arm=True)
    reset_share_group(instance, GROUP, "orders", ShareResetTo(end=OffsetSpec.EARLIEST))
    assert len(wake_ups.messages) == 1


def test_consumer_that_arms_is_woken_when_an_acquire_gives_back_what_does_not_fit(
    instance: Instance, wake_ups: MemoryWakeUps
) -> None:
    filled_topic(instance, records=1)
    send(instance, "orders", "x" * 500)
    new_group(instance)
    finish(instance, take(instance), AckType.RELEASE, delay_ms=0)
    armed: list[Acquired] = []

    def arm(original: Callable[..., object], *arguments: object) -> object:
        """Another consumer finds all locked, just before the first update of the acquire is answered."""
        outcome = original(*arguments)
        if not armed:
            armed.append(take(instance, must_arm=True))
        return outcome

    mine = take(another_instance(instance, share=Intercepted(instance.stores.share, update=arm)), bytes_max=200)
    assert len(offsets_in(mine)) == 1
    assert [each.is_armed for each in armed[0].watched] == [True]
    assert len(messages(wake_ups)) == 1
