"""A share group with a filter hands out what matches, and finishes the rest."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.records.codec import NewRecord, encode
from penstock_core.share.acknowledge import AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.admin.put_share_group import put_share_group
from tests.service.share.sharing import GROUP, finish, locks_in, new_group, offsets_in, state_of, take, values_in
from tests.support.interleaving import catch_kill, interrupted_before
from tests.support.poison import undecodable_batch
from tests.support.refusals import refused
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    Killed,
    SteppedClock,
    another_instance,
    counted_instance,
    head_of,
    new_topic,
)


def put(instance: Instance, *kinds: str) -> None:
    """A batch with one record for each kind, which is its header and its value."""
    records = [NewRecord(1_000, b"k", kind.encode(), [("type", kind.encode())]) for kind in kinds]
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=encode(records))], Acks.QUORUM).all_ok()


def filtered_group(instance: Instance, **config: Any) -> None:
    new_topic(instance)
    new_group(instance, filter={"type": ["yes"]}, **config)


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_only_matching_records_are_handed_out(instance: Instance, ordering: str) -> None:
    filtered_group(instance, ordering=ordering)
    put(instance, "no", "yes", "no", "no", "yes")
    found: list[int] = []
    while held := offsets_in(acquired := take(instance)):
        found += [offset for _, offset in held]
        finish(instance, acquired)
    assert found == [1, 4]
    assert state_of(instance).open == 0


def test_filter_that_takes_one_in_a_thousand_moves_on_in_one_call(instance: Instance) -> None:
    filtered_group(instance)
    for _ in range(10):
        put(instance, *["no"] * 300)
    put(instance, "yes")
    assert values_in(take(instance, 50)) == ["yes"]
    assert state_of(instance).unfinished() == ((3_000, 3_001),)


def test_filter_by_key_moves_on_in_one_call(instance: Instance) -> None:
    filtered_group(instance, ordering="key")
    for _ in range(10):
        put(instance, *["no"] * 300)
    put(instance, "yes")
    assert values_in(take(instance, 50)) == ["yes"]


def test_no_more_records_than_were_asked_for(instance: Instance) -> None:
    filtered_group(instance)
    put(instance, *["no"] * 20)
    put(instance, *["yes"] * 40)
    first = take(instance, 10)
    assert len(offsets_in(first)) == 10
    finish(instance, first)
    counts: list[int] = []
    while held := offsets_in(acquired := take(instance, 10)):
        counts.append(len(held))
        assert {lock.grant.lock.deliveries for lock in locks_in(acquired)} == {1}
        finish(instance, acquired)
    assert sum(counts) == 30
    assert max(counts) <= 10


def test_calls_of_an_acquire_with_a_filter(instance: Instance) -> None:
    filtered_group(instance)
    put(instance, "yes")
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    finish(counted, take(counted))
    put(instance, "yes", "no")
    counts.clear()
    assert len(offsets_in(take(counted))) == 1
    assert counts == {"share.find_states": 1, "log.heads": 1, "zone.get": 1, "share.update": 2}


def test_record_that_comes_again_is_filtered_anew(instance: Instance) -> None:
    filtered_group(instance)
    put(instance, "yes", "other")
    put_share_group(instance, GROUP, None, {"filter": {"type": ["yes", "other"]}})
    again = another_instance(instance)
    finish(again, take(again), AckType.RELEASE, delay_ms=0)
    put_share_group(again, GROUP, None, {"filter": {"type": ["other"]}})
    assert values_in(take(another_instance(instance))) == ["other"]
    assert state_of(instance).open == 1


def test_records_that_cannot_be_read_are_not_taken_for_others(instance: Instance, clock: SteppedClock) -> None:
    filtered_group(instance)
    put(instance, "yes", "no")

    def fail(_original: object, *_: object) -> bytes:
        raise UNAVAILABLE

    zones = [Intercepted(zone, get=fail) for zone in instance.stores.zones]
    assert offsets_in(take(another_instance(instance, zones=zones))) == []
    assert state_of(instance).open == 2
    clock.sleep_ms(5_000)
    assert values_in(take(instance)) == ["yes"]


def test_undecodable_batch_waits(instance: Instance) -> None:
    filtered_group(instance)
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=undecodable_batch(3))], Acks.QUORUM).all_ok()
    put(instance, "yes")
    assert offsets_in(take(instance)) == [(0, 3)]
    assert state_of(instance).unfinished() == ((0, 4),)


@pytest.mark.parametrize("policy", [{"type": "yes"}, {"type": [{"bigger": 1}]}, {}])
def test_filter_that_is_none_is_refused(instance: Instance, policy: dict[str, Any]) -> None:
    new_topic(instance)
    refused(ErrorCode.INVALID_FILTER, lambda: new_group(instance, filter=policy))


@pytest.mark.parametrize("place", range(12))
def test_lock_comes_with_its_records_when_a_repeat_of_the_acquire_runs_beside_it(
    instance: Instance, place: int
) -> None:
    filtered_group(instance)
    put(instance, "no")
    put(instance, "yes")
    other = another_instance(instance)
    first = take(interrupted_before(instance, place, lambda: take(other, 1, nonce="repeated")), 1, nonce="repeated")
    for lock in locks_in(first):
        held = [offset for start, end in lock.ranges for offset in range(start, end)]
        assert {*held} <= {each for batch in lock.batches for each in range(batch.base_offset, batch.next_offset)}


def test_records_that_no_filter_takes_leave_no_dead_letter_when_a_function_dies_with_them(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance, "dead")
    filtered_group(instance, dead_letter_topic="dead", deliveries_max=1, lock_ms=1_000)
    put(instance, "no", "yes", "no")

    def die(original: Callable[..., object], *arguments: object) -> None:
        original(*arguments)
        raise Killed

    with catch_kill() as killed:
        take(another_instance(instance, share=Intercepted(instance.stores.share, update=die)))
    assert killed
    assert state_of(instance).open == 3
    clock.sleep_ms(60_000)
    take(instance)
    assert not state_of(instance).open
    assert head_of(instance, "dead").next_offset == 1
