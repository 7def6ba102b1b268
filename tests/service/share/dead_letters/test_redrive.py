"""Dead letters go back to where they came from, each once, whatever dies."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.filters.policy import parse_filter
from penstock_core.ids import LockNonce, Offset, Partition, parse_own_topic_name
from penstock_core.records.codec import NewRecord, decode, encode
from penstock_core.records.partitioner import partition_for_key
from penstock_core.share.acknowledge import AckType
from penstock_core.share.acquire import AcquireRequest, LogBounds, plan_acquire
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.share.share_state import ShareKey
from penstock_core.transaction import Move, MoveOutcome
from penstock_core.zones.zone_state import Acks
from penstock_service.adapters.memory.messages import MemoryWakeUps
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.admin.describe_share_group import list_share_groups
from penstock_service.share.dead_letters.describe_letters import describe_letters
from penstock_service.share.dead_letters.redrive import RedriveCursor, Redriven, RedriveWish, SkipReason, redrive
from penstock_service.topics.alter_topic import alter_topic, delete_topic, truncate
from tests.service.share.sharing import finish, new_group, offsets_in, take
from tests.support.interleaving import catch_kill, interrupted_before, killed_at
from tests.support.refusals import refused
from tests.support.restoring import jump
from tests.support.service import (
    UNAVAILABLE,
    Intercepted,
    SteppedClock,
    another_instance,
    ask,
    counted_instance,
    new_topic,
    send,
)


@pytest.fixture
def dead(instance: Instance) -> Instance:
    """The topic orders of two partitions, all of whose records are dead letters: 0 to 4, and 5 to 9."""
    new_topic(instance, partitions=2)
    new_topic(instance, "dead")
    new_group(instance, dead_letter_topic="dead")
    for partition in range(2):
        records = [
            NewRecord(7_000 + number, b"k", str(5 * partition + number).encode(), [("tag", tag)])
            for number, tag in enumerate((b"even", b"odd", b"even", b"odd", b"even"))
        ]
        produce(
            instance, [ProduceEntry(topic="orders", partition=partition, data=encode(records))], Acks.QUORUM
        ).all_ok()
    while offsets_in(held := take(instance)):
        finish(instance, held, AckType.REJECT, reason="bad")
    return instance


def wish(**facts: Any) -> RedriveWish:
    return RedriveWish(**{"records_max": 500, **facts})


def come_back(instance: Instance, topic: str = "orders", offset: int = 5) -> list[str]:
    """The values of what came back to the partitions of a topic, sorted."""
    partitions = 2 if topic == "orders" else 1
    return sorted(
        (record.value or b"").decode()
        for partition in range(partitions)
        for record in decode(ask(instance, topic, partition=partition).data)
        if record.offset >= offset
    )


def test_dead_letters_go_back_to_their_partitions_as_they_were(dead: Instance) -> None:
    assert redrive(dead, "dead", wish()) == Redriven(moved=10, remaining=0, skipped=0)
    for partition in range(2):
        found = [each for each in decode(ask(dead, "orders", partition=partition).data) if each.offset >= 5]
        assert [(each.value or b"").decode() for each in found] == [str(5 * partition + n) for n in range(5)]
        assert {each.key for each in found} == {b"k"}
        assert [each.timestamp for each in found] == [7_000 + n for n in range(5)]
        assert not [name for each in found for name, _ in each.headers if name.startswith(HEADER_PREFIX)]
    assert redrive(dead, "dead", wish()) == Redriven(moved=0, remaining=0, skipped=0)
    assert len(offsets_in(take(dead))) + len(offsets_in(take(dead))) == 10, "the group works on them again"


def test_call_moves_so_many_at_most_and_the_next_goes_on(dead: Instance) -> None:
    first = redrive(dead, "dead", wish(records_max=4))
    assert (first.moved, first.remaining, first.skipped) == (4, 6, 0)
    assert first.cursor is not None
    assert redrive(another_instance(dead), "dead", wish(records_max=4, cursor=first.cursor)).moved == 4
    assert redrive(dead, "dead", wish()).moved == 2, "without a cursor it begins anew"
    assert come_back(dead) == [str(number) for number in range(10)]


def test_another_topic_gets_them_if_it_is_named(dead: Instance) -> None:
    new_topic(dead, "elsewhere")
    assert redrive(dead, "dead", wish(to="elsewhere")).moved == 10
    assert come_back(dead) == []
    assert come_back(dead, "elsewhere", 0) == [str(number) for number in range(10)]


def test_what_a_filter_skips_stays_for_a_later_redrive(dead: Instance) -> None:
    odd = parse_filter({"tag": ["odd"]})
    six = {SkipReason.NOT_MATCHING: 6}
    assert redrive(dead, "dead", wish(wanted=odd)) == Redriven(moved=4, remaining=6, skipped=6, skipped_by=six)
    assert redrive(dead, "dead", wish(wanted=odd)) == Redriven(moved=0, remaining=6, skipped=6, skipped_by=six)
    assert redrive(dead, "dead", wish()) == Redriven(moved=6, remaining=0, skipped=0)
    assert come_back(dead) == [str(number) for number in range(10)]


def test_redrive_reaches_letters_behind_many_others_and_writes_nothing_for_them(instance: Instance) -> None:
    new_topic(instance)
    new_topic(instance, "dead")
    for tag, count in ((b"other", 12_000), (b"wanted", 50), (b"other", 12_000), (b"wanted", 50)):
        for _ in range(0, count, 1_000):
            put_letters(instance, [tag] * min(count, 1_000))
    counts: Counter[str] = Counter()
    counted = counted_instance(instance, counts)
    done = redrive(counted, "dead", wish(wanted=parse_filter({"tag": ["wanted"]})))
    assert (done.moved, done.remaining, done.skipped, done.cursor) == (100, 24_000, 24_000, None)
    assert counts["share.update"] == 0
    assert counts["transactions.move"] == 2
    assert redrive(instance, "dead", wish()).moved == 500


@pytest.mark.parametrize("modulus", [2, 3, 7])
def test_each_letter_moves_once_by_many_redrives_in_turns(instance: Instance, modulus: int) -> None:
    """Letters that move and stay in turns make many runs, over several notes of the hidden group."""
    new_topic(instance)
    new_topic(instance, "dead")
    tags = [str(number % modulus).encode() for number in range(3_000)]
    for at in range(0, 3_000, 500):
        put_letters(instance, tags[at : at + 500], at)
    moved = 0
    for part in (*range(1, modulus), 0):
        cursor = None
        while True:
            done = redrive(instance, "dead", wish(wanted=parse_filter({"tag": [str(part)]}), cursor=cursor))
            moved, cursor = moved + done.moved, done.cursor
            assert done.remaining == 3_000 - moved
            if cursor is None:
                break
    assert moved == 3_000
    assert sorted(map(int, read_all(instance, "orders"))) == [*range(3_000)]


def test_letters_that_would_make_too_many_runs_stay(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_core.share.redrive.REDRIVE_ITEM_BYTES", 1_000)
    new_topic(instance)
    new_topic(instance, "dead")
    put_letters(instance, [b"even", b"odd"] * 500)
    done = redrive(instance, "dead", wish(wanted=parse_filter({"tag": ["odd"]})))
    assert 0 < done.moved < 500
    assert done.skipped_by[SkipReason.NO_ROOM] == 500 - done.moved
    while redrive(instance, "dead", wish()).remaining:
        pass
    assert len(read_all(instance, "orders")) == 1_000


def test_lock_of_an_older_release_is_left_until_it_ends(dead: Instance, clock: SteppedClock) -> None:
    topic = dead.topic_cache.get(parse_own_topic_name("dead"))
    redrive(dead, "dead", wish(records_max=1))
    [group] = dead.stores.share.hidden_groups("", 10)
    key = ShareKey(group.share_group_id, topic.topic_id, Partition(0))
    request = AcquireRequest(nonce=LockNonce("nonce-01"), records_max=3, lock_ms=60_000, now_ms=clock.now_ms())
    log = LogBounds(log_start=Offset(0), next_offset=Offset(10))
    plan = plan_acquire(dead.stores.share.find_states([key])[key], group.config, log, request)
    assert plan.update is not None
    assert dead.stores.share.update(key, plan.update).is_applied
    assert redrive(dead, "dead", wish()).moved == 6
    clock.sleep_ms(60_000)
    assert redrive(dead, "dead", wish()) == Redriven(moved=3, remaining=0, skipped=0)


def put_letters(instance: Instance, tags: Sequence[bytes], first: int = 0) -> None:
    """Letters of the topic orders whose values count from `first` on."""
    told = [(f"{HEADER_PREFIX}topic", b"orders"), (f"{HEADER_PREFIX}partition", b"0")]
    records = [
        NewRecord(1_000, None, str(number).encode(), [("tag", tag), *told]) for number, tag in enumerate(tags, first)
    ]
    produce(instance, [ProduceEntry(topic="dead", partition=0, data=encode(records))], Acks.QUORUM).all_ok()


def read_all(instance: Instance, topic: str) -> list[str]:
    """The values of all records of partition 0."""
    found: list[str] = []
    while (result := ask(instance, topic, len(found))).data:
        found += [(record.value or b"").decode() for record in decode(result.data) if record.offset >= len(found)]
    return found


def test_filter_may_ask_for_the_reason(dead: Instance) -> None:
    reason = {f"{HEADER_PREFIX}reason": ["other"]}
    assert redrive(dead, "dead", wish(wanted=parse_filter(reason))).moved == 0


def test_records_without_a_place_to_go_to_are_skipped(instance: Instance) -> None:
    new_topic(instance, "dead")
    for topic in ("gone", "a b", "dead"):
        headers = [(f"{HEADER_PREFIX}topic", topic.encode()), (f"{HEADER_PREFIX}partition", b"9" * 5_000)]
        data = encode([NewRecord(1_000, None, b"v", headers)])
        produce(instance, [ProduceEntry(topic="dead", partition=0, data=data)], Acks.QUORUM).all_ok()
    send(instance, "dead", "no headers")
    four = {SkipReason.NO_TOPIC: 4}
    assert redrive(instance, "dead", wish()) == Redriven(moved=0, remaining=4, skipped=4, skipped_by=four)
    new_topic(instance, "gone", 3)
    assert redrive(another_instance(instance), "dead", wish()).moved == 1
    assert come_back(instance, "gone", 0) == ["v"]


def test_undecodable_ones_and_purged_ones(dead: Instance) -> None:
    truncate(dead, "dead", {0: 7})
    headers = [(f"{HEADER_PREFIX}topic", b"orders"), (f"{HEADER_PREFIX}reason", b"undecodable")]
    data = encode([NewRecord(1_000, None, b"batch", headers)])
    produce(dead, [ProduceEntry(topic="dead", partition=0, data=data)], Acks.QUORUM).all_ok()
    assert redrive(dead, "dead", wish()) == Redriven(
        moved=3, remaining=1, skipped=1, skipped_by={SkipReason.UNDECODABLE: 1}
    )


def test_hidden_group_is_not_listed_and_a_topic_made_anew_has_its_own(dead: Instance) -> None:
    redrive(dead, "dead", wish())
    assert [group.name for group in list_share_groups(dead, 10, "")[0]] == ["workers"]
    delete_topic(dead, "dead")
    new_topic(dead, "dead")
    assert redrive(another_instance(dead), "dead", wish()) == Redriven(moved=0, remaining=0, skipped=0)


def test_wrong_redrive_is_refused(dead: Instance) -> None:
    refused(ErrorCode.UNKNOWN_TOPIC, lambda: redrive(dead, "none", wish()))
    refused(ErrorCode.UNKNOWN_TOPIC, lambda: redrive(dead, "dead", wish(to="none")))
    refused(ErrorCode.INVALID_REQUEST, lambda: redrive(dead, "dead", wish(to="dead")))


@pytest.mark.parametrize("place", range(24))
@pytest.mark.parametrize("is_applied", [False, True])
def test_redrive_that_dies_loses_and_doubles_nothing(
    dead: Instance, clock: SteppedClock, place: int, is_applied: bool
) -> None:
    with catch_kill():
        redrive(killed_at(dead, place, is_applied=is_applied), "dead", wish(records_max=6))
    for _ in range(30):
        clock.sleep_ms(100_000)
        if not redrive(dead, "dead", wish()).remaining:
            break
    assert come_back(dead) == [str(number) for number in range(10)]


@pytest.mark.parametrize("place", range(0, 24, 2))
def test_two_redrives_at_once(dead: Instance, clock: SteppedClock, place: int) -> None:
    other = another_instance(dead)
    redrive(interrupted_before(dead, place, lambda: redrive(other, "dead", wish(records_max=3))), "dead", wish())
    for _ in range(30):
        clock.sleep_ms(100_000)
        if not redrive(dead, "dead", wish()).remaining:
            break
    assert come_back(dead) == [str(number) for number in range(10)]


def test_dead_letters_go_to_their_keys_partitions_in_a_new_generation(dead: Instance) -> None:
    alter_topic(dead, "orders", None, {"ordering_on_change": "wait"})
    with catch_kill():
        alter_topic(killed_at(another_instance(dead), 5, is_applied=True), "orders", 5, {})
    assert redrive(dead, "dead", wish()) == Redriven(moved=10, remaining=0, skipped=0)
    own = 2 + partition_for_key(b"k", 5)
    found = {each: [*decode(ask(dead, "orders", partition=each).data)] for each in range(2, 7)}
    assert [number for number, records in found.items() if records] == [own]
    assert len(found[own]) == 10


@pytest.mark.parametrize("redriven_before", [0, 4, 10])
def test_redrive_steps_over_the_jump_of_a_restore_at_once(dead: Instance, redriven_before: int) -> None:
    if redriven_before:
        redrive(dead, "dead", wish(records_max=redriven_before))
    jump(dead, topic="dead")
    put_letters(dead, [b"odd"] * 3, first=10)
    assert redrive(dead, "dead", wish()) == Redriven(moved=13 - redriven_before, remaining=0, skipped=0)


def test_redrive_wakes_blindly_when_its_transaction_may_be_applied_and_the_heads_cannot_be_read(
    dead: Instance,
) -> None:
    wake_ups = MemoryWakeUps()
    lost: list[bool] = []

    def move(original: Callable[[Move], MoveOutcome], wanted: Move) -> MoveOutcome:
        assert original(wanted).is_applied
        lost.append(True)
        return replace(original(wanted), maybe_applied=True)  # as after a lost answer

    def heads(original: Any, *arguments: Any) -> Any:
        if lost:
            raise UNAVAILABLE
        return original(*arguments)

    failing = another_instance(
        dead,
        transactions=Intercepted(dead.stores.transactions, move=move),
        log=Intercepted(dead.stores.log, heads=heads),
        wake_ups=wake_ups,
    )
    with pytest.raises(PenstockError) as caught:
        redrive(failing, "dead", wish())
    assert caught.value.maybe_applied
    assert {json.loads(each.event)["next_offset"] for each in wake_ups.messages} == {None}


def test_one_letter_is_moved_or_dropped_and_the_others_stay(dead: Instance) -> None:
    assert redrive(dead, "dead", wish(only=RedriveCursor(0, 3))) == Redriven(moved=1, remaining=9, skipped=0)
    assert redrive(dead, "dead", wish(only=RedriveCursor(0, 3))) == Redriven(moved=0, remaining=9, skipped=0)
    assert redrive(dead, "dead", wish(only=RedriveCursor(0, 5), is_drop=True)).remaining == 8
    assert redrive(dead, "dead", wish(only=RedriveCursor(0, 99))).moved == 0
    assert redrive(dead, "dead", wish(only=RedriveCursor(7, 0))).moved == 0
    [found] = describe_letters(dead, "dead")
    assert (found.records, found.open, found.open_ranges) == (10, 8, ((0, 3), (4, 5), (6, 10)))
    assert len(come_back(dead)) == 1
    assert redrive(dead, "dead", wish()).moved == 8
    assert len(come_back(dead)) == 9


def test_dropped_letters_that_match_move_nowhere(dead: Instance) -> None:
    done = redrive(dead, "dead", wish(wanted=parse_filter({"tag": ["even"]}), records_max=2, is_drop=True))
    assert (done.moved, done.remaining) == (2, 8)
    assert redrive(dead, "dead", wish(wanted=parse_filter({"tag": ["even"]}), is_drop=True)).moved == 4
    assert redrive(dead, "dead", wish()).moved == 4
    assert sorted(map(int, come_back(dead))) == [1, 3, 6, 8]
