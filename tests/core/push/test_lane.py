from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, SubscriptionId, SubscriptionName, TopicId
from penstock_core.limits import PUSH_LOCK_MS
from penstock_core.push.lane import (
    FREE,
    Drop,
    LaneState,
    Postpone,
    PushMessage,
    Turn,
    decode_push_message,
    encode_push_message,
    finish,
    lane_of,
    renew,
    rest,
    take,
)

NOW_MS = 1_000_000
FIRST = Turn(message_id="m1", nonce="n1", sent_version=3, seen_version=3, now_ms=NOW_MS)
SECOND = Turn(message_id="m2", nonce="n2", sent_version=3, seen_version=3, now_ms=NOW_MS + 1)
MESSAGE = PushMessage(name=SubscriptionName("pack"), subscription_id=SubscriptionId("0a" * 10), lane=3, version=2)


def held(turn: Turn = FIRST, state: LaneState | None = None) -> LaneState:
    after = take(state, turn)
    assert isinstance(after, LaneState)
    return after


def test_neighbours_lie_in_different_lanes() -> None:
    keys = [PartitionKey(TopicId("ab" * 10), Partition(number)) for number in range(6)]
    assert sorted(lane_of(key, 6) for key in keys) == list(range(6))
    assert {lane_of(key, 1) for key in keys} == {0}


def test_take_of_a_new_lane_is_its_first_version() -> None:
    assert held() == LaneState(
        version=1, seen_version=3, holder="m1", nonce="n1", locked_until_ms=NOW_MS + PUSH_LOCK_MS
    )


def test_another_message_is_dropped_while_the_lane_is_held() -> None:
    assert take(held(), SECOND) == Drop()


@pytest.mark.parametrize(
    "turn",
    [
        replace(FIRST, nonce="n2"),  # the queue delivered it twice, or again
        replace(SECOND, sent_version=4),  # its sender knows more than the holder
    ],
)
def test_message_that_stands_for_something_comes_again(turn: Turn) -> None:
    assert take(held(), turn) == Postpone(until_ms=NOW_MS + PUSH_LOCK_MS)


def test_sleeper_comes_again_while_another_message_holds_the_lane() -> None:
    asleep = rest(held(), NOW_MS + 5_000, NOW_MS)
    busy = held(SECOND, asleep)
    assert take(busy, replace(FIRST, nonce="n3")) == Postpone(until_ms=SECOND.now_ms + PUSH_LOCK_MS)


def test_take_that_was_applied_goes_on() -> None:
    assert take(held(), FIRST) == held()


def test_lock_that_ended_unreleased_counts_a_death() -> None:
    late = replace(SECOND, now_ms=NOW_MS + PUSH_LOCK_MS)
    died = held(late, held())
    assert (died.holder, died.deaths, died.version) == ("m2", 1, 2)
    assert finish(died).deaths == 0


def test_finish_leaves_no_message() -> None:
    assert finish(held()) == LaneState(version=2, seen_version=3)


def test_rest_leaves_the_holder_asleep() -> None:
    assert rest(held(), NOW_MS + 5_000, NOW_MS) == LaneState(
        version=2, seen_version=3, locked_until_ms=FREE, sleeper="m1", due_ms=NOW_MS + 5_000
    )


@pytest.mark.parametrize(
    ("due_ms", "sleeper"),
    [
        (NOW_MS + 5_000, "m1"),  # the earlier sleeper comes in time
        (NOW_MS + 4_000, "m2"),  # it would come too late
    ],
)
def test_rest_keeps_an_earlier_sleeper_that_comes_in_time(due_ms: int, sleeper: str) -> None:
    asleep = rest(held(), NOW_MS + 5_000, NOW_MS)
    assert rest(held(SECOND, asleep), due_ms, NOW_MS + 2).sleeper == sleeper


def test_rest_trusts_no_sleeper_that_is_overdue() -> None:
    asleep = rest(held(), NOW_MS + 5, NOW_MS)
    assert rest(held(replace(SECOND, now_ms=NOW_MS + 6), asleep), NOW_MS + 9, NOW_MS + 6).sleeper == "m2"


def test_finish_keeps_the_sleeper_of_another_message() -> None:
    asleep = rest(held(), NOW_MS + 5_000, NOW_MS)
    after = finish(held(SECOND, asleep))
    assert (after.sleeper, after.due_ms) == ("m1", NOW_MS + 5_000)
    woken = replace(FIRST, nonce="n3", now_ms=NOW_MS + 5_000)
    assert finish(held(woken, after)).sleeper == ""


def test_look_comes_with_the_message_of_the_holder_beside_an_earlier_sleeper() -> None:
    asleep = rest(held(), NOW_MS + 60_000, NOW_MS)
    after = rest(held(SECOND, asleep), NOW_MS + 60_000, NOW_MS + 2, NOW_MS + 9_000)
    assert (after.sleeper, after.due_ms) == ("m1", NOW_MS + 60_000)
    assert (after.looker, after.look_ms) == ("m2", NOW_MS + 9_000)


def test_holder_that_sleeps_looks_itself() -> None:
    after = rest(held(), NOW_MS + 60_000, NOW_MS, NOW_MS + 9_000)
    assert (after.sleeper, after.due_ms, after.looker) == ("m1", NOW_MS + 9_000, "")


@pytest.mark.parametrize(
    ("now_ms", "look_ms", "looker"),
    [
        (NOW_MS + 3, NOW_MS + 9_000, "m2"),  # the earlier one comes in time
        (NOW_MS + 3, NOW_MS + 8_999, "m3"),  # it would come too late
        (NOW_MS + 9_000, NOW_MS + 9_001, "m3"),  # it should be there, so it may be gone
    ],
)
def test_look_of_an_earlier_message_is_enough_if_it_comes_in_time(now_ms: int, look_ms: int, looker: str) -> None:
    asleep = rest(held(), NOW_MS + 60_000, NOW_MS)
    looking = rest(held(SECOND, asleep), NOW_MS + 60_000, NOW_MS + 2, NOW_MS + 9_000)
    third = Turn(message_id="m3", nonce="n3", sent_version=3, seen_version=3, now_ms=now_ms)
    assert rest(held(third, looking), NOW_MS + 60_000, now_ms, look_ms).looker == looker


@pytest.mark.parametrize("end", [finish, lambda state: rest(state, NOW_MS + 60_000, NOW_MS + 9_000)])
def test_looker_that_has_looked_is_forgotten(end: Callable[[LaneState], LaneState]) -> None:
    asleep = rest(held(), NOW_MS + 60_000, NOW_MS)
    looking = rest(held(SECOND, asleep), NOW_MS + 60_000, NOW_MS + 2, NOW_MS + 9_000)
    again = replace(SECOND, nonce="n3", now_ms=NOW_MS + 9_000)
    after = end(held(again, looking))
    assert (after.sleeper, after.looker, after.look_ms) == ("m1", "", 0)


@pytest.mark.parametrize("partition", [None, PartitionKey(TopicId("ab" * 10), Partition(7))])
def test_message_round_trips(partition: PartitionKey | None) -> None:
    message = PushMessage(
        name=MESSAGE.name, subscription_id=MESSAGE.subscription_id, lane=3, version=2, partition=partition
    )
    assert decode_push_message(encode_push_message(message)) == message


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"subscription": "a", "id": "b", "lane": "x", "version": 1}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(PenstockError) as refused:
        decode_push_message(text)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_lock_of_a_mirror_is_renewed_and_grows_with_deaths_that_got_nothing_done() -> None:
    turn, lane = replace(FIRST, is_mirror=True), None
    locks = []
    for number in range(8):
        turn = replace(turn, nonce=f"n{number}", now_ms=0 if lane is None else lane.locked_until_ms)
        lane = held(turn, lane)
        locks.append(lane.locked_until_ms - turn.now_ms)
    assert locks == [3_000, 3_000, 6_000, 12_000, 24_000, 48_000, 65_000, 65_000]
    assert lane is not None
    longer = renew(lane, turn.now_ms + 500, has_progressed=False)
    assert (longer.locked_until_ms, longer.deaths) == (lane.locked_until_ms, lane.deaths)
    renewed = renew(lane, turn.now_ms + 500, has_progressed=True)
    assert (renewed.locked_until_ms, renewed.deaths) == (turn.now_ms + 3_500, 0)
    assert (renewed.version, renewed.holder, renewed.nonce) == (lane.version + 1, lane.holder, lane.nonce)


def test_message_of_a_mirror_says_so() -> None:
    of_mirror = replace(MESSAGE, is_mirror=True)
    assert decode_push_message(encode_push_message(of_mirror)) == of_mirror
    assert "mirror" not in encode_push_message(MESSAGE)
