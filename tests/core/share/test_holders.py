from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import LockId, LockNonce, Offset
from penstock_core.limits import SHARE_HOLDERS_MAX, SHARE_NONCE_LENGTH_MAX
from penstock_core.share.holders import RANDOM_BYTES, Holder, holders_of, name_of, named_nonce
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_state import Lock, ShareState, lock_id, parse_lock_nonce

RANDOM = bytes(range(RANDOM_BYTES))
NOW_MS = 1_000


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
