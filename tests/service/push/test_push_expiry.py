"""No target gets a record whose time is over: a subscription passes over it, counts it, and buries none."""

from typing import Any

import pytest

from penstock_core.ids import Offset, TopicName
from penstock_core.push.batch import Answer, Answered, Failed, Failure, PushBatch, PushRecord
from penstock_core.push.delivery import DeliveryState, Trouble
from penstock_core.push.subscription import new_subscription_config
from penstock_core.push.targets.target import TopicTarget
from penstock_core.records.codec import decode
from penstock_core.records.expiry import EXPIRES_AT_HEADER
from penstock_service.push.admin.describe_subscription import describe_subscription
from penstock_service.push.parallel.parallel_group import put_parallel_group
from penstock_service.push.read_ahead import RecordsAhead
from tests.support.expiries import EPOCH_MS, NEVER, put_expiring
from tests.support.push_deliveries import NAME, Deliveries, refusing
from tests.support.push_records import StoredRecord, push_record
from tests.support.service import SteppedClock, ask, head_of, new_topic

SOON, LATER = EPOCH_MS + 1_000, EPOCH_MS + 7 * 24 * 3_600_000
REFUSED = Failed(failure=Failure.REFUSAL, error="no")
BOTH = pytest.mark.parametrize("mode", ["ordered", "parallel"])


def delivering(mode: str = "ordered", **config: Any) -> Deliveries:
    clock = SteppedClock()
    clock.time_ms = EPOCH_MS
    target = config.pop("target", None)
    more = {} if target is None else {"target": target}
    deliveries = Deliveries(clock=clock, settings={"mode": mode, **config}, **more)
    if mode == "parallel":
        put_parallel_group(deliveries.instance, deliveries.subscription, [])
    new_topic(deliveries.instance, "dead")
    return deliveries


def expired(deliveries: Deliveries) -> int:
    page = describe_subscription(deliveries.instance, NAME, "", 10)
    return sum(each.place.expired for each in page.partitions)


def counted(deliveries: Deliveries) -> int:
    counts = deliveries.counts()
    return counts.get("push_records_expired", 0) + counts.get("share_records_expired", 0)


@BOTH
def test_expired_records_are_passed_over_and_the_others_delivered(mode: str) -> None:
    deliveries = delivering(mode)
    put_expiring(deliveries.instance, SOON, LATER, NEVER, SOON, LATER, SOON)
    deliveries.clock.time_ms = SOON
    deliveries.run()
    assert deliveries.batches == [[1, 2, 4]]
    assert (expired(deliveries), counted(deliveries)) == (3, 3)


@BOTH
def test_batch_without_the_flag_is_delivered_whatever_its_headers_are(mode: str) -> None:
    deliveries = delivering(mode)
    put_expiring(deliveries.instance, SOON, SOON, may_expire=False)
    deliveries.clock.time_ms = SOON
    deliveries.run()
    assert deliveries.batches == [[0, 1]]
    assert expired(deliveries) == 0


@BOTH
def test_nothing_but_expired_records_ends_without_a_delivery(mode: str) -> None:
    deliveries = delivering(mode)
    put_expiring(deliveries.instance, *[SOON] * 50)
    deliveries.clock.time_ms = SOON
    deliveries.run()
    assert deliveries.batches == []
    assert (expired(deliveries), counted(deliveries)) == (50, 50)


@BOTH
def test_record_that_expires_while_its_neighbours_are_delivered_is_passed_over(mode: str) -> None:
    deliveries = delivering(mode, batch_records=1)
    put_expiring(deliveries.instance, LATER, SOON, LATER)

    def answer(_: PushBatch) -> Answer:
        deliveries.clock.time_ms = max(deliveries.clock.time_ms, SOON)
        return Answered()

    deliveries.answer = answer
    deliveries.run()
    assert sorted(deliveries.batches) == [[0], [2]]
    assert expired(deliveries) == 1


@BOTH
def test_record_that_fails_until_its_time_is_over_is_never_dead_lettered(mode: str) -> None:
    deliveries = delivering(mode, dead_letter_topic="dead", attempts_max=50, backoff_ms_min=500, backoff_ms_max=500)
    put_expiring(deliveries.instance, SOON, LATER)
    deliveries.answer = refusing([0], REFUSED)
    deliveries.run()
    assert head_of(deliveries.instance, "dead").next_offset == 0
    assert [1] in deliveries.batches
    assert expired(deliveries) == 1


def test_record_is_not_buried_if_its_time_ends_with_its_last_attempt() -> None:
    deliveries = delivering(dead_letter_topic="dead", attempts_max=1, batch_records=1, patience_ms=0)
    put_expiring(deliveries.instance, SOON, LATER)

    def answer(batch: PushBatch) -> Answer:
        if batch.records[0].record.offset == 0:
            deliveries.clock.time_ms = max(deliveries.clock.time_ms, SOON)
            return REFUSED
        return Answered()

    deliveries.answer = answer
    deliveries.run()
    assert head_of(deliveries.instance, "dead").next_offset == 0
    assert expired(deliveries) == 1


def test_neighbour_of_an_expired_record_inherits_none_of_its_attempts() -> None:
    """Both fail together until one expires. The other one is then healthy, and must not be buried for it."""
    deliveries = delivering(
        dead_letter_topic="dead", attempts_max=4, backoff_ms_min=100, backoff_ms_max=1_000, patience_ms=0
    )
    put_expiring(deliveries.instance, SOON, LATER)
    deliveries.answer = lambda _: REFUSED
    while deliveries.clock.time_ms < SOON - 100:
        deliveries.run(for_ms=100)
        deliveries.clock.time_ms += 100
    deliveries.clock.time_ms = SOON
    begun = len(deliveries.batches)
    deliveries.run()
    assert deliveries.batches[begun:].count([1]) >= 4, "it has all its own attempts"
    [letter] = decode(ask(deliveries.instance, "dead").data)
    assert letter.value == b"1"
    assert not any(name == EXPIRES_AT_HEADER for name, _ in letter.headers)


def test_records_after_the_expired_ones_are_tried_alone_where_records_fail() -> None:
    deliveries = delivering(dead_letter_topic="dead", attempts_max=3, backoff_ms_min=400, backoff_ms_max=400)
    put_expiring(deliveries.instance, LATER, SOON, LATER)
    deliveries.answer = refusing([1], REFUSED)
    deliveries.run()
    assert deliveries.batches[0] == [0, 1, 2]
    assert head_of(deliveries.instance, "dead").next_offset == 0
    assert (deliveries.state() or DeliveryState(offset=Offset(0))).offset == 3
    assert expired(deliveries) == 1


def test_copies_for_a_topic_keep_header_and_flag() -> None:
    deliveries = delivering(target=TopicTarget(topic=TopicName("copies")))
    new_topic(deliveries.instance, "copies")
    put_expiring(deliveries.instance, SOON, LATER)
    deliveries.clock.time_ms = SOON
    deliveries.run()
    [copy] = decode(ask(deliveries.instance, "copies").data)
    assert (EXPIRES_AT_HEADER, str(LATER).encode()) in [*copy.headers]
    assert head_of(deliveries.instance, "copies").tail[0].may_expire
    assert expired(deliveries) == 1


def test_copy_of_records_without_an_expiry_has_no_flag() -> None:
    deliveries = delivering(target=TopicTarget(topic=TopicName("copies")))
    new_topic(deliveries.instance, "copies")
    put_expiring(deliveries.instance, NEVER)
    deliveries.run()
    assert not head_of(deliveries.instance, "copies").tail[0].may_expire


def ahead(*offsets: int, over_ms: dict[int, int]) -> RecordsAhead:
    records: list[PushRecord] = [push_record(StoredRecord(offset)) for offset in offsets]
    return RecordsAhead(records=records, end=Offset(10), expired=0, has_more=False, error="", over_ms=over_ms)


@pytest.mark.parametrize(
    ("over", "has_trouble", "records", "end", "passed"),
    [
        (set(), False, [0, 1, 2, 3], 10, []),
        ({0, 2}, False, [1, 3], 10, [0, 2]),
        ({0, 2}, True, [], 1, [0]),
        ({2}, True, [0, 1], 2, []),
        ({3}, True, [0, 1, 2], 3, []),
        ({0, 1, 2, 3}, True, [], 10, [0, 1, 2, 3]),
        ({0, 1, 2, 3}, False, [], 10, [0, 1, 2, 3]),
    ],
)
def test_batch_in_trouble_ends_before_an_expired_record(
    over: set[int], has_trouble: bool, records: list[int], end: int, passed: list[int]
) -> None:
    trouble = Trouble(first_failed_ms=1, range_end=Offset(10)) if has_trouble else None
    state = DeliveryState(offset=Offset(0), trouble=trouble)
    seen = ahead(0, 1, 2, 3, over_ms={offset: SOON if offset in over else LATER for offset in range(4)})
    portion, found = seen.batch(state, new_subscription_config({}), SOON)
    assert [each.record.offset for each in portion.records] == [each.offset for each in found.records] == records
    assert (portion.end, found.end, [*portion.expired]) == (end, end, passed)
