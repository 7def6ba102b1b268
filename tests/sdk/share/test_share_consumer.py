"""Share consumers, with threads and for asyncio: iteration, polls, acknowledgements, the end."""

import json
from typing import Any

import pytest

from penstock import ClosedError, InvalidError, LockLostError, NotFoundError, Reject
from tests.sdk.http.faulty_transport import lost_answer, lost_request
from tests.sdk.share.share_kinds import ShareKind
from tests.sdk.share.work_group import ACKNOWLEDGE, ACQUIRE, WorkGroup
from tests.support.deadlines import until


def test_iteration_accepts_each_record_when_the_next_is_asked_for(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", b"2", b"3")
    with consumers.consumer("orders", consumer_timeout_ms=1_000) as consumer:
        assert [record.value for record in consumer] == [b"1", b"2", b"3"]
    assert workers.unfinished() == 0
    assert workers.sent("accept") == len(workers.acknowledgements())


def test_record_tells_place_and_delivery(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", partition=1)
    with consumers.consumer("orders") as consumer:
        record = next(consumer)
    assert (record.topic, record.partition, record.offset, record.timestamp_ms) == ("orders", 1, 0, 1_000)
    assert (record.key, record.value, record.headers, record.delivery_count) == (None, b"1", (), 1)


def test_exception_in_with_releases_the_record_in_hand(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", b"2", b"3")

    def work() -> None:
        with consumers.consumer("orders") as consumer:
            for record in consumer:
                if record.value == b"2":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    left: dict[str, int] = {}
    until(lambda: len(left) == 2, step=lambda: left.update(workers.left()))
    assert left == {"2": 1, "3": 0}  # the third was never handed out: it comes back uncounted


def test_reject_in_with_rejects_the_record_in_hand(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")

    def work() -> None:
        with consumers.consumer("orders") as consumer:
            next(consumer)
            raise Reject("no such customer")

    with pytest.raises(Reject):
        work()
    (sent,) = workers.acknowledgements()
    assert (sent["type"], sent["reason"]) == ("reject", "no such customer")
    assert workers.unfinished() == 0  # there is no dead-letter topic


def test_released_record_comes_again_with_its_count(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    with consumers.consumer("orders", acknowledge="explicit") as consumer:
        first = next(consumer)
        consumer.release(first, delay_ms=0)
        second = next(consumer)
        consumer.accept(second)
    assert (first.delivery_count, second.delivery_count) == (1, 2)
    assert workers.unfinished() == 0


def test_explicit_consumer_accepts_nothing_by_itself(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", b"2")
    with consumers.consumer("orders", acknowledge="explicit") as consumer:
        records = consumer.poll() + consumer.poll(timeout_ms=50)
        assert len(records) == 2
        consumer.reject(records[0], "bad")
    assert workers.unfinished() == 1


def test_acknowledging_twice_is_refused(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    with consumers.consumer("orders", acknowledge="explicit") as consumer:
        record = next(consumer)
        consumer.accept(record)
        with pytest.raises(InvalidError, match="acknowledged before"):
            consumer.release(record)


def test_acknowledgements_ride_on_the_next_acquire(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    with consumers.consumer("orders") as consumer:
        next(consumer)
        workers.append(b"2")
        next(consumer)
        assert workers.transport.count(ACKNOWLEDGE) == 0
        assert workers.unfinished() == 1


def test_flush_sends_acknowledgements_at_once(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    with consumers.consumer("orders", acknowledge="explicit") as consumer:
        consumer.accept(next(consumer))
        consumer.flush()
        assert workers.unfinished() == 0


def test_lost_answer_of_an_acquire_takes_no_second_lock(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.transport.faults[ACQUIRE] = [lost_answer, lost_request]
    workers.append(b"1")
    with consumers.consumer("orders", retry_backoff_ms=1) as consumer:
        assert next(consumer).delivery_count == 1
        asked = [json.loads(body) for _, path, body in workers.transport.calls if path == ACQUIRE]
        assert len(asked) >= 3
        assert len({each["nonce"] for each in asked[:3]}) == 1
        assert [each.get("repeat", False) for each in asked[:3]] == [False, True, True]


def test_lost_acknowledgement_is_sent_again(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.transport.faults[ACKNOWLEDGE] = [lost_request, lost_answer]
    workers.append(b"1")
    with consumers.consumer("orders", acknowledge="explicit", retry_backoff_ms=1) as consumer:
        consumer.accept(next(consumer))
        consumer.flush()
        assert workers.transport.count(ACKNOWLEDGE) == 3
        assert workers.unfinished() == 0
        assert consumer.locks_lost == 0


def test_unknown_group_is_raised_by_the_call_that_waits(consumers: ShareKind) -> None:
    with consumers.consumer("orders", group_id="others") as consumer, pytest.raises(NotFoundError):
        consumer.poll()


def test_stop_ends_iteration_and_gives_back_what_was_not_handed_out(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", b"2", b"3")
    with consumers.consumer("orders") as consumer:
        for _ in consumer:
            consumer.stop()
        assert consumer.is_stopped
    assert workers.left() == {"2": 0, "3": 0}


def test_closed_consumer_refuses_calls(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    consumer = consumers.consumer("orders", acknowledge="explicit")
    record = next(consumer)
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.accept(record)
    with pytest.raises(ClosedError):
        consumer.poll()


def test_two_consumers_share_one_partition(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(*(b"%d" % number for number in range(40)))
    with consumers.consumer("orders") as first, consumers.consumer("orders") as second:
        values = {each.value for each in first.poll() + second.poll()}
        assert len(values) == 20  # an acquire of ten each, before they know how fast they are
    assert workers.unfinished() == 20


def test_lost_lock_is_told_and_its_record_refused(consumers: ShareKind, workers: WorkGroup) -> None:
    told: list[bytes | None] = []
    workers.append(b"1")
    with consumers.consumer("orders", on_lock_lost=lambda lost: told.extend(each.value for each in lost)) as consumer:
        record = next(consumer)
        workers.lose_locks()
        consumer.renew(record)
        until(lambda: told == [b"1"])
        assert consumer.locks_lost == 1
        with pytest.raises(LockLostError):
            consumer.accept(record)


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": "no group"},
        {"acknowledge": "later"},
        {"max_records": 501},
        {"max_records": 0},
        {"lock_ms": 999},
        {"wait": "never"},
        {"on_lock_lost": 3},
    ],
)
def test_bad_option_is_refused(consumers: ShareKind, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        consumers.consumer("orders", **options)
