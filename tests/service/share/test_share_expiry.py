"""A share group hands out no record whose time is over: it finishes the record, counts it, and buries none."""

from typing import Any

import pytest

from penstock_core.records.codec import NewRecord, decode
from penstock_core.records.expiry import EXPIRES_AT_HEADER, has_expiry
from penstock_core.share.acknowledge import AckResult, AckType
from penstock_core.share.dead_letter import HEADER_PREFIX
from penstock_core.zones.zone_state import Acks
from penstock_service.instance.instance import Instance
from penstock_service.records.produce import ProduceEntry, produce
from penstock_service.share.admin.describe_share_group import describe_share_group
from penstock_service.share.dead_letters.redrive import RedriveWish, redrive
from tests.service.share.sharing import GROUP, finish, locks_in, new_group, offsets_in, results_of, state_of, take
from tests.support.expiries import EPOCH_MS, NEVER, expiry, put_expiring, put_records
from tests.support.poison import undecodable_batch
from tests.support.service import SteppedClock, ask, head_of, new_topic

SOON, LATER = EPOCH_MS + 1_000, EPOCH_MS + 60_000
BOTH = pytest.mark.parametrize("ordering", ["none", "key"])


@pytest.fixture
def queue(instance: Instance, clock: SteppedClock) -> Instance:
    """The empty topic orders, and one for dead letters."""
    clock.time_ms = EPOCH_MS
    new_topic(instance)
    new_topic(instance, "dead")
    return instance


def group(instance: Instance, **config: Any) -> None:
    new_group(instance, retry_backoff_ms_min=1, retry_backoff_ms_max=1_000, **config)


def offsets(instance: Instance) -> list[int]:
    return [offset for _, offset in offsets_in(take(instance))]


def expired(instance: Instance) -> int:
    _, [partition], _ = describe_share_group(instance, GROUP, "", 10)
    assert partition.expired == state_of(instance).expired
    return partition.expired


@BOTH
def test_expired_records_are_finished_and_the_others_handed_out(
    queue: Instance, clock: SteppedClock, ordering: str
) -> None:
    group(queue, ordering=ordering)
    put_expiring(queue, SOON, LATER, NEVER, SOON, SOON + 1)
    clock.time_ms = SOON
    acquired = take(queue)
    assert [offset for _, offset in offsets_in(acquired)] == [1, 2, 4]
    assert expired(queue) == 2
    assert queue.telemetry.take()[0]["share_records_expired"] == 2
    finish(queue, acquired)
    assert state_of(queue).open == 0
    assert state_of(queue).position == 5


@BOTH
def test_backlog_of_expired_records_is_passed_in_one_call(queue: Instance, clock: SteppedClock, ordering: str) -> None:
    group(queue, ordering=ordering)
    for _ in range(20):
        put_expiring(queue, *[SOON] * 50)
    put_expiring(queue, LATER)
    clock.time_ms = SOON
    assert offsets(queue) == [1_000]
    assert expired(queue) == 1_000


def test_nothing_is_left_when_all_have_expired(queue: Instance, clock: SteppedClock) -> None:
    group(queue)
    put_expiring(queue, SOON, SOON)
    clock.time_ms = LATER
    acquired = take(queue)
    assert locks_in(acquired) == []
    assert acquired.next_available_ms is None
    assert (state_of(queue).open, expired(queue)) == (0, 2)


@BOTH
def test_batch_without_the_flag_is_handed_out_whatever_its_headers_are(
    queue: Instance, clock: SteppedClock, ordering: str
) -> None:
    group(queue, ordering=ordering)
    put_expiring(queue, SOON, SOON, may_expire=False)
    put_expiring(queue, SOON, LATER)
    clock.time_ms = SOON
    assert offsets(queue) == [0, 1, 3]
    assert expired(queue) == 1


@pytest.mark.parametrize("value", [None, b"1", b"1790000000", b"soon", b"9" * 400])
def test_flag_with_a_header_that_is_no_time_finishes_nothing(
    queue: Instance, clock: SteppedClock, value: bytes | None
) -> None:
    group(queue)
    put_records(queue, [NewRecord(EPOCH_MS, None, b"v", [(EXPIRES_AT_HEADER, value)]), NewRecord(EPOCH_MS, None, b"v")])
    clock.time_ms = LATER
    assert offsets(queue) == [0, 1]
    assert expired(queue) == 0


def test_flagged_batch_that_cannot_be_decoded_is_handed_out_as_any_other(queue: Instance, clock: SteppedClock) -> None:
    group(queue, dead_letter_topic="dead")
    bad = ProduceEntry(topic="orders", partition=0, data=undecodable_batch(), may_expire=True)
    produce(queue, [bad], Acks.QUORUM).all_ok()
    clock.time_ms = LATER
    assert offsets(queue) != []
    assert head_of(queue, "dead").next_offset == 0


@BOTH
def test_record_that_expires_under_its_lock_is_finished_when_the_lock_ends(
    queue: Instance, clock: SteppedClock, ordering: str
) -> None:
    group(queue, ordering=ordering, lock_ms=5_000)
    put_expiring(queue, SOON, LATER)
    take(queue)
    clock.time_ms = SOON
    assert offsets(queue) == [], "the lock holds"
    assert expired(queue) == 0
    clock.time_ms = EPOCH_MS + 20_000
    assert offsets(queue) + offsets(queue) == [1]
    assert expired(queue) == 1


@BOTH
def test_accept_counts_before_the_lock_ends_and_after_the_records_time(
    queue: Instance, clock: SteppedClock, ordering: str
) -> None:
    group(queue, ordering=ordering)
    put_expiring(queue, SOON)
    acquired = take(queue)
    clock.time_ms = SOON + 1
    assert results_of(finish(queue, acquired)) == [(((0, 1),), AckResult.OK)]
    assert expired(queue) == 0


@BOTH
def test_record_that_was_released_is_finished_once_it_has_expired(
    queue: Instance, clock: SteppedClock, ordering: str
) -> None:
    group(queue, ordering=ordering)
    put_expiring(queue, SOON, LATER)
    finish(queue, take(queue), AckType.RELEASE, delay_ms=0)
    clock.time_ms = SOON
    assert offsets(queue) == [1]
    assert expired(queue) == 1


@pytest.mark.parametrize("kind", [AckType.REJECT, AckType.RELEASE])
def test_expired_record_is_never_dead_lettered(queue: Instance, clock: SteppedClock, kind: AckType) -> None:
    group(queue, dead_letter_topic="dead", deliveries_max=1)
    put_expiring(queue, SOON, LATER)
    acquired = take(queue)
    clock.time_ms = SOON
    queue.telemetry.take()
    finish(queue, acquired, kind)
    [letter] = decode(ask(queue, "dead").data)
    assert letter.value == b"1"
    assert (state_of(queue).open, expired(queue)) == (0, 1)
    counts = queue.telemetry.take()[0]
    assert (counts["share_records_expired"], counts["share_records_dead_lettered"]) == (1, 1)


def test_lock_that_ends_with_the_last_delivery_buries_no_expired_record(queue: Instance, clock: SteppedClock) -> None:
    group(queue, dead_letter_topic="dead", deliveries_max=1, lock_ms=5_000)
    put_expiring(queue, SOON, SOON)
    take(queue)
    clock.time_ms = LATER
    assert offsets(queue) == []
    assert head_of(queue, "dead").next_offset == 0
    assert (state_of(queue).open, expired(queue)) == (0, 2)


def test_dead_letter_and_redriven_record_keep_the_time_under_another_name(queue: Instance, clock: SteppedClock) -> None:
    group(queue, dead_letter_topic="dead")
    put_expiring(queue, LATER, headers=[(f"{HEADER_PREFIX}expires-at", b"forged")])
    finish(queue, take(queue), AckType.REJECT)
    [letter] = decode(ask(queue, "dead").data)
    told = (f"{HEADER_PREFIX}expires-at", str(LATER).encode())
    assert told in [*letter.headers]
    assert not has_expiry(letter.headers)
    clock.time_ms = LATER
    assert redrive(queue, "dead", RedriveWish(records_max=10)).moved == 1
    acquired = take(queue)
    assert [offset for _, offset in offsets_in(acquired)] == [1], "it does not expire again"
    [_, again] = decode(ask(queue, "orders").data)
    assert [*again.headers] == [told]
    finish(queue, acquired, AckType.REJECT)
    [_, letter] = decode(ask(queue, "dead").data)
    assert [each for each in letter.headers if each[0] == told[0]] == [told]
    assert not any(ref.may_expire for ref in (*head_of(queue, "dead").tail, *head_of(queue, "orders").tail[1:]))


def test_filter_decides_before_the_expiry(queue: Instance, clock: SteppedClock) -> None:
    group(queue, filter={"type": ["yes"]})
    kinds = [b"yes", b"no", b"yes"]
    times = [SOON, SOON, LATER]
    put_records(
        queue,
        [
            NewRecord(EPOCH_MS, None, b"v", [("type", kind), *expiry(at_ms)])
            for kind, at_ms in zip(kinds, times, strict=True)
        ],
    )
    clock.time_ms = SOON
    assert offsets(queue) == [2]
    assert expired(queue) == 1


def test_expired_record_does_not_hold_up_its_key(queue: Instance, clock: SteppedClock) -> None:
    group(queue, ordering="key")
    put_expiring(queue, SOON, LATER, LATER, key=b"k")
    first = take(queue)
    assert [offset for _, offset in offsets_in(first)] == [0]
    clock.time_ms = SOON
    finish(queue, first, AckType.RELEASE, delay_ms=0)
    assert offsets(queue) == [1]
    assert expired(queue) == 1


def test_repeat_of_an_acquire_does_not_hand_out_what_has_expired_since(queue: Instance, clock: SteppedClock) -> None:
    group(queue, lock_ms=120_000)
    put_expiring(queue, SOON, LATER)
    take(queue, nonce="repeated")
    clock.time_ms = SOON
    again = take(queue, nonce="repeated", is_repeat=True)
    assert [offset for _, offset in offsets_in(again)] == [1]
    assert expired(queue) == 1


def test_budget_leaves_the_rest_of_flagged_batches_for_the_next_acquire(
    queue: Instance, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock_service.share.acquire.acquire.READ_DECODED_BYTES_MAX", 1)
    group(queue)
    for _ in range(3):
        put_expiring(queue, LATER)
    seen = [offset for _ in range(3) for offset in offsets(queue)]
    assert seen == [0, 1, 2]
    assert state_of(queue).open == 3


def test_plain_batches_are_not_decoded(queue: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    group(queue)
    put_expiring(queue, SOON, may_expire=False)

    def refuse(*_: object) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("penstock_service.share.batches.decode_batches.DecodeBudget.decode", refuse)
    assert offsets(queue) == [0]
