"""A record that cannot be moved to the dead-letter topic keeps no other one out of it. No record goes in a circle.

Records that move keep the order of their partition, or that of their keys where a topic waits.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from penstock_core.errors import ErrorCode
from penstock_core.ids import TopicId, TopicName
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, DEAD_LETTER_BURIALS_MAX, MIB, MOVED_BYTES_MAX, REDRIVE_AT_ONCE
from penstock_core.log.topic import Topic, TopicConfig
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.partitioner import partition_for_key
from penstock_core.share.acknowledge import AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.share.dead_letters.place_records import fitting, keeps_keys, place_records, places_keys
from penstock_service.topics.alter_topic import alter_topic
from tests.service.share.sharing import entries_of, finish, new_group, offsets_in, take
from tests.support.poison import NOW_MS, bomb
from tests.support.refusals import refused
from tests.support.service import SteppedClock, ask, counted_instance, entry, head_of, key_of, new_topic, refs_of, send


def letters_of(instance: Instance, topic: str = "dead") -> list[dict[str, str]]:
    """Our headers of each dead letter, without their prefix."""
    return [
        {name.removeprefix(HEADER_PREFIX): (value or b"").decode() for name, value in record.headers}
        for record in decode(ask(instance, topic).data)
    ]


def test_record_that_is_lost_keeps_none_of_its_neighbours_when_all_are_rejected_at_once(
    instance: Instance, clock: SteppedClock
) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    for number in range(10):
        send(instance, "orders", str(number))
    held = take(instance)
    lost = refs_of(instance, key_of(instance, "orders"))[3].ref.segment_id
    for zone in instance.stores.zones:
        zone.delete([lost])
    finish(instance, held, AckType.REJECT, reason="bad")
    assert [each["offset"] for each in letters_of(instance)] == [str(n) for n in range(10) if n != 3]
    for _ in range(5):
        clock.sleep_ms(600_000)
        take(instance)
    assert len(letters_of(instance)) == 9


def test_letters_move_once_where_each_lock_has_a_record_that_is_lost(instance: Instance, clock: SteppedClock) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead", deliveries_max=1)
    for number in range(24):
        send(instance, "orders", str(number))
    for _ in range(12):  # more than one update of the share item can split
        take(instance, 2)
    for located in refs_of(instance, key_of(instance, "orders"))[::2]:
        for zone in instance.stores.zones:
            zone.delete([located.ref.segment_id])
    for _ in range(6):
        clock.sleep_ms(600_000)
        take(instance)
    assert sorted(int(each["offset"]) for each in letters_of(instance)) == [*range(1, 24, 2)]


def test_record_that_no_batch_can_hold_is_named_and_its_neighbours_move(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    send(instance, "orders", "before")
    largest = bomb(BATCH_DECODED_BYTES_MAX - 100)  # our headers do not fit with it
    produce(instance, [entry("orders", 0, largest)], Acks.QUORUM).all_ok()
    send(instance, "orders", "behind")
    finish(instance, take(instance), AckType.REJECT, reason="bad")
    for _ in range(3):
        take(instance)
    found = {each["offset"]: each["reason"] for each in letters_of(instance)}
    assert found == {"0": "bad", "1": "too_large", "2": "bad"}
    assert instance.telemetry.take()[0]["dead_letters_too_large"] == 1


def test_bombs_are_buried_by_and_by(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    for _ in range(6):
        produce(instance, [entry("orders", 0, bomb(20 * MIB))], Acks.QUORUM).all_ok()
    held = take(instance)
    counts: Counter[str] = Counter()
    finish(counted_instance(instance, counts), held, AckType.REJECT)
    assert head_of(instance, "dead").next_offset == 6
    assert counts["transactions.move"] == 3, "32 MiB each, and the rest of the batch that spends them"


def test_two_groups_that_bury_into_each_other_end_after_so_many_burials(instance: Instance) -> None:
    for topic in ("orders", "first", "second"):
        new_topic(instance, topic)
    new_group(instance, "orders", "second", dead_letter_topic="first")
    put_share_group(instance, "other", ["first"], {"dead_letter_topic": "second"})
    send(instance, "orders", "poison")
    wish = AcquireWish(records_max=10, bytes_max=MIB)
    for _ in range(2 * DEAD_LETTER_BURIALS_MAX):
        finish(instance, take(instance), AckType.REJECT)
        held = acquire(instance, "other", wish)
        acknowledge(instance, "other", entries_of(held, AckType.REJECT))
    copies = head_of(instance, "first").next_offset + head_of(instance, "second").next_offset
    assert copies == DEAD_LETTER_BURIALS_MAX
    assert offsets_in(take(instance)) == []
    assert instance.telemetry.take()[0]["dead_letter_loops"] == 1


def test_count_of_burials_that_is_no_number_is_none(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    forged = NewRecord(NOW_MS, None, b"v", [(f"{HEADER_PREFIX}burials", b"-1e9")])
    produce(instance, [entry("orders", 0, encode([forged]))], Acks.QUORUM).all_ok()
    finish(instance, take(instance), AckType.REJECT)
    assert "burials" not in letters_of(instance)[0]


def test_compacted_topic_is_refused_for_dead_letters_unless_it_is_one_already(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead", cleanup_policy="compact")
    refused(ErrorCode.INVALID_CONFIG, lambda: new_group(instance, dead_letter_topic="dead"))
    new_topic(instance, "later")
    new_group(instance, dead_letter_topic="later")
    alter_topic(instance, "later", None, {"cleanup_policy": "compact"})
    new_group(instance, dead_letter_topic="later", lock_ms=5_000)


TURNED = Topic(name=TopicName("t"), topic_id=TopicId("t"), partitions=7, created_at_ms=1, layout=1, generations=(0, 4))
RECORDS = [NewRecord(1, key, b"%d" % number, ()) for number, key in enumerate([b"a", None, b"b", b"a", b"c"])]


@pytest.mark.parametrize("by_key", [True, False])
def test_records_go_to_their_keys_partitions_or_to_that_of_their_number(by_key: bool) -> None:
    moved = place_records(TURNED, RECORDS, 5, by_key=by_key)
    assert moved is not None
    found = {each.key.partition: [record.value for record in decode(each.data)] for each in moved}
    expected: dict[int, list[bytes | None]] = {}
    for each in RECORDS:
        own = partition_for_key(each.key, 3) if by_key and each.key is not None else 5 % 3
        expected.setdefault(4 + own, []).append(each.value)
    assert found == expected


def test_more_partitions_than_a_transaction_holds_are_refused() -> None:
    wide = replace(TURNED, partitions=500)
    many = [NewRecord(1, b"%d" % number, None, ()) for number in range(2 * REDRIVE_AT_ONCE)]
    assert place_records(wide, many, 0, by_key=True) is None
    moved, count = fitting(many, lambda some: place_records(wide, some, 0, by_key=True))
    assert moved is not None
    assert sum(len([*decode(each.data)]) for each in moved) == count == REDRIVE_AT_ONCE // 2


def test_record_that_is_too_large_does_not_fit() -> None:
    large = NewRecord(1, b"k", Random(1).randbytes(MOVED_BYTES_MAX), ())
    assert fitting([large, *RECORDS], lambda some: place_records(TURNED, some, 0, by_key=True)) == (None, 1)
    assert place_records(TURNED, [], 0, by_key=True) == []


def test_keys_are_kept_when_one_of_both_topics_waits(instance: Instance) -> None:
    plain, waiting = new_topic(instance, "plain"), new_topic(instance, "waiting", ordering_on_change="wait")
    topics = {name: instance.topic_cache.get(name) for name in (plain, waiting)}
    found = [[places_keys(instance, topics[to], source) for source in (plain, waiting, "gone")] for to in topics]
    assert found == [[False, True, False], [True, True, True]]
    assert keeps_keys(replace(TURNED, config=TopicConfig()))
