from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import LockId, Offset, Partition, ShareGroupId, TopicId
from penstock_core.limits import SHARE_TOKEN_BYTES_MAX
from penstock_core.outcomes import outcome_of
from penstock_core.share.reasons import Reason
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import (
    client_lock_id,
    decode_lock,
    decode_reason,
    decode_wait,
    encode_lock,
    encode_reason,
    encode_wait,
    entries_bytes,
    parse_client_lock_id,
)
from penstock_core.share.share_state import Lock, ShareKey, ShareState, Wait
from penstock_core.storage.item import item_bytes
from penstock_core.storage.share.share_state_item import share_item
from tests.core.share.share_samples import LOCKS, WAITS

FRESH = Lock(Offset(7), 0x0102030405, 3, RecordSet(((0, 300),)))


@given(LOCKS)
def test_lock_is_read_back(lock: Lock) -> None:
    assert decode_lock(lock.base, encode_lock(lock)) == lock


@given(WAITS)
def test_wait_is_read_back(wait: Wait) -> None:
    assert decode_wait(Offset(wait.records.start), encode_wait(wait)) == wait


def test_fresh_lock_has_the_bytes_of_today() -> None:
    assert encode_lock(FRESH).hex() == "01" + "000102030405" + "0003" + "01" + "00" + "ac02"


def test_lock_with_hashes_has_the_bytes_of_today() -> None:
    lock = Lock(Offset(7), 1, 1, RecordSet(((0, 1), (3, 4)), (5, 0xFFFFFFFF)))
    assert encode_lock(lock).hex() == "01" + "000000000001" + "0001" + "02" + "0001" + "0201" + "00000005" + "ffffffff"


def test_wait_has_the_bytes_of_today() -> None:
    wait = Wait(5, 2, RecordSet(((100, 102), (110, 111))))
    assert encode_wait(wait).hex() == "01" + "000000000005" + "0002" + "00" + "02" + "0002" + "0801"


def test_rejected_wait_has_the_bytes_of_today() -> None:
    wait = Wait(5, 2, RecordSet(((9, 10),), (1,)), is_rejected=True, reason="bad")
    assert encode_wait(wait).hex() == "01" + "000000000005" + "0002" + "01" + "01" + "0001" + "03626164" + "00000001"


def test_dead_and_suspect_waits_have_the_bytes_of_today() -> None:
    records = RecordSet(((9, 10),))
    assert encode_wait(Wait(5, 2, records, is_dead=True)).hex() == "01" + "000000000005" + "0002" + "02" + "01" + "0001"
    assert (
        encode_wait(Wait(5, 2, records, is_suspect=True)).hex() == "01" + "000000000005" + "0002" + "04" + "01" + "0001"
    )


def test_dead_wait_with_a_reason_has_the_bytes_of_a_rejected_one_and_both_flags() -> None:
    wait = Wait(5, 2, RecordSet(((9, 10),)), reason="bad", is_dead=True)
    assert encode_wait(wait).hex() == "01" + "000000000005" + "0002" + "03" + "01" + "0001" + "03626164"
    assert decode_wait(Offset(9), encode_wait(wait)) == wait


def test_reason_has_the_bytes_of_today() -> None:
    reason = Reason("größer", ((300, 302), (310, 311)))
    assert encode_reason(reason).hex() == "01" + "02" + "ac0202" + "0801" + "größer".encode().hex()
    assert decode_reason(encode_reason(reason)) == reason


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("02", ErrorCode.UNSUPPORTED_FORMAT),
        ("01", ErrorCode.INTERNAL),
        ("0102ac02", ErrorCode.INTERNAL),
        ("010100ff", ErrorCode.INTERNAL),
        ("01010001c3", ErrorCode.INTERNAL),
    ],
)
def test_damaged_reason_is_refused(data: str, code: ErrorCode) -> None:
    with pytest.raises(PenstockError) as caught:
        decode_reason(bytes.fromhex(data))
    assert caught.value.code is code


def test_deliveries_stay_at_the_largest_number() -> None:
    lock = Lock(Offset(0), 1, 70_000, RecordSet(((0, 1),)))
    assert decode_lock(Offset(0), encode_lock(lock)).deliveries == 65_535


@given(LOCKS, st.data())
def test_damaged_bytes_are_refused(lock: Lock, data: st.DataObject) -> None:
    whole = encode_lock(lock)
    length = data.draw(st.integers(0, len(whole) - 1))
    if length > 9 and lock.records.hashes and (len(whole) - length) == 4 * lock.records.count:
        return  # the same ranges without hashes
    with pytest.raises(PenstockError):
        decode_lock(lock.base, whole[:length])


@given(st.binary(max_size=40))
def test_garbage_raises_no_other_error(data: bytes) -> None:
    for decode in (decode_lock, decode_wait):
        found = outcome_of(partial(decode, Offset(3)), data)
        if isinstance(found, PenstockError):
            assert found.code in (ErrorCode.INTERNAL, ErrorCode.UNSUPPORTED_FORMAT)


@pytest.mark.parametrize("decode", [decode_lock, decode_wait])
def test_unknown_version_is_refused(decode: object) -> None:
    with pytest.raises(PenstockError, match="of format 2, this release reads 1") as caught:
        decode(Offset(0), b"\2" + encode_lock(FRESH)[1:])  # type: ignore[operator]
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT


@given(LOCKS, st.integers(0, 1_000))
def test_client_lock_id_is_read_back(lock: Lock, generation: int) -> None:
    text = client_lock_id(LockId("abcdefgh.0"), lock, generation)
    found = parse_client_lock_id(text)
    if "~" in text:
        assert found == ("abcdefgh.0", generation, lock)
        assert len(text) < 12 + 2 * SHARE_TOKEN_BYTES_MAX
    else:
        assert found == ("abcdefgh.0", 0, None)


def test_client_lock_id_of_a_fresh_lock_is_short() -> None:
    assert client_lock_id(LockId("abcdefgh.0"), FRESH, 0) == "abcdefgh.0~AAcBAAECAwQFAAMBAKwC"


@pytest.mark.parametrize(
    "text", ["abcdefgh.0~", "abcdefgh.0~!!!!", "abcdefgh.0~AAcB", "abcdefgh.0~AAcCAAECAwQFAAMBAKwC"]
)
def test_damaged_client_lock_id_is_refused(text: str) -> None:
    with pytest.raises(PenstockError, match="send it unchanged") as caught:
        parse_client_lock_id(text)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


@given(st.lists(LOCKS, max_size=4), st.lists(WAITS, max_size=4))
def test_size_of_the_item_is_not_underestimated(locks: list[Lock], waits: list[Wait]) -> None:
    state = ShareState(
        position=Offset(2**40),
        open=20_000,
        locks={LockId(f"nonce-{number}.0"): lock for number, lock in enumerate(locks)},
        waits={Offset(wait.records.start): wait for wait in waits},
        waiter_ms=2**48,
    )
    item = share_item(ShareKey(ShareGroupId("ab" * 10), TopicId("cd" * 10), Partition(999)), state)
    assert item_bytes(item) <= entries_bytes(state.locks, state.waits) <= item_bytes(item) + 100 + 12 * len(locks)
