import threading

from penstock.retry import NEVER_MS
from penstock.workers.workers import Signal


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
