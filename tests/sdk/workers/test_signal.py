import asyncio
import threading

from penstock.retry import NEVER_MS
from penstock.system import monotonic_ms
from penstock.workers.async_workers import AsyncSleep
from penstock.workers.workers import Signal, Sleep


def test_interruption_ends_the_next_wait_when_the_lock_is_held() -> None:
    lock = threading.Lock()
    signal = Signal(lock)
    with lock:
        signal.interrupt()  # as a signal handler, in the thread that holds the lock
        signal.wait(NEVER_MS)


def test_interruption_ends_one_wait_only() -> None:
    lock = threading.Lock()
    signal = Signal(lock)
    ended: list[bool] = []

    def notify() -> None:
        with lock:  # from here on the other thread waits
            ended.append(True)
            signal.notify_all()

    with lock:
        signal.interrupt()
        signal.wait(NEVER_MS)
        threading.Thread(target=notify).start()
        signal.wait(NEVER_MS)
    assert ended


def test_notification_of_a_thread_that_is_awake_already_does_no_harm() -> None:
    lock = threading.Lock()
    signal = Signal(lock)

    def notify_twice() -> None:
        with lock:
            signal.notify_all()
            signal.notify_all()

    with lock:
        threading.Thread(target=notify_twice).start()
        signal.wait(NEVER_MS)


def test_thread_sleeps_until_its_time() -> None:
    lock = threading.Lock()
    sleep = Sleep(lock)
    with lock:
        ends_at_ms = monotonic_ms() + 20
        sleep.until(ends_at_ms)
    assert monotonic_ms() >= ends_at_ms - 1  # the clock of a condition and this one round differently
    assert sleep.ends_at_ms == -1


def test_thread_that_would_sleep_for_ever_is_woken_and_tells_meanwhile_when_it_ends() -> None:
    lock = threading.Lock()
    sleep = Sleep(lock)
    seen: list[int] = []

    def end() -> None:
        with lock:  # from here on the other thread sleeps
            seen.append(sleep.ends_at_ms)
            sleep.end()
            seen.append(sleep.ends_at_ms)

    with lock:
        threading.Thread(target=end).start()
        sleep.until(NEVER_MS)
    assert seen == [NEVER_MS, -1]


def test_end_without_a_sleeping_thread_is_forgotten() -> None:
    lock = threading.Lock()
    sleep = Sleep(lock)
    with lock:
        sleep.end()
        ends_at_ms = monotonic_ms() + 20
        sleep.until(ends_at_ms)
    assert monotonic_ms() >= ends_at_ms - 1


async def _sleep_of_a_task() -> list[int]:
    sleep = AsyncSleep()
    sleeper = asyncio.create_task(sleep.until(NEVER_MS))
    await asyncio.sleep(0)
    seen = [sleep.ends_at_ms]
    sleep.end()
    seen.append(sleep.ends_at_ms)
    await sleeper
    ends_at_ms = monotonic_ms() + 20
    await sleep.until(ends_at_ms)
    assert monotonic_ms() >= ends_at_ms - 1
    return [*seen, sleep.ends_at_ms]


def test_task_sleeps_until_its_time_or_until_it_is_woken() -> None:
    assert asyncio.run(_sleep_of_a_task()) == [NEVER_MS, -1, -1]
