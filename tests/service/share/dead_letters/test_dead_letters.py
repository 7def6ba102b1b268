"""Records go to the dead-letter topic after their last delivery, or when they are rejected: each exactly once.

Which dead letters are open, whatever redrives have done, and after retention.
"""

from collections import Counter

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import DEAD_LETTER_RANGES_MAX
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.share.acknowledge import AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import produce
from penstock_service.share.acknowledge import acknowledge
from penstock_service.share.dead_letters import describe_letters as module
from penstock_service.share.dead_letters.describe_letters import describe_letters
from penstock_service.share.dead_letters.redrive import RedriveCursor, RedriveWish, redrive
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from tests.service.share.sharing import (
    GROUP,
    entries_of,
    entry_of,
    finish,
    locks_in,
    new_group,
    offsets_in,
    state_of,
    take,
)
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.poison import undecodable_batch
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    counted_instance,
    entry,
    filled_topic,
    new_topic,
    send,
)


@pytest.fixture
def queue(instance: Instance) -> Instance:
    """The topic orders with three records, and a group that gives up after two deliveries."""
    filled_topic(instance, records=3)
    new_topic(instance, "dead", 2)
    new_group(instance, dead_letter_topic="dead", deliveries_max=2, retry_backoff_ms_min=1, retry_backoff_ms_max=1_000)
    return instance


def dead_letters(instance: Instance, partition: int = 0) -> list[tuple[bytes | None, dict[str, str]]]:
    """Value and headers of each dead letter, the names of our headers without their prefix."""
    found = ask(instance, "dead", partition=partition)
    return [
        (record.value, {name.removeprefix(HEADER_PREFIX): (value or b"").decode() for name, value in record.headers})
        for record in decode(found.data)
    ]


def fail(instance: Instance, times: int) -> None:
    """Acquire everything and release it, so many times."""
    for _ in range(times):
        finish(instance, take(instance), AckType.RELEASE, delay_ms=0)


def test_record_is_dead_after_its_last_delivery_and_not_before(queue: Instance) -> None:
    fail(queue, 1)
    assert dead_letters(queue) == []
    fail(queue, 1)
    letters = dead_letters(queue)
    assert [value for value, _ in letters] == [b"0", b"1", b"2"]
    assert letters[1][1] == {
        "topic": "orders",
        "partition": "0",
        "offset": "1",
        "group": "workers",
        "reason": "deliveries",
        "deliveries": "2",
        "time_ms": letters[1][1]["time_ms"],
    }
    state = state_of(queue)
    assert (state.open, dict(state.waits), dict(state.locks)) == (0, {}, {})
    assert offsets_in(take(queue)) == []
    assert len(dead_letters(queue)) == 3


def test_rejected_record_goes_there_with_its_reason_and_the_others_stay(queue: Instance) -> None:
    [lock] = locks_in(take(queue))
    acknowledge(queue, GROUP, [entry_of(lock, AckType.REJECT, ((1, 2),), reason="no such customer")])
    [(value, headers)] = dead_letters(queue)
    assert (value, headers["reason"], headers["deliveries"]) == (b"1", "no such customer", "1")
    assert state_of(queue).unfinished() == ((0, 1), (2, 3))
    assert queue.telemetry.take()[0]["share_records_dead_lettered"] == 1


def test_reject_in_an_acquire_goes_there_too(queue: Instance) -> None:
    held = take(queue)
    take(queue, acknowledge=entries_of(held, AckType.REJECT, reason="bad"), nonce="nonce-01")
    assert len(dead_letters(queue)) == 3


def test_lock_that_ends_with_the_last_delivery_is_buried_by_the_next_acquirer(
    queue: Instance, clock: SteppedClock
) -> None:
    fail(queue, 1)
    take(queue, lock_ms=1_000)
    clock.sleep_ms(1_000)
    take(another_instance(queue))
    assert [headers["deliveries"] for _, headers in dead_letters(queue)] == ["2", "2", "2"]


def test_record_whose_last_lock_ends_in_silence_has_the_reason_of_its_release_before(
    queue: Instance, clock: SteppedClock
) -> None:
    [lock] = locks_in(take(queue))
    entries = [
        entry_of(lock, AckType.RELEASE, ((0, 1),), delay_ms=0, reason="no such customer"),
        entry_of(lock, AckType.RELEASE, ((1, 3),), delay_ms=0),
    ]
    acknowledge(queue, GROUP, entries)
    assert len(state_of(queue).waits) == 1, "a reason keeps no waits apart"
    take(queue, lock_ms=1_000)
    clock.sleep_ms(1_000)
    take(another_instance(queue))
    reasons = [headers["reason"] for _, headers in dead_letters(queue)]
    assert reasons == ["deliveries, earlier: no such customer", "deliveries", "deliveries"]


def test_last_release_without_a_reason_tells_the_one_before(queue: Instance) -> None:
    finish(queue, take(queue), AckType.RELEASE, delay_ms=0, reason="x" * 100)
    fail(queue, 1)
    assert dead_letters(queue)[0][1]["reason"] == f"deliveries, earlier: {'x' * 64}"


def test_key_timestamp_and_own_headers_stay_and_forged_ones_go(queue: Instance) -> None:
    own = [("tag", b"x"), (f"{HEADER_PREFIX}topic", b"forged"), ("tag", b"y")]
    batch = encode([NewRecord(7_000, b"k", b"v", own)])
    produce(queue, [entry("orders", 0, batch)], Acks.QUORUM).all_ok()
    while offsets_in(held := take(queue)):
        finish(queue, held, AckType.REJECT)
    [record] = [each for each in decode(ask(queue, "dead").data) if each.key == b"k"]
    assert (record.value, record.timestamp) == (b"v", 7_000)
    assert [pair for pair in record.headers if not pair[0].startswith(HEADER_PREFIX)] == [("tag", b"x"), ("tag", b"y")]
    assert dict(record.headers)[f"{HEADER_PREFIX}topic"] == b"orders"
    assert len(record.headers) == 2 + 8, "it says that it was a dead letter before, so its burials are counted"


def test_partition_follows_the_source(instance: Instance) -> None:
    filled_topic(instance, partitions=3, records=1)
    new_topic(instance, "dead", 2)
    new_group(instance, dead_letter_topic="dead")
    for _ in range(6):
        finish(instance, take(instance), AckType.REJECT)
    found = {partition: [h["partition"] for _, h in dead_letters(instance, partition)] for partition in range(2)}
    assert {partition: sorted(numbers) for partition, numbers in found.items()} == {0: ["0", "2"], 1: ["1"]}


def test_dead_letters_open_a_generation_that_an_operator_left(instance: Instance) -> None:
    filled_topic(instance, records=2)
    new_topic(instance, "dead", 1, ordering_on_change="wait")
    new_group(instance, dead_letter_topic="dead")
    held = take(instance)
    with catch_kill():
        alter_topic(killed_at(another_instance(instance), 5, is_applied=True), "dead", 2, {})
    finish(instance, held, AckType.REJECT)
    assert [len(dead_letters(instance, partition)) for partition in range(3)] == [0, 2, 0]


def test_missing_topic_lets_the_records_wait_and_is_told(queue: Instance, clock: SteppedClock) -> None:
    delete_topic(queue, "dead")
    other = another_instance(queue)
    fail(other, 2)
    counts, entries = other.telemetry.take()
    assert counts["dead_letters_stuck"] == 1
    assert "dead" in str(entries)
    assert take(other).next_available_ms == 1_000
    new_topic(queue, "dead", 1)
    clock.sleep_ms(60_000)
    take(another_instance(queue))
    assert len(dead_letters(queue)) == 3


def test_storage_that_fails_delays_a_burial_and_not_the_acknowledgement(queue: Instance, clock: SteppedClock) -> None:
    fail(queue, 1)

    def refuse(_original: object, _move: object) -> bool:
        raise UNAVAILABLE

    failing = another_instance(queue, transactions=Intercepted(queue.stores.transactions, move=refuse))
    fail(failing, 1)
    assert failing.telemetry.take()[0]["burials_failed"] == 1
    assert take(failing).next_available_ms == 1_000
    take(queue)
    assert len(dead_letters(queue)) == 3


def test_records_that_retention_removed_are_not_buried(queue: Instance) -> None:
    held = take(queue)
    truncate(queue, "orders", {0: 2})
    finish(queue, held, AckType.REJECT)
    assert [value for value, _ in dead_letters(queue)] == [b"2"]
    assert state_of(queue).open == 0


def test_undecodable_batch_is_one_dead_letter(queue: Instance) -> None:
    finish(queue, take(queue))
    poison = undecodable_batch(5)
    produce(queue, [entry("orders", 0, poison)], Acks.QUORUM).all_ok()
    finish(queue, take(queue), AckType.REJECT, reason="undecodable")
    [(value, headers)] = dead_letters(queue)
    assert (value or b"")[12:] == poison[12:]
    assert (headers["reason"], headers["offset"]) == ("undecodable", "3")


def test_one_call_moves_many_dead_letters(instance: Instance) -> None:
    filled_topic(instance, records=250)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    finish(instance, take(instance, 250), AckType.REJECT)
    assert [headers["offset"] for _, headers in dead_letters(instance)] == [str(number) for number in range(250)]


def test_calls_of_a_burial(queue: Instance) -> None:
    counts: Counter[str] = Counter()
    counted = counted_instance(queue, counts)
    held = take(counted)
    counts.clear()
    finish(counted, held, AckType.REJECT)
    # The share item, the head of the source, the records, the segment, the transaction, and the target's head.
    assert counts.pop("share.find_states") == 1, "it looks whether there are more"
    del counts["topics.get"], counts["zone_states.get"]
    assert counts == {"share.update": 1, "log.heads": 2, "zone.get": 1, "zone.put": 3, "transactions.move": 1}


@pytest.mark.parametrize("place", range(14))
@pytest.mark.parametrize("is_applied", [False, True])
def test_each_record_is_buried_once_wherever_the_buriers_die(queue: Instance, place: int, is_applied: bool) -> None:
    fail(queue, 1)
    held = take(queue)
    with catch_kill():
        finish(killed_at(queue, place, is_applied=is_applied), held, AckType.REJECT)
    finish(queue, held, AckType.REJECT)
    take(queue)
    assert [headers["offset"] for _, headers in dead_letters(queue)] == ["0", "1", "2"]


@pytest.mark.parametrize("place", range(14))
def test_two_that_bury_the_same_records_bury_them_once(queue: Instance, clock: SteppedClock, place: int) -> None:
    fail(queue, 1)
    take(queue, lock_ms=1_000)
    clock.sleep_ms(1_000)
    other = another_instance(queue)
    take(interrupted_before(queue, place, lambda: take(other)))
    assert [headers["offset"] for _, headers in dead_letters(queue)] == ["0", "1", "2"]


@pytest.mark.parametrize("place", range(14))
def test_late_acceptance_comes_first_or_is_lost(queue: Instance, clock: SteppedClock, place: int) -> None:
    fail(queue, 1)
    held = take(queue, lock_ms=1_000)
    clock.sleep_ms(1_000)
    results: list[str] = []

    def accept() -> None:
        results.extend(each.result.value for each in finish(queue, held))

    take(interrupted_before(queue, place, accept))
    if results == ["ok"]:
        assert dead_letters(queue) == []
    else:
        assert len(dead_letters(queue)) == 3


def test_error_of_the_acknowledgement_itself_is_raised(queue: Instance) -> None:
    held = take(queue)

    def refuse(_original: object, *_: object) -> object:
        raise UNAVAILABLE

    failing = another_instance(queue, share=Intercepted(queue.stores.share, update=refuse))
    with pytest.raises(PenstockError):
        finish(failing, held, AckType.REJECT)


def test_all_letters_are_open_before_the_first_redrive(instance: Instance) -> None:
    new_topic(instance, "dead", partitions=2)
    for number in range(3):
        send(instance, "dead", str(number), partition=1)
    assert [(each.records, each.open, each.open_ranges) for each in describe_letters(instance, "dead")] == [
        (0, 0, ()),
        (3, 3, ((0, 3),)),
    ]


def test_letters_that_retention_removed_are_not_open(instance: Instance) -> None:
    new_topic(instance, "dead")
    for number in range(6):
        send(instance, "dead", str(number))
    redrive(instance, "dead", RedriveWish(records_max=1, only=RedriveCursor(0, 4), is_drop=True))
    truncate(instance, "dead", {0: 2})
    [found] = describe_letters(instance, "dead")
    assert (found.records, found.open, found.open_ranges, found.ranges_from) == (4, 3, ((2, 4), (5, 6)), 2)


def test_answer_of_many_ranges_tells_the_newest(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEAD_LETTER_RANGES_MAX", 2)
    new_topic(instance, "dead")
    for number in range(9):
        send(instance, "dead", str(number))
    for offset in (1, 3, 5):
        redrive(instance, "dead", RedriveWish(records_max=1, only=RedriveCursor(0, offset), is_drop=True))
    [found] = describe_letters(instance, "dead")
    assert (found.open, found.open_ranges, found.ranges_from) == (6, ((4, 5), (6, 9)), 4)
    assert DEAD_LETTER_RANGES_MAX == 10_000


def test_topic_that_is_unknown_is_refused(instance: Instance) -> None:
    with pytest.raises(PenstockError) as caught:
        describe_letters(instance, "dead")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC
