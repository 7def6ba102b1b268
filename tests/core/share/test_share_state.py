import pytest

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockId, Offset, Partition, PartitionKey, ShareGroupId, TopicId
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import Lock, ShareKey, ShareState, Wait, lock_id, locks_of, parse_lock_nonce
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
