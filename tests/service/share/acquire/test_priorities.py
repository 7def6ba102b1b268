"""With topic_order=listed an acquire takes records of a topic only for the room that the topics before it have left.

What an acquire gets of its wish when a quota leaves a part of it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SHARE_LISTED_TOPICS_MAX
from penstock_core.records.codec import NewRecord, encode
from penstock_core.share.acknowledge import AckType
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.share.acquire.acquire import Acquired, AcquireWish
from penstock_service.share.admin.describe_share_group import describe_share_group
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic, delete_topic
from tests.service.share.sharing import GROUP, entries_of, entry_of, finish, locks_in, new_group, state_of, take
from tests.support.interleaving import interrupted_before
from tests.support.service import (
    SteppedClock,
    another_instance,
    counted_instance,
    entry,
    filled_topic,
    key_of,
    new_topic,
    with_stores,
)

HIGH, LOW = "urgent", "bulk"


@pytest.fixture
def queue(instance: Instance) -> Instance:
    """Two topics, of which the one with the later name comes first."""
    new_topic(instance, HIGH, 2)
    new_topic(instance, LOW, 2)
    new_group(instance, HIGH, LOW, topic_order="listed", retry_backoff_ms_min=1, retry_backoff_ms_max=1_000)
    return instance


def send(instance: Instance, topic: str, count: int, partition: int = 0, **facts: Any) -> None:
    batch = encode([NewRecord(1, None, str(number).encode(), **facts) for number in range(count)])
    produce(instance, [entry(topic, partition, batch)], Acks.QUORUM).all_ok()


def counts(acquired: Acquired) -> dict[str, int]:
    found: dict[str, int] = {}
    for lock in locks_in(acquired):
        topic = lock.partition.topic
        found[topic] = found.get(topic, 0) + lock.grant.records.count
    return found


def nonces(count: int) -> Iterator[str]:
    return (f"nonce-{number:03}" for number in range(count))


def test_lower_topic_gives_only_for_the_room_that_is_left(queue: Instance) -> None:
    send(queue, LOW, 50)
    send(queue, HIGH, 3, partition=1)
    held = take(queue, 10)
    assert counts(held) == {HIGH: 3, LOW: 7}
    assert [lock.partition.topic for lock in locks_in(held)] == [HIGH, LOW]
    send(queue, HIGH, 30)
    assert counts(take(queue, 10)) == {HIGH: 10}


def test_every_acquire_takes_the_higher_records_first_whatever_its_nonce(queue: Instance) -> None:
    send(queue, LOW, 400)
    for nonce in nonces(40):
        send(queue, HIGH, 1, partition=int(nonce[-1]) % 2)
        found = counts(take(queue, 4, nonce=nonce))
        assert found[HIGH] == 1


def test_one_record_at_a_time_comes_from_the_highest_topic_that_has_one(queue: Instance) -> None:
    send(queue, LOW, 3)
    send(queue, HIGH, 3)
    found = [next(iter(counts(take(queue, 1, nonce=nonce)))) for nonce in nonces(6)]
    assert found == [HIGH] * 3 + [LOW] * 3


def test_records_that_came_back_go_before_fresh_ones_of_a_lower_topic(queue: Instance, clock: SteppedClock) -> None:
    send(queue, HIGH, 20)
    send(queue, LOW, 400)
    for nonce in nonces(12):
        held = take(queue, 20, nonce=f"first-{nonce}")
        [lock] = [lock for lock in locks_in(held) if lock.partition.topic == HIGH]
        finish(queue, held, AckType.RELEASE, delay_ms=0)
        clock.sleep_ms(1)
        again = take(queue, 20, nonce=f"again-{nonce}")
        assert counts(again)[HIGH] == lock.grant.records.count
        finish(queue, again, AckType.RELEASE, delay_ms=0)


def test_part_of_an_expired_lock_holds_up_no_lower_record_for_ever(queue: Instance, clock: SteppedClock) -> None:
    send(queue, HIGH, 8)
    send(queue, LOW, 100)
    take(queue, 8, lock_ms=1_000)
    clock.sleep_ms(60_000)
    seen: dict[str, int] = {}
    for nonce in nonces(12):
        found = counts(take(queue, 5, nonce=nonce))
        assert set(found) != {LOW} or seen[HIGH] == 8
        for topic, count in found.items():
            seen[topic] = seen.get(topic, 0) + count
    assert seen[HIGH] == 8
    assert seen[LOW] > 0


def test_locks_of_others_and_a_blocked_partition_hold_up_no_lower_topic(instance: Instance) -> None:
    new_topic(instance, HIGH, 1)
    new_topic(instance, LOW, 1)
    new_group(instance, HIGH, LOW, topic_order="listed", in_flight_max=5)
    send(instance, HIGH, 20)
    send(instance, LOW, 20)
    assert counts(take(instance, 5)) == {HIGH: 5}
    assert counts(take(another_instance(instance), 5)) == {LOW: 5}


def test_worker_of_a_low_partition_acknowledges_there_and_takes_high_records(queue: Instance) -> None:
    send(queue, LOW, 50)
    held = take(queue, 4)
    send(queue, HIGH, 2)
    for nonce in nonces(3):
        held = take(queue, 4, acknowledge=entries_of(held), nonce=nonce)
        assert [each.result.value for each in held.acknowledged] == ["ok"] * len(held.acknowledged)
        assert held.acknowledged
    assert counts(held) == {LOW: 4}


def test_acknowledgement_in_a_topic_that_the_acquire_does_not_come_to_is_made(queue: Instance) -> None:
    send(queue, LOW, 4)
    held = take(queue, 4)
    send(queue, HIGH, 8)
    found = take(queue, 4, acknowledge=entries_of(held), nonce="nonce-01")
    assert counts(found) == {HIGH: 4}
    assert [each.result.value for each in found.acknowledged] == ["ok"]


def test_release_in_a_lower_topic_changes_nothing_for_the_higher_one(queue: Instance) -> None:
    send(queue, LOW, 4)
    held = take(queue, 4)
    send(queue, HIGH, 1)
    back = [entry_of(lock, AckType.RELEASE, delay_ms=0) for lock in locks_in(held)]
    assert counts(take(queue, 4, acknowledge=back, nonce="nonce-01")) == {HIGH: 1, LOW: 3}


def test_repeated_acquire_finds_its_locks_of_both_topics_and_takes_no_more(queue: Instance) -> None:
    send(queue, HIGH, 2)
    send(queue, LOW, 9)
    first = take(queue, 6, nonce="nonce-01")
    send(queue, HIGH, 9)
    again = take(queue, 6, nonce="nonce-01", is_repeat=True)
    assert counts(again) == counts(first) == {HIGH: 2, LOW: 4}


def _more_high_records(instance: Instance) -> None:
    send(instance, HIGH, 3)


def _other_worker(instance: Instance) -> None:
    take(instance, 2, nonce="other-01")


def _released_records(instance: Instance) -> None:
    finish(instance, take(instance, 4, nonce="other-02"), AckType.RELEASE, delay_ms=0)


@pytest.mark.parametrize("meanwhile", [_more_high_records, _other_worker, _released_records])
@pytest.mark.parametrize("call", range(7))
def test_acquire_that_others_interrupt_passes_by_no_higher_record_that_was_there_all_the_time(
    queue: Instance, call: int, meanwhile: Callable[[Instance], None]
) -> None:
    send(queue, HIGH, 4, partition=1)
    send(queue, LOW, 20)
    found = counts(take(interrupted_before(queue, call, lambda: meanwhile(queue)), 10, nonce="nonce-01"))
    state = state_of(queue, 1, HIGH)
    if LOW in found:
        assert state.position == 4, "each higher record was locked, by this acquire or another one"


def test_idle_group_arms_the_partitions_of_all_topics(queue: Instance) -> None:
    waking = with_stores(queue, wake_ups=MemoryWakeUps())
    send(queue, HIGH, 1)
    finish(queue, take(queue))
    found = take(waking, must_arm=True).watched
    wanted = {key_of(queue, topic, number) for topic in (HIGH, LOW) for number in (0, 1)}
    assert {each.key.partition_key for each in found} == wanted
    assert all(each.is_armed for each in found)


def test_order_by_key_and_a_filter_keep_the_order_of_topics(instance: Instance) -> None:
    new_topic(instance, HIGH, 1)
    new_topic(instance, LOW, 1)
    new_group(instance, HIGH, LOW, topic_order="listed", ordering="key", filter={"kind": ["good"]})
    good, bad = [("kind", b"good")], [("kind", b"bad")]
    send(instance, HIGH, 5, headers=bad)
    send(instance, HIGH, 2, headers=good)
    send(instance, LOW, 9, headers=good)
    assert counts(take(instance, 10)) == {HIGH: 2, LOW: 8}


def test_filter_that_takes_nothing_of_the_higher_topic_reaches_the_lower_one(instance: Instance) -> None:
    new_topic(instance, HIGH, 1)
    new_topic(instance, LOW, 1)
    new_group(instance, HIGH, LOW, topic_order="listed", filter={"kind": ["good"]})
    send(instance, HIGH, 50, headers=[("kind", b"bad")])
    send(instance, LOW, 9, headers=[("kind", b"good")])
    assert counts(take(instance, 4)) == {LOW: 4}


def test_dead_letters_of_the_higher_topic_hold_up_no_lower_one(instance: Instance) -> None:
    new_topic(instance, HIGH, 1)
    new_topic(instance, LOW, 1)
    new_topic(instance, "dead", 1)
    new_group(instance, HIGH, LOW, topic_order="listed", dead_letter_topic="dead")
    delete_topic(instance, "dead")  # its letters wait
    send(instance, HIGH, 2)
    finish(instance, take(instance), AckType.REJECT)
    send(instance, LOW, 2)
    assert counts(take(another_instance(instance), 2)) == {LOW: 2}


def test_partitions_that_drain_are_looked_at_with_their_topic(queue: Instance) -> None:
    send(queue, HIGH, 2, partition=1)
    alter_topic(queue, HIGH, 1, {})
    send(queue, LOW, 9)
    assert counts(take(another_instance(queue), 10)) == {HIGH: 2, LOW: 8}


def test_topic_that_was_deleted_is_left_out(queue: Instance) -> None:
    send(queue, LOW, 2)
    delete_topic(queue, HIGH)
    assert counts(take(another_instance(queue), 4)) == {LOW: 2}


def test_topics_of_the_call_keep_their_order(queue: Instance) -> None:
    send(queue, LOW, 2)
    send(queue, HIGH, 2)
    assert counts(take(queue, 4, topics=frozenset({LOW}))) == {LOW: 2}
    assert counts(take(queue, 4, topics=frozenset({LOW, HIGH}))) == {HIGH: 2}


def test_acquire_of_an_idle_group_reads_a_few_partitions_at_a_time(queue: Instance) -> None:
    calls: Counter[str] = Counter()
    take(counted_instance(queue, calls))
    assert (calls["share.find_states"], calls["log.heads"]) == (1, 1)


def refusal(instance: Instance, topics: list[str] | None, **config: Any) -> str:
    with pytest.raises(PenstockError) as caught:
        put_share_group(instance, GROUP, topics, config)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_order_is_that_of_the_topics_and_an_alteration_changes_it(queue: Instance) -> None:
    group, _ = put_share_group(queue, GROUP, None, {})
    assert group.ordered_topics == (HIGH, LOW)
    turned, _ = put_share_group(queue, GROUP, [LOW, HIGH], {})
    assert (turned.ordered_topics, turned.version) == ((LOW, HIGH), group.version + 1)
    again, _ = put_share_group(queue, GROUP, [LOW, HIGH], {})
    assert again.version == turned.version
    assert queue.stores.share.get_group(turned.name) == turned
    send(queue, LOW, 5)
    send(queue, HIGH, 5)
    assert counts(take(another_instance(queue), 5)) == {LOW: 5}


def test_order_goes_with_the_setting_and_comes_with_the_topics_alone(queue: Instance) -> None:
    group, _ = put_share_group(queue, GROUP, None, {"topic_order": None})
    assert group.order == ()
    told = refusal(queue, None, topic_order="listed")
    assert "knows no order of its 2 topics" in told
    assert "name all of them in `topics`, the highest first" in told
    listed, _ = put_share_group(queue, GROUP, [HIGH, LOW], {"topic_order": "listed"})
    assert listed.order == (HIGH, LOW)


def test_group_of_one_topic_needs_no_names_to_be_listed(instance: Instance) -> None:
    filled_topic(instance, records=1)
    new_group(instance)
    group, _ = put_share_group(instance, GROUP, None, {"topic_order": "listed"})
    assert group.order == ("orders",)


def test_too_many_topics_are_refused_with_the_way_out(instance: Instance) -> None:
    names = [f"topic-{number}" for number in range(SHARE_LISTED_TOPICS_MAX + 1)]
    for name in names:
        new_topic(instance, name, 1)
    told = refusal(instance, names, topic_order="listed")
    assert told == ("topic_order=listed with 9 topics: 8 at most; name fewer topics, or leave topic_order out")
    put_share_group(instance, GROUP, names[1:], {"topic_order": "listed"})
    assert "with 9 topics" in refusal(instance, names)


def test_description_tells_how_long_each_topic_waits(queue: Instance, clock: SteppedClock) -> None:
    send(queue, LOW, 5)
    clock.sleep_ms(5_000)
    send(queue, HIGH, 2)
    clock.sleep_ms(1_000)
    held = take(queue, 6, lock_ms=30_000)
    assert counts(held) == {HIGH: 2, LOW: 4}
    _, partitions, _ = describe_share_group(queue, GROUP, "", 100)
    assert [each.topic for each in partitions] == [HIGH, HIGH, LOW, LOW]
    ages = {each.topic: each.waiting_age_ms for each in partitions if each.key.partition == 0}
    assert ages == {HIGH: None, LOW: 6_000}


def test_quota_that_is_spent_on_the_higher_topic_lets_the_lower_one_go_on(queue: Instance) -> None:
    send(queue, HIGH, 2)
    send(queue, LOW, 2)
    found = take(queue, 4, may_take=frozenset({LOW}))
    assert counts(found) == {LOW: 2}


@pytest.mark.parametrize(
    ("topics", "may_take", "taken"),
    [
        (None, None, None),
        ({"a", "b"}, None, {"a", "b"}),
        (None, {"a"}, {"a"}),
        ({"a", "b"}, {"b", "gone"}, {"b"}),
    ],
)
def test_wish_takes_the_topics_that_it_names_and_that_are_left(
    topics: set[str] | None, may_take: set[str] | None, taken: set[str] | None
) -> None:
    wish = AcquireWish(
        records_max=1,
        bytes_max=1,
        topics=None if topics is None else frozenset(topics),
        may_take=None if may_take is None else frozenset(may_take),
    )
    assert wish.taken_topics == taken
