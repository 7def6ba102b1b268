"""`run`: handlers in threads and in tasks, what happens to their records, and a clean end."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from penstock import InvalidError, NotFoundError, Reject, Release, ShareRecord
from penstock.dead_letters.headers import death_of
from penstock.testing import MemoryPenstock
from tests.sdk.share.share_kinds import ShareKind
from tests.sdk.share.work_group import WorkGroup
from tests.support.deadlines import DEADLINE_S, until


def test_handlers_work_side_by_side(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(*(b"%d" % number for number in range(3)))
    together = threading.Barrier(3)  # an event loop has few threads
    consumer = consumers.consumer("orders")
    run = consumers.run(consumer, lambda _: together.wait(DEADLINE_S), concurrency=3)
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)


def test_outcome_of_the_handler_decides(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"good", b"bad", b"late", b"asks")
    tries: list[bytes | None] = []
    consumer = consumers.consumer("orders")

    def handle(record: ShareRecord) -> None:
        tries.append(record.value)
        if record.value == b"bad":
            raise Reject("it is bad")
        if record.value == b"late" and record.delivery_count < 3:
            raise ValueError
        if record.value == b"asks" and record.delivery_count < 2:
            consumer.release(record, delay_ms=0)

    run = consumers.run(consumer, handle, concurrency=2)
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)
    assert (tries.count(b"good"), tries.count(b"bad"), tries.count(b"late"), tries.count(b"asks")) == (1, 1, 3, 2)
    assert [each["reason"] for each in workers.acknowledgements() if each["type"] == "reject"] == ["it is bad"]


def test_reason_of_a_failure_goes_to_the_service(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"raises", b"asks", b"is odd")

    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def handle(record: ShareRecord) -> None:
        if record.delivery_count == 1:
            raise {
                b"raises": KeyError("id"),
                b"asks": Release("busy" * 100, delay_ms=3),
                b"is odd": OddError(),
            }[record.value or b""]

    consumer = consumers.consumer("orders")
    run = consumers.run(consumer, handle, concurrency=2)
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)
    told = {(each["reason"], each["delay_ms"]) for each in workers.acknowledgements() if each["type"] == "release"}
    assert told == {("KeyError: 'id'", None), (("busy" * 100)[:200], 3), ("OddError", None)}


def test_run_pauses_when_all_records_fail_and_goes_on_after_one_succeeds(
    consumers: ShareKind, workers: WorkGroup
) -> None:
    workers.append(*(b"%d" % number for number in range(30)))
    tried: set[int] = set()
    is_mended = threading.Event()

    def handle(record: ShareRecord) -> None:
        tried.add(record.offset)
        if not is_mended.is_set():
            raise Release

    consumer = consumers.consumer("orders")
    run = consumers.run(consumer, handle, concurrency=1)
    until(lambda: len(tried) == 10 and workers.in_flight() == 0)
    is_mended.set()
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)


def test_lock_is_renewed_while_a_handler_works(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    done = threading.Event()
    consumer = consumers.consumer("orders", lock_ms=4_000)  # renewed each third: a busy machine may be late
    run = consumers.run(consumer, lambda _: done.wait(DEADLINE_S), concurrency=2)
    until(lambda: workers.sent("renew") >= 3)  # past the first lock's end
    done.set()
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)
    assert consumer.locks_lost == 0


def test_stop_waits_for_handlers_and_gives_the_rest_back(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", b"2", b"3")
    begun, done = threading.Event(), threading.Event()

    def handle(_: ShareRecord) -> None:
        begun.set()
        done.wait(DEADLINE_S)

    consumer = consumers.consumer("orders")
    run = consumers.run(consumer, handle, concurrency=1)
    assert begun.wait(DEADLINE_S)
    consumer.stop()
    until(lambda: workers.in_flight() == 1)
    assert not run.done()
    done.set()
    run.result(DEADLINE_S)
    assert workers.left() == {"2": 0, "3": 0}


def test_handler_that_outlasts_the_drain_loses_its_record(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1")
    begun, done = threading.Event(), threading.Event()

    def handle(_: ShareRecord) -> None:
        begun.set()
        done.wait(DEADLINE_S)

    consumer = consumers.consumer("orders", drain_ms=10)
    run = consumers.run(consumer, handle, concurrency=1)
    assert begun.wait(DEADLINE_S)
    consumer.stop()
    run.result(DEADLINE_S)
    assert (workers.unfinished(), workers.in_flight()) == (1, 0)
    done.set()


def test_error_of_the_service_ends_the_run(consumers: ShareKind, workers: WorkGroup) -> None:
    consumer = consumers.consumer("orders", group_id="others")
    with pytest.raises(NotFoundError):
        consumers.run(consumer, lambda _: None, concurrency=3).result(DEADLINE_S)


_PROGRAM = """
import asyncio, sys, time
from penstock import AsyncShareConsumer, ShareConsumer
from penstock.testing import MemoryPenstock, ThreadedTransport
from tests.sdk.share.work_group import WorkGroup

workers = WorkGroup(MemoryPenstock())
workers.append(b"1", b"2", b"3")

def handle(record):
    print("begun", flush=True)
    while not consumer.is_stopped:
        time.sleep(0.01)

async def run():
    global consumer
    consumer = AsyncShareConsumer(group_id="workers", transport=ThreadedTransport(workers.transport))
    await consumer.run(lambda record: asyncio.to_thread(handle, record), concurrency=1)

if sys.argv[1] == "threads":
    consumer = ShareConsumer(group_id="workers", transport=workers.transport)
    consumer.run(handle, concurrency=1)
else:
    asyncio.run(run())
print(workers.in_flight(), workers.left(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_sigterm_ends_a_run_cleanly(kind: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _PROGRAM, kind], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        os.kill(program.pid, signal.SIGTERM)
        output, _ = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == 0
    assert output == "0 {'2': 0, '3': 0}\n"


def test_poison_is_in_the_dead_letter_topic_once_after_its_last_delivery(
    consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock
) -> None:
    service.create_topic("orders.dead")
    workers.admin.alter_share_group("workers", {"dead_letter_topic": "orders.dead", "deliveries_max": 3})
    workers.append(*(b"%d" % number for number in range(20)))
    deliveries: list[int] = []

    def handle(record: ShareRecord) -> None:
        if record.value == b"7":
            deliveries.append(record.delivery_count)
            raise ValueError("it is poison")

    consumer = consumers.consumer("orders")
    run = consumers.run(consumer, handle, concurrency=4)
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)
    assert deliveries == [1, 2, 3]
    (dead,) = service.records("orders.dead")
    assert (dead.value, death_of(dead.headers).deliveries) == (b"7", 3)


def test_handlers_keep_the_order_of_each_key(consumers: ShareKind, workers: WorkGroup, service: MemoryPenstock) -> None:
    workers.admin.delete_share_group("workers")
    workers.admin.create_share_group("workers", "orders", {"ordering": "key", "key_batch_max": 5})
    with service.producer() as producer:
        for number in range(30):
            producer.send("orders", b"%d" % number, key=b"%d" % (number % 3), partition=0)
    handled: list[list[int]] = [[], [], []]
    working: set[int] = set()

    def handle(record: ShareRecord) -> None:
        number = int(record.value or b"")
        assert number % 3 not in working
        working.add(number % 3)
        handled[number % 3].append(number)
        working.remove(number % 3)

    consumer = consumers.consumer("orders")
    run = consumers.run(consumer, handle, concurrency=3)
    until(lambda: workers.unfinished() == 0)
    consumer.stop()
    run.result(DEADLINE_S)
    assert handled == [list(range(first, 30, 3)) for first in range(3)]


def test_run_ends_when_no_record_came_for_so_long(consumers: ShareKind, workers: WorkGroup) -> None:
    workers.append(b"1", b"2")
    consumer = consumers.consumer("orders")
    seen: list[bytes | None] = []
    consumers.run(consumer, lambda record: seen.append(record.value), concurrency=2, idle_ms=300).result(DEADLINE_S)
    assert sorted(each or b"" for each in seen) == [b"1", b"2"]
    assert (consumer.is_stopped, workers.unfinished()) == (True, 0)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "5s"])
def test_run_refuses_an_idle_time_that_is_no_number_of_milliseconds(
    consumers: ShareKind, workers: WorkGroup, wrong: object
) -> None:
    consumer = consumers.consumer("orders")
    with pytest.raises(InvalidError, match="idle_ms="):
        consumers.run(consumer, print, idle_ms=wrong).result(DEADLINE_S)
    consumer.close()
