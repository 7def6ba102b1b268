import pytest

from penstock.model import TopicPartition
from penstock.share.acknowledgements import ACCEPT, GIVE_BACK, RELEASE, LockKey, Verb, Wish
from penstock_core.limits import KAFKA_SHARE_RECORDS_MAX
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.share.held_locks import HeldLock, HeldLocks, WishedRange

PLACE = TopicPartition("orders", 0)


def lock(name: str, *offsets: int, ends_ms: int = 30_000) -> HeldLock:
    return HeldLock(key=LockKey("orders", 0, name), lock_id=name, count=len(offsets), ends_ms=ends_ms, open={*offsets})


def refused(locks: HeldLocks, wished: WishedRange) -> bool:
    with pytest.raises(RequestRefused) as error:
        locks.entries(PLACE, [wished])
    return error.value.code is KafkaError.invalid_record_state


def test_range_over_two_locks_becomes_an_entry_for_each() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0, 1, 2))
    locks.add(lock("b", 3, 4))
    first, second = locks.entries(PLACE, [WishedRange(1, 5, ACCEPT)])
    assert (first.key.lock_id, first.offsets, first.is_whole) == ("a", (1, 2), False)
    assert (second.key.lock_id, second.offsets, second.is_whole) == ("b", (3, 4), True)


def test_newer_lock_takes_the_record_over() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0, 1))
    locks.add(lock("b", 1))
    assert [each.key.lock_id for each in locks.entries(PLACE, [WishedRange(0, 2, ACCEPT)])] == ["a", "b"]
    assert locks.count == 2


def test_acknowledged_records_are_no_longer_held_but_a_repeat_is_known_until_the_lock_would_end() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0, 1, 2))
    [entry] = locks.entries(PLACE, [WishedRange(0, 2, ACCEPT)])
    locks.acknowledged(entry, entry.offsets)
    assert locks.count == 1
    assert locks.entries(PLACE, [WishedRange(0, 2, ACCEPT)]) == []
    assert refused(locks, WishedRange(0, 2, RELEASE))
    assert refused(locks, WishedRange(0, 3, ACCEPT))
    locks.look(31_000)
    assert refused(locks, WishedRange(0, 2, ACCEPT))


def test_repeat_over_two_locks_is_known() -> None:
    locks = HeldLocks()
    locks.add(lock("b", 2, 3))
    locks.add(lock("a", 0, 1))
    for entry in locks.entries(PLACE, [WishedRange(0, 4, ACCEPT)]):
        locks.acknowledged(entry, entry.offsets)
    assert locks.entries(PLACE, [WishedRange(0, 4, ACCEPT)]) == []
    assert locks.entries(PLACE, [WishedRange(1, 3, ACCEPT)]) == []


def test_acknowledged_records_are_known_up_to_a_bound_however_long_their_locks_last() -> None:
    locks = HeldLocks()
    for number in range(KAFKA_SHARE_RECORDS_MAX // 1_000 + 1):
        offsets = range(number * 1_000, (number + 1) * 1_000)
        locks.add(lock(str(number), *offsets, ends_ms=43_200_000))
        [entry] = locks.entries(PLACE, [WishedRange(offsets.start, offsets.stop, ACCEPT)])
        locks.acknowledged(entry, entry.offsets)
    assert refused(locks, WishedRange(0, 1_000, ACCEPT))
    assert locks.entries(PLACE, [WishedRange(1_000, KAFKA_SHARE_RECORDS_MAX + 1_000, ACCEPT)]) == []


def test_record_that_came_again_is_acknowledged_again() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0))
    [entry] = locks.entries(PLACE, [WishedRange(0, 1, RELEASE)])
    locks.acknowledged(entry, entry.offsets)
    locks.add(lock("b", 0))
    assert [each.key.lock_id for each in locks.entries(PLACE, [WishedRange(0, 1, RELEASE)])] == ["b"]


def test_renewal_keeps_the_records() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0))
    [entry] = locks.entries(PLACE, [WishedRange(0, 1, Wish(Verb.RENEW))])
    locks.acknowledged(entry, entry.offsets)
    assert locks.count == 1


def test_newest_lock_id_goes_to_the_service() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0, 1))
    locks.rename(LockKey("orders", 0, "a"), "a~next")
    [entry] = locks.entries(PLACE, [WishedRange(0, 1, ACCEPT)])
    assert (entry.key.lock_id, entry.lock_id) == ("a", "a~next")


def test_all_that_is_left_can_be_given_back() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0, 1))
    locks.lost(LockKey("orders", 0, "a"), [0])
    assert [(each.offsets, each.is_whole) for each in locks.all_entries(GIVE_BACK)] == [((1,), False)]


def test_locks_are_known_for_ten_minutes_after_their_end() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0))
    locks.look(600_000)
    assert locks.count == 1
    locks.look(640_000)
    assert locks.count == 0


def test_oldest_locks_go_when_a_client_holds_too_many_records() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0))
    locks.add(lock("b", *range(1, KAFKA_SHARE_RECORDS_MAX + 1)))
    assert locks.count == KAFKA_SHARE_RECORDS_MAX
    assert refused(locks, WishedRange(0, 1, ACCEPT))


def test_hostile_range_is_refused_without_walking_it() -> None:
    locks = HeldLocks()
    locks.add(lock("a", 0))
    assert refused(locks, WishedRange(0, 2**62, ACCEPT))
