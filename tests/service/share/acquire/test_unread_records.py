"""Records that an acquire has locked and cannot hand over: removed, compacted, damaged, undecodable, too large.

Batches that hold far more than they look: an acquire decodes a bounded part, and records behind them come.

Share groups step over the jump of a restore at once, whatever their order, and count none of it (finding U15).
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock_core.errors import PenstockError
from penstock_core.ids import LockNonce, Offset
from penstock_core.limits import (
    BATCH_DECODED_BYTES_MAX,
    FETCH_BYTES_MAX,
    JSON_RECORD_BYTES_MAX,
    LOST_HEAD_JUMP_OFFSETS,
    MIB,
    READ_DECODED_BYTES_MAX,
)
from penstock_core.records import record_check
from penstock_core.records.codec import NewRecord, Record, decode, encode, keep_records
from penstock_core.records.record_batch import BytesLike, validate
from penstock_core.share.acknowledge import AckResult
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.append import PartitionBatches, append
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.acquire.acquire import Acquired, AcquireWish, acquire
from penstock_service.share.acquire.decode_acquired import decode_acquired
from penstock_service.share.admin.describe_share_group import describe_share_group
from penstock_service.topics.alter_topic import truncate
from tests.service.share.sharing import GROUP, finish, new_group, offsets_in, results_of, state_of, take, values_in
from tests.support.poison import bomb, undecodable_batch
from tests.support.restoring import jump
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    batch,
    filled_topic,
    key_of,
    new_topic,
    send,
)

STAYS = "nonce-01"  # a nonce that does not stray


def take_json(instance: Instance, size_of: Callable[[Record], int] = lambda _: 100, **wish: Any) -> list[int]:
    """The offsets of one acquire that decodes."""
    asked = AcquireWish(nonce=None, records_max=100, bytes_max=FETCH_BYTES_MAX, **wish)
    _, decoded = decode_acquired(instance, acquire(instance, GROUP, asked), size_of)
    for each in decoded:
        assert {*each.lock.grant.records.offsets()} == {record.offset for record in each.records}
    return [record.offset for each in decoded for record in each.records]


def test_records_below_the_log_start_count_as_expired(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    held = take(instance, 4, lock_ms=1_000)
    truncate(instance, "orders", {0: 7})
    clock.sleep_ms(60_000)
    assert offsets_in(take(instance)) == [(0, 7), (0, 8), (0, 9)]
    assert results_of(finish(instance, held)) == [(((0, 4),), AckResult.DONE)]
    assert state_of(instance).unfinished() == ((7, 10),)


def test_records_that_are_truncated_between_lock_and_read_are_finished(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance)

    def truncate_first(original: Callable[..., Any], *arguments: Any) -> Any:
        if not instance.stores.log.heads([key])[key].log_start_offset:
            truncate(instance, "orders", {0: 10})
        raise UNAVAILABLE

    key = key_of(instance, "orders")
    zones = [Intercepted(zone, get=truncate_first) for zone in instance.stores.zones]
    assert offsets_in(take(another_instance(instance, zones=zones))) == []
    state = state_of(instance)
    assert (state.position, state.open) == (10, 0)


def test_unreadable_records_wait_and_are_never_finished(instance: Instance, clock: SteppedClock) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    zones = [Intercepted(zone, get=_fail) for zone in instance.stores.zones]
    broken = another_instance(instance, zones=zones)
    assert offsets_in(take(broken)) == []
    assert broken.telemetry.take()[0]["share_records_unreadable"] == 1
    waiting = take(instance)
    assert (offsets_in(waiting), waiting.next_available_ms) == ([], 1_000)
    clock.sleep_ms(1_000)
    again = take(instance)
    assert values_in(again) == ["0", "1", "2"]
    assert {lock.grant.lock.deliveries for each in again.partitions for lock in each.locks} == {1}


def test_slow_try_gives_back_nothing_that_a_repeat_has_handed_over(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    repeats: list[Acquired] = []

    def repeat_first(_original: Callable[..., Any], *_arguments: Any) -> Any:
        if not repeats:
            repeats.append(take(instance, nonce=STAYS))
        raise UNAVAILABLE

    slow = another_instance(instance, zones=[Intercepted(zone, get=repeat_first) for zone in instance.stores.zones])
    assert offsets_in(take(slow, nonce=STAYS)) == []
    assert values_in(repeats[0]) == ["0", "1", "2"]
    assert offsets_in(take(instance)) == []
    assert results_of(finish(instance, repeats[0])) == [(((0, 3),), AckResult.OK)]


def test_lost_answer_of_what_goes_back_hides_no_record_that_is_handed_over(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance)
    for value in ("a", "b"):
        send(instance, "orders", value)
    calls: list[int] = []

    def repeated(original: Callable[..., Any], *arguments: Any) -> Any:
        """The driver repeats the second update, because its first answer was lost."""
        calls.append(1)
        done = original(*arguments)
        return original(*arguments) if len(calls) == 2 else done

    def fail_second(original: Callable[..., Any], *arguments: Any) -> Any:
        if second.segment_id in arguments:
            raise UNAVAILABLE
        return original(*arguments)

    key = key_of(instance, "orders")
    _, second = instance.stores.log.heads([key])[key].tail
    zones = [Intercepted(zone, get=fail_second) for zone in instance.stores.zones]
    share = Intercepted(instance.stores.share, update=repeated)
    acquired = take(another_instance(instance, zones=zones, share=share))
    assert len(calls) == 2
    assert values_in(acquired) == ["a"]
    assert state_of(instance).waits.keys() == {1}


def test_late_copy_of_an_acquire_gives_back_nothing_that_its_client_has(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)
    held = take(instance, nonce=STAYS)
    broken = another_instance(instance, zones=[Intercepted(zone, get=_fail) for zone in instance.stores.zones])
    with pytest.raises(PenstockError, match="an earlier try of this acquire has locked, cannot be read now") as caught:
        take(broken, nonce=STAYS)
    assert caught.value.maybe_applied
    assert offsets_in(take(instance)) == []
    assert results_of(finish(instance, held)) == [(((0, 3),), AckResult.OK)]


def test_damaged_records_wait_for_the_longest_pause(instance: Instance) -> None:
    filled_topic(instance, records=3)
    new_group(instance)

    def damage(original: Callable[..., bytes], *arguments: Any) -> bytes:
        return bytes(len(original(*arguments)))

    broken = another_instance(instance, zones=[Intercepted(zone, get=damage) for zone in instance.stores.zones])
    assert offsets_in(take(broken)) == []
    assert take(instance).next_available_ms == 600_000


def test_offsets_that_compaction_removed_are_finished_by_who_decodes(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance)
    whole = batch("a", "b", "c", "d")
    left = keep_records(whole, lambda record: record.offset in (0, 3))
    assert left is not None
    compacted = PartitionBatches(key=key_of(instance, "orders"), data=bytes(left), summary=validate(whole))
    append(instance, [compacted], Acks.QUORUM).all_ok()
    assert take_json(instance) == [0, 3]
    assert state_of(instance).open == 2
    assert state_of(instance).unfinished() == ((0, 1), (3, 4))


def test_undecodable_batch_waits_without_a_dead_letter_topic(instance: Instance) -> None:
    new_topic(instance)
    new_group(instance)
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=undecodable_batch(5))], Acks.QUORUM).all_ok()
    send(instance, "orders", "good")
    assert take_json(instance) == [5]
    assert instance.telemetry.take()[0]["share_records_undecodable"] == 1
    [wait] = state_of(instance).waits.values()
    assert (wait.records.ranges, wait.deliveries, wait.is_rejected) == (((0, 5),), 0, False)


def test_undecodable_batch_is_rejected_where_there_is_a_dead_letter_topic(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    produce(instance, [ProduceEntry(topic="orders", partition=0, data=undecodable_batch(5))], Acks.QUORUM).all_ok()
    assert take_json(instance) == []
    [wait] = state_of(instance).waits.values()
    assert (wait.records.ranges, wait.is_rejected, wait.reason) == (((0, 5),), True, "undecodable")


def test_answer_in_json_is_bounded_by_its_own_size(instance: Instance) -> None:
    filled_topic(instance, records=10)
    new_group(instance)
    assert take_json(instance, lambda _: 1_500_000) == [0, 1]
    assert state_of(instance).unfinished() == ((0, 10),)
    assert take_json(instance) == [*range(2, 10)]


def test_record_that_no_answer_in_json_can_carry_waits(instance: Instance) -> None:
    filled_topic(instance, records=2)
    new_group(instance)

    def size_of(record: Record) -> int:
        return JSON_RECORD_BYTES_MAX + 1 if record.offset == 0 else 100

    assert take_json(instance, size_of) == [1]
    assert take(instance).next_available_ms is not None
    send(instance, "orders", "large")
    with pytest.raises(PenstockError, match="offset 2"):
        take_json(instance, lambda _: JSON_RECORD_BYTES_MAX + 1)
    [wait] = [each for each in state_of(instance).waits.values() if each.records.start == 2]
    assert wait.deliveries == 0
    assert Offset(2) in state_of(instance).waits


def _fail(_original: object, *_: object) -> bytes:
    raise UNAVAILABLE


BOMBS = 6
GOOD = NewRecord(1_000, b"k", b"good", [("type", b"yes")])


def take_as_json(instance: Instance) -> Acquired:
    wish = AcquireWish(nonce=LockNonce("nonce-01"), records_max=100, bytes_max=FETCH_BYTES_MAX)
    try:
        return decode_acquired(instance, acquire(instance, GROUP, wish), lambda record: len(record.value or b""))[0]
    except PenstockError:  # the only records were too large
        return take(instance)


@pytest.mark.parametrize(
    ("config", "acquire"),
    [
        ({"filter": {"type": ["yes"]}}, take),
        ({"ordering": "key"}, take),
        ({"ordering": "key", "filter": {"type": ["yes"]}}, take),
        ({}, take_as_json),
    ],
    ids=["filter", "key", "key and filter", "json"],
)
@pytest.mark.parametrize("poison", [bomb(40 * MIB), undecodable_batch(1)], ids=["bomb", "undecodable"])
def test_acquire_decodes_a_bounded_part_and_reaches_the_record_behind(
    instance: Instance,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    acquire: Callable[[Instance], Acquired],
    poison: bytes,
) -> None:
    decoded: list[int] = []

    def counting(data: BytesLike, note_bytes: Callable[[int], object]) -> Iterator[Record]:
        def note(count: int) -> None:
            decoded.append(count)
            note_bytes(count)

        return decode(data, note)

    monkeypatch.setattr(record_check, "decode", counting)
    new_topic(instance)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead", **config)
    for data in (poison * BOMBS, encode([GOOD])):
        produce(instance, [ProduceEntry(topic="orders", partition=0, data=data)], Acks.QUORUM).all_ok()
    for _ in range(BOMBS + 2):
        decoded.clear()
        acquired = acquire(instance)
        # what looks for keys, what matches the filter, and what makes JSON have a budget each
        assert sum(decoded) <= 2 * (READ_DECODED_BYTES_MAX + BATCH_DECODED_BYTES_MAX)
        if (0, BOMBS) in offsets_in(acquired):
            return
        finish(instance, acquired)
    pytest.fail("the record behind did not come")


BEHIND = 10 + LOST_HEAD_JUMP_OFFSETS


def _lag(instance: Instance) -> tuple[int, int | None]:
    [partition] = describe_share_group(instance, GROUP, "", 10)[1]
    return partition.lag, partition.oldest_age_ms


def _restored(instance: Instance, read: int, **config: Any) -> Acquired:
    """A group that has 0 to `read` in flight when the stage is restored."""
    new_topic(instance)
    new_group(instance, **config)
    send(instance, "orders", *map(str, range(10)))
    held = take(instance, read)
    jump(instance)
    return held


@pytest.mark.parametrize("ordering", ["none", "key"])
@pytest.mark.parametrize("read", [3, 10])
def test_records_behind_the_jump_come_next(instance: Instance, ordering: str, read: int) -> None:
    held = _restored(instance, read, ordering=ordering)
    assert finish(instance, held), "locks below the jump still count"
    send(instance, "orders", "new")
    assert _lag(instance) == (10 - read + 1, 0)
    found: list[str] = []
    for _ in range(3):
        acquired = take(instance)
        found += values_in(acquired)
        finish(instance, acquired)
    assert found == [*map(str, range(read, 10)), "new"]
    assert (state_of(instance).position, _lag(instance)) == (BEHIND + 1, (0, None))


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_jump_without_records_behind_it_is_no_work(instance: Instance, ordering: str) -> None:
    finish(instance, _restored(instance, 10, ordering=ordering))
    acquired = take(instance)
    assert (values_in(acquired), acquired.next_available_ms) == ([], None)
    assert _lag(instance) == (0, None)
