"""A record that cannot be moved to the dead-letter topic keeps no other one out of it. No record goes in a circle."""

from collections import Counter

from penstock_core.errors import ErrorCode
from penstock_core.limits import BATCH_DECODED_BYTES_MAX, DEAD_LETTER_BURIALS_MAX, MIB
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.share.acknowledge import AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.acquire.acquire import AcquireWish, acquire
from penstock_service.share.admin.put_share_group import put_share_group
from penstock_service.topics.alter_topic import alter_topic
from tests.service.share.sharing import entries_of, finish, new_group, offsets_in, take
from tests.support.poison import NOW_MS, bomb
from tests.support.refusals import refused
from tests.support.service import (
    SteppedClock,
    ask,
    counted_instance,
    entry,
    head_of,
    key_of,
    new_topic,
    refs_of,
    send,
)


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
