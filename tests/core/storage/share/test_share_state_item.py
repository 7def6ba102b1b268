from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock_core.ids import LockId, Offset, Partition, ShareGroupId, TopicId
from penstock_core.limits import SHARE_ENTRIES_MAX, SHARE_LOCKS_MAX, SHARE_NONCE_LENGTH_MAX
from penstock_core.share.draft import Draft, ShareUpdate
from penstock_core.share.record_set import RecordSet
from penstock_core.share.share_codec import encode_lock, encode_wait
from penstock_core.share.share_state import AT_POSITION, Lock, ShareKey, ShareState, Wait
from penstock_core.storage.item import item_bytes
from penstock_core.storage.share.share_state_item import (
    parse_share,
    parse_share_key,
    reset_update,
    share_item,
    share_item_key,
    share_update,
)
from tests.core.share.share_samples import LOCKS, WAITS
from tests.support.tables import check_update

KEY = ShareKey(ShareGroupId("ab" * 10), TopicId("00ff"), Partition(7))
LOCK = Lock(Offset(40), 9, 1, RecordSet(((0, 2),)))
WAIT = Wait(9, 1, RecordSet(((8, 9),)))
A, B = LockId("nonce-01.0"), LockId("nonce-02.0")


@given(st.lists(LOCKS, max_size=3), st.lists(WAITS, max_size=3), st.none() | st.integers(0, 2**62), st.integers(0))
def test_state_is_read_back(locks: list[Lock], waits: list[Wait], waiter_ms: int | None, expired: int) -> None:
    state = ShareState(
        generation=3,
        position=Offset(2**62),
        open=7,
        locks={LockId(f"{number}"): lock for number, lock in enumerate(locks)},
        waits={Offset(wait.records.start): wait for wait in waits},
        waiter_ms=waiter_ms,
        expired=expired,
    )
    item = share_item(KEY, state)
    assert parse_share(item) == state
    assert parse_share_key(item) == KEY


def test_item_is_what_is_stored_today() -> None:
    state = ShareState(generation=1, position=Offset(90), open=3, locks={A: LOCK}, waits={Offset(8): WAIT}, waiter_ms=5)
    assert share_item(KEY, state) == {
        "pk": {"S": f"share#{'ab' * 10}#00ff#7"},
        "sk": {"S": "state"},
        "generation": {"N": "1"},
        "position": {"N": "90"},
        "open": {"N": "3"},
        "bases": {"M": {"nonce-01.0": {"N": "40"}}},
        "locks": {"M": {"nonce-01.0": {"B": encode_lock(LOCK)}}},
        "waits": {"M": {"8": {"B": encode_wait(WAIT)}}},
        "waiter": {"N": "5"},
    }


def test_item_has_the_number_of_expired_records_if_there_are_some() -> None:
    state = ShareState(position=Offset(90))
    assert "expired" not in share_item(KEY, state)
    assert share_item(KEY, replace(state, expired=7))["expired"] == {"N": "7"}
    assert (
        share_update(KEY, ShareUpdate(generation=1, advance=1, expired=7)).update == "SET #p = #p + :v1 ADD expired :v2"
    )


def test_fresh_acquire_is_one_short_update() -> None:
    update = ShareUpdate(
        generation=1,
        expected_locks={A: None},
        position_between=(3, 90),
        open_max=19_990,
        locks_max=63,
        locks={A: Lock(AT_POSITION, 9, 1, RecordSet(((0, 10),)))},
        advance=10,
        open_delta=10,
    )
    found = share_update(KEY, update)
    assert found.key == share_item_key(KEY)
    assert found.condition == (
        "generation = :v0 AND #p BETWEEN :v1 AND :v2 AND #o <= :v3 AND size(#l) <= :v4 AND attribute_not_exists(#l.#n3)"
    )
    assert found.update == "SET #p = #p + :v5, #o = #o + :v6, #b.#n3 = #p, #l.#n3 = :v7"
    assert found.names == {"#p": "position", "#o": "open", "#l": "locks", "#n3": A, "#b": "bases"}


def test_blind_accept_is_one_short_update() -> None:
    draft = Draft(ShareState(generation=1, position=Offset(42), open=2, locks={A: LOCK}))
    draft.put_lock(A, None)
    update = draft.update()
    assert update is not None
    found = share_update(KEY, update)
    assert found.condition == "generation = :v0 AND #b.#n1 = :v2 AND #l.#n1 = :v3"
    assert found.update == "SET #o = #o + :v1 REMOVE #b.#n1, #l.#n1"


def test_reset_begins_a_new_generation_without_entries() -> None:
    found = reset_update(KEY, ShareState(generation=4, position=Offset(9)), Offset(2))
    assert found.condition == "generation = :seen"
    assert (found.values[":next"], found.values[":position"]) == ({"N": "5"}, {"N": "2"})


def test_largest_update_fits_into_dynamodb_s_limits() -> None:
    names = [LockId(f"{number:0{SHARE_NONCE_LENGTH_MAX}}.10") for number in range(SHARE_ENTRIES_MAX // 2)]
    firsts = [Offset(2**60 + 10 * number) for number in range(SHARE_ENTRIES_MAX // 2)]
    update = ShareUpdate(
        generation=2**60,
        expected_locks=dict.fromkeys(names, LOCK),
        expected_waits={first: Wait(1, 1, RecordSet(((first, first + 1),))) for first in firsts},
        position_between=(1, 2),
        open_max=1,
        locks_max=1,
        locks=dict.fromkeys(names, LOCK),
        waits={first: Wait(2, 2, RecordSet(((first, first + 1),))) for first in firsts},
        advance=1,
        open_delta=1,
        arms_ms=5,
    )
    check_update(share_update(KEY, update))


def test_locks_of_twenty_workers_leave_the_item_below_one_write_unit_and_a_half() -> None:
    def state(workers: int) -> ShareState:
        locks = {
            LockId(f"nonce-{number:02}.0"): Lock(Offset(10**7), 2 * 10**12, 1, RecordSet(((0, 100),)))
            for number in range(workers)
        }
        return ShareState(position=Offset(10**7), open=100 * workers, locks=locks)

    assert item_bytes(share_item(KEY, state(20))) < 1_400
    assert item_bytes(share_item(KEY, state(SHARE_LOCKS_MAX))) < 3_800
