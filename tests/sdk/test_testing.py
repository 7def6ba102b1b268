"""The clock of a service in memory: what a test reaches by `advance`, and what clients see of it."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

import pytest

from penstock import ConsumerRecord, InvalidError, ShareConsumer, ShareRecord
from penstock.errors import ConnectionFailedError, LockLostError
from penstock.http.http_message import Response
from penstock.testing import MemoryPenstock
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import Partition, PartitionKey, TopicId
from penstock_core.limits import APPEND_MS_MAX
from penstock_core.log.timer import DueSecond
from penstock_service.adapters.memory.messages import ClockTimerTriggers
from penstock_service.adapters.system import MovableClock
from penstock_service.instance.instance import Instance
from penstock_service.timers.promote import Promotion, promote_second
from tests.sdk.client_kinds import ClientKind
from tests.sdk.polling import poll_count
from tests.support.deadlines import DEADLINE_S, until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:pack"


def values(service: MemoryPenstock, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in service.records(topic)]


def send(service: MemoryPenstock, value: bytes, delay_ms: int | None = None) -> None:
    with service.producer() as producer:
        producer.send("orders", value, delay_ms=delay_ms).result(DEADLINE_S)


# The clock itself.


def test_sleep_ends_when_an_advance_is_longer() -> None:
    clock = MovableClock()
    sleeper = threading.Thread(target=clock.sleep_ms, args=(HOUR_MS,))
    sleeper.start()
    clock.advance(HOUR_MS)
    clock.wake()
    sleeper.join(DEADLINE_S)
    assert not sleeper.is_alive()


def test_clock_begins_where_it_is_told_and_advances_both_of_its_times() -> None:
    clock = MovableClock(5 * HOUR_MS)
    wall_ms, own_ms = clock.now_ms(), clock.monotonic_ms()
    assert 0 <= wall_ms - 5 * HOUR_MS < HOUR_MS
    clock.advance(DAY_MS)
    assert (clock.now_ms() - wall_ms) // HOUR_MS == (clock.monotonic_ms() - own_ms) // HOUR_MS == 24


def test_triggers_promote_each_second_once_it_is_over_by_the_clock() -> None:
    clock = MovableClock()
    triggers = ClockTimerTriggers(clock)
    first, second = (DueSecond(number, PartitionKey(TopicId("t"), Partition(0))) for number in (1, 2))
    promoted: list[DueSecond] = []
    triggers.promote = promoted.append
    triggers.announce(second, 2 * HOUR_MS)
    triggers.announce(first, HOUR_MS)
    clock.advance(HOUR_MS)
    clock.wake()
    until(lambda: promoted == [first])
    clock.advance(HOUR_MS)
    clock.wake()
    until(lambda: promoted == [first, second])
    triggers.close()
    triggers.announce(first, 0)
    assert promoted == [first, second]


@pytest.mark.parametrize("error", [PenstockError(ErrorCode.CONCURRENT_UPDATE, "overtaken"), KeyError("x")])
def test_delayed_records_come_later_when_their_promotion_failed(
    service: MemoryPenstock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    service.create_topic("orders")
    tries: list[DueSecond] = []

    def promote(instance: Instance, second: DueSecond, deadline_ms: float) -> Promotion:
        tries.append(second)
        if len(tries) == 1:
            raise error
        return promote_second(instance, second, deadline_ms)

    monkeypatch.setattr("penstock.testing.promote_second", promote)
    send(service, b"later", delay_ms=1)
    until(lambda: values(service) == [b"later"])
    assert tries[0] == tries[1]


# What a test reaches.


@pytest.mark.parametrize("delay_ms", [1, 99, 5_000, HOUR_MS + 1, 365 * DAY_MS])
def test_delayed_record_is_there_after_exactly_its_delay(service: MemoryPenstock, delay_ms: int) -> None:
    service.create_topic("orders")
    send(service, b"later", delay_ms=delay_ms)
    if delay_ms > HOUR_MS:
        service.advance(delay_ms - HOUR_MS)
        assert values(service) == []
        service.advance(HOUR_MS)
    else:
        service.advance(delay_ms)
    assert values(service) == [b"later"]


def test_delay_and_time_of_a_record_count_from_the_clock_of_the_service(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("orders")
    service.advance(30 * DAY_MS)
    before_ms = service.now_ms
    with clients.producer() as producer:
        producer.send("orders", b"now").result(DEADLINE_S)
        producer.send("orders", b"later", delay_ms=HOUR_MS).result(DEADLINE_S)
    [record] = service.records("orders")
    assert before_ms <= (record.timestamp_ms or 0) <= service.now_ms
    service.advance(HOUR_MS)
    assert values(service) == [b"now", b"later"]


def test_delayed_record_of_a_transaction_comes_after_an_advance(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.advance(DAY_MS)
    with service.producer(transactional_id="shop") as producer, producer.transaction() as transaction:
        transaction.send("orders", b"later", delay_ms=HOUR_MS)
        transaction.send("orders", b"now")
    assert values(service) == [b"now"]
    assert service.records("orders")[0].timestamp_ms in range(service.now_ms - HOUR_MS, service.now_ms + 1)
    service.advance(HOUR_MS)
    assert values(service) == [b"now", b"later"]


def test_delayed_record_comes_in_real_time_after_an_advance_that_is_too_short(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    send(service, b"later", delay_ms=600_000)
    service.advance(599_000)
    until(lambda: values(service) == [b"later"])


def test_poll_that_waits_returns_the_records_that_an_advance_brings(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("orders")
    send(service, b"later", delay_ms=HOUR_MS)
    found: list[ConsumerRecord] = []
    with clients.consumer("orders") as consumer:
        assert consumer.poll(timeout_ms=0) == []
        waiting = threading.Thread(target=lambda: found.extend(poll_count(1, consumer)))
        waiting.start()
        service.advance(HOUR_MS)
        waiting.join(DEADLINE_S)
    assert [record.value for record in found] == [b"later"]


def test_expired_lock_lets_another_worker_have_the_record(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.create_share_group("workers", "orders")
    send(service, b"1")
    lost: list[ShareRecord] = []
    options = {"group_id": "workers", "on_lock_lost": lost.extend, "hold_ms_max": 0}  # it renews no lock
    with service.share_consumer("orders", **options) as slow:
        [record] = slow.poll(timeout_ms=60_000)
        service.advance(30_000)
        with service.share_consumer("orders", group_id="workers") as quick:
            [again] = quick.poll(timeout_ms=60_000)
            assert (again.offset, again.delivery_count) == (record.offset, 2)
            until(lambda: _is_refused(slow, record))
        assert (lost, slow.locks_lost) == ([record], 1)


def _is_refused(worker: ShareConsumer, record: ShareRecord) -> bool:
    """Accept the record. True once the worker knows that its lock was lost."""
    with suppress(LockLostError, InvalidError):
        worker.accept(record)
        worker.flush()
    return worker.locks_lost == 1


def test_backoff_of_a_released_record_is_over_after_an_advance(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    service.create_share_group("workers", "orders")
    send(service, b"1")
    with service.share_consumer("orders", group_id="workers") as consumer:
        [record] = consumer.poll(timeout_ms=60_000)
        consumer.release(record, delay_ms=HOUR_MS)
        consumer.flush()
        assert consumer.poll(timeout_ms=0) == []
        service.advance(HOUR_MS)
        [again] = consumer.poll(timeout_ms=60_000)
    assert again.delivery_count == 2


def test_retention_removes_records_by_their_age(service: MemoryPenstock) -> None:
    service.create_topic("orders", config={"retention_ms": 7 * DAY_MS})
    service.create_topic("kept", config={"retention_ms": -1})
    send(service, b"old")
    service.advance(6 * DAY_MS)
    send(service, b"new")
    assert values(service) == [b"old", b"new"]
    service.advance(DAY_MS + APPEND_MS_MAX)
    assert values(service) == [b"new"]
    service.advance(6 * DAY_MS)
    assert values(service) == []


@pytest.mark.parametrize("inline_bytes_max", [0, 1_000, None])
def test_default_retention_holds_for_records_in_items_too(inline_bytes_max: int | None) -> None:
    with MemoryPenstock(inline_bytes_max=inline_bytes_max) as service:
        service.create_topic("orders")
        send(service, b"old")
        service.advance(13 * DAY_MS)
        assert values(service) == [b"old"]
        service.advance(2 * DAY_MS)
        assert values(service) == []
        send(service, b"new")
        assert values(service) == [b"new"]


def test_raised_retention_keeps_small_appends_however_far_you_advance(service: MemoryPenstock) -> None:
    service.create_topic("orders", config={"retention_ms": 7 * DAY_MS})
    send(service, b"old")
    service.admin().alter_topic("orders", {"retention_ms": 60 * DAY_MS})
    service.advance(50 * DAY_MS)
    assert values(service) == [b"old"]
    service.advance(11 * DAY_MS)
    assert values(service) == []


@pytest.mark.parametrize("inline_bytes_max", [-1, 5_121])
def test_bound_of_small_appends_is_checked(inline_bytes_max: int) -> None:
    with pytest.raises(InvalidError, match="inline_bytes_max"):
        MemoryPenstock(inline_bytes_max=inline_bytes_max)


def test_offsets_of_a_group_without_members_expire(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    send(service, b"1")
    with service.consumer("orders", group_id="billing") as consumer:
        assert len(poll_count(1, consumer)) == 1
        consumer.commit()
    assert [each.group for each in service.admin().list_groups()] == ["billing"]
    service.advance(400 * DAY_MS)
    assert list(service.admin().list_groups()) == []


class _CutTransport:
    """The service, until `cut`: then no request arrives."""

    def __init__(self, service: MemoryPenstock) -> None:
        self._inner = service.transport
        self.is_cut = threading.Event()

    def call(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> Response:
        if self.is_cut.is_set():
            raise ConnectionFailedError("cut", maybe_applied=False)
        return self._inner.call(method, path, query, headers, body)

    def close(self) -> None:
        """Nothing to close."""


def test_partitions_of_a_member_that_died_go_to_another_one_after_its_session(
    clients: ClientKind, service: MemoryPenstock
) -> None:
    service.create_topic("orders")
    dead = _CutTransport(service)
    with clients.consumer("orders", group_id="billing", transport=dead) as first:
        poll_for(first, lambda: bool(first.assignment()))
        dead.is_cut.set()
        service.advance(30 * 60_000)
        with clients.consumer("orders", group_id="billing") as second:
            poll_for(second, lambda: bool(second.assignment()))
        dead.is_cut.clear()


def poll_for(consumer: object, is_there: Callable[[], bool]) -> None:
    def look() -> bool:
        consumer.poll(timeout_ms=50)  # type: ignore[attr-defined]  # of either kind
        return is_there()

    until(look)


def test_member_that_lives_goes_on_after_an_advance(clients: ClientKind, service: MemoryPenstock) -> None:
    service.create_topic("orders")
    with clients.consumer("orders", group_id="billing") as consumer:
        poll_for(consumer, lambda: bool(consumer.assignment()))
        service.advance(DAY_MS)
        send(service, b"1")
        assert [record.value for record in poll_count(1, consumer)] == [b"1"]


def test_failed_push_is_tried_again_after_its_pause(service: MemoryPenstock) -> None:
    service.create_topic("orders")
    tries: list[object] = []

    def pack(event: object, _context: None) -> None:
        tries.append(event)
        if len(tries) == 1:
            raise KeyError("customer")

    service.add_function(ARN, pack)
    service.admin().put_subscription("packing", "orders", {"lambda": ARN})
    send(service, b"1")
    service.deliver_pushes()
    service.deliver_pushes()
    assert len(tries) == 1
    service.advance(HOUR_MS)
    service.deliver_pushes()
    assert len(tries) == 2
    assert [each.lag for each in service.admin().describe_subscription("packing").partitions] == [0]


def test_program_of_asyncio_may_advance_while_it_waits(service: MemoryPenstock) -> None:
    service.create_topic("orders")

    async def program() -> bytes | None:
        async with service.async_producer() as producer, service.async_consumer("orders") as consumer:
            await (await producer.send("orders", b"later", delay_ms=HOUR_MS))
            found = asyncio.create_task(anext(aiter(consumer)))
            await asyncio.sleep(0)
            service.advance(HOUR_MS)
            value: bytes | None = (await found).value
            return value

    assert asyncio.run(program()) == b"later"


# Setting the clock.


@pytest.mark.parametrize("start_ms", [0, 951_782_400_000, 4_102_444_800_000])
def test_service_works_at_the_time_that_it_was_given(start_ms: int) -> None:
    with MemoryPenstock(start_ms=start_ms) as service:
        service.create_topic("orders")
        send(service, b"now")
        send(service, b"later", delay_ms=HOUR_MS)
        [record] = service.records("orders")
        assert start_ms <= (record.timestamp_ms or 0) < start_ms + HOUR_MS
        service.advance_to(start_ms + 2 * HOUR_MS)
        assert values(service) == [b"now", b"later"]
        assert start_ms + 2 * HOUR_MS <= service.now_ms < start_ms + 3 * HOUR_MS


def test_clock_never_goes_back(service: MemoryPenstock) -> None:
    with pytest.raises(InvalidError, match=r"timestamp_ms=5: the clock shows .*, and never goes back"):
        service.advance_to(5)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1h", 10 * 366 * DAY_MS + 1])
def test_advance_refuses_what_is_no_time(service: MemoryPenstock, wrong: int) -> None:
    with pytest.raises(InvalidError, match="duration_ms="):
        service.advance(wrong)


@pytest.mark.parametrize("wrong", [-1, 1.5, "2024-01-01", 4_102_444_800_001])
def test_service_refuses_a_start_that_is_no_time(wrong: int) -> None:
    with pytest.raises(InvalidError, match="start_ms="):
        MemoryPenstock(start_ms=wrong)


def test_close_ends_every_client_when_one_of_them_raises() -> None:
    service = MemoryPenstock()
    service.create_topic("orders")
    first = service.consumer("orders")
    broken = service.producer()
    service._closing.callback(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        service.close()
    for client in (lambda: broken.send("orders", b"1"), first.poll):
        with pytest.raises(Exception, match="closed"):
            client()
