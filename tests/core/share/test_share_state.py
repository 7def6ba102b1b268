"""What partitions of older generations hold back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockId, LockNonce, Offset, Partition, PartitionKey, ShareGroupId, TopicId
from penstock_core.limits import SHARE_HOLDERS_MAX, SHARE_NONCE_LENGTH_MAX
from penstock_core.log.index import EMPTY_HEAD
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import (
    NOTHING_HELD,
    RANDOM_BYTES,
    HeldBack,
    Holder,
    Lock,
    ShareKey,
    ShareState,
    Wait,
    held_back,
    holders_of,
    lock_id,
    locks_of,
    name_of,
    named_nonce,
    parse_lock_nonce,
)
from tests.core.share.share_samples import NEW, NONCE

STATE = ShareState(
    position=Offset(90),
    open=6,
    locks={
        LockId("a.0"): Lock(Offset(40), 5, 1, RecordSet(((0, 2), (4, 5)))),
        LockId("ab.0"): Lock(Offset(60), 5, 1, RecordSet(((0, 1),))),
    },
    waits={Offset(20): Wait(7, 1, RecordSet(((20, 22),)))},
)
CLOSED = replace(EMPTY_HEAD, next_offset=Offset(9), closed_ms=500, closed_offset=Offset(7))
RANDOM = bytes(range(RANDOM_BYTES))
NOW_MS = 1_000


def test_start_offset_is_the_first_unfinished_one() -> None:
    assert STATE.start_offset == 20
    assert NEW.start_offset == 0


def test_unfinished_offsets_are_those_of_all_entries() -> None:
    assert STATE.unfinished() == ((20, 22), (40, 42), (44, 45), (60, 61))


def test_locks_of_a_nonce_are_not_those_of_a_longer_one() -> None:
    assert [*locks_of(STATE, "a")] == ["a.0"]  # type: ignore[arg-type]  # shorter than a nonce may be


def test_lock_ids_have_the_nonce_and_a_number() -> None:
    assert [lock_id(NONCE, index) for index in (0, 12)] == ["nonce-01.0", "nonce-01.12"]


@pytest.mark.parametrize("wrong", ["", "short", "x" * 23, "with.dot.in", "with~tilde", "with space"])
def test_nonce_is_refused_when_it_is_no_nonce(wrong: str) -> None:
    with pytest.raises(PenstockError) as caught:
        parse_lock_nonce(wrong)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_nonce_may_have_the_letters_of_base64() -> None:
    assert parse_lock_nonce("AZaz09-_") == "AZaz09-_"


def test_key_names_group_topic_and_partition() -> None:
    key = ShareKey(ShareGroupId("g"), TopicId("t"), Partition(3))
    assert str(key) == "g#t#3"
    assert key.partition_key == PartitionKey(TopicId("t"), Partition(3))


def test_partition_without_a_state_holds_all_back() -> None:
    assert held_back([(CLOSED, None)]) == HeldBack(is_all=True, closed_ms=500)


def test_empty_partition_holds_nothing_back() -> None:
    assert held_back([(replace(EMPTY_HEAD, closed_ms=500, closed_offset=Offset(0)), None)]) == NOTHING_HELD
    assert not NOTHING_HELD


def test_partition_whose_records_are_gone_holds_nothing_back() -> None:
    assert held_back([(replace(CLOSED, log_start_offset=Offset(7)), None)]) == NOTHING_HELD


def test_position_at_the_place_of_the_closing_is_enough() -> None:
    assert held_back([(CLOSED, ShareState(position=Offset(7)))]) == NOTHING_HELD
    assert held_back([(CLOSED, ShareState(position=Offset(6)))]).is_all


def test_keys_of_locks_and_waits_are_held() -> None:
    lock = Lock(Offset(2), 900, 1, RecordSet(((0, 2),), (11, 12)))
    wait = Wait(0, 1, RecordSet(((5, 6),), (13,)))
    state = ShareState(position=Offset(7), open=3, locks={LockId("nonce-01.0"): lock}, waits={Offset(5): wait})
    assert held_back([(CLOSED, state)]) == HeldBack(keys=frozenset({11, 12, 13}), closed_ms=500)


def test_records_without_order_are_not_held() -> None:
    """Without a key, behind the closing, below the log start, and on their way to the dead-letter topic."""
    waits = {
        Offset(0): Wait(0, 1, RecordSet(((0, 1),), (11,))),
        Offset(2): Wait(0, 1, RecordSet(((2, 3),), (0,))),
        Offset(3): Wait(0, 1, RecordSet(((3, 4),), (12,)), is_rejected=True),
        Offset(4): Wait(0, 5, RecordSet(((4, 5),), (13,)), is_dead=True),
        Offset(8): Wait(0, 1, RecordSet(((8, 9),), (14,))),
    }
    head = replace(CLOSED, log_start_offset=Offset(1))
    assert held_back([(head, ShareState(position=Offset(9), open=5, waits=waits))]) == NOTHING_HELD


def test_what_several_partitions_hold_adds_up() -> None:
    wait = {Offset(5): Wait(0, 1, RecordSet(((5, 6),), (13,)))}
    later = replace(CLOSED, closed_ms=800)
    found = held_back([(CLOSED, ShareState(position=Offset(7), open=1, waits=wait)), (later, None)])
    assert found == HeldBack(is_all=True, keys=frozenset({13}), closed_ms=800)


def held(count: int, *, base: int = 0, until_ms: int = NOW_MS + 1) -> Lock:
    return Lock(Offset(base), until_ms, 1, RecordSet(((0, count),)))


def by(name: str, number: int = 0) -> LockId:
    return lock_id(named_nonce(name, bytes([number]) * RANDOM_BYTES), 0)


@given(st.text(max_size=40), st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES))
def test_nonce_with_any_name_is_one_and_tells_a_name_that_is_text_only(name: str, random: bytes) -> None:
    nonce = named_nonce(name, random)
    assert parse_lock_nonce(nonce) == nonce
    told = name_of(lock_id(nonce, 3))
    assert len(told) <= SHARE_NONCE_LENGTH_MAX
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in told)


def test_name_is_told_by_its_end() -> None:
    assert name_of(by("worker-1")) == "worker-1"
    assert name_of(by("orders.worker-7f9c-4711")) == "er-7f9c-4711"
    assert name_of(by("")) == ""
    assert named_nonce("worker-1", RANDOM) == "worker-1--AAECAwQF"


def test_nonce_that_a_client_drew_without_a_name_tells_none() -> None:
    assert name_of(lock_id(LockNonce("0123456789abcdef012345"), 0)) == ""
    assert name_of(lock_id(LockNonce("abcd-efg"), 0)) == ""


def test_holders_are_counted_by_name_the_one_with_most_records_first() -> None:
    locks = {
        by("b", 1): held(2, base=10),
        by("b", 2): held(5, base=20, until_ms=NOW_MS + 9),
        by("a"): held(3, base=30),
        LockId("plain-nonce.0"): held(1, base=40),
        by("gone"): held(50, base=50, until_ms=NOW_MS),
        by("expired"): held(4, base=0),
    }
    found, left_out = holders_of(ShareState(position=Offset(100), locks=locks), Offset(4), NOW_MS)
    assert left_out == 0
    assert found == [
        Holder(consumer="b", locks=2, records=7, until_ms=NOW_MS + 9),
        Holder(consumer="a", locks=1, records=3, until_ms=NOW_MS + 1),
        Holder(consumer="", locks=1, records=1, until_ms=NOW_MS + 1),
    ]


def test_holders_beyond_the_bound_are_counted_only() -> None:
    locks = {by(f"w{number}"): held(1, base=number) for number in range(SHARE_HOLDERS_MAX + 3)}
    found, left_out = holders_of(ShareState(position=Offset(100), locks=locks), Offset(0), NOW_MS)
    assert (len(found), left_out) == (SHARE_HOLDERS_MAX, 3)
