# Generated from async_runner.py by `python -m tools.unasync`: change that file.
"""Runs a handler over the records of a share consumer, in threads.

| the handler                     | the record                                                    |
|---------------------------------|---------------------------------------------------------------|
| returns                         | is accepted                                                   |
| has acknowledged it by itself   | stays as it is                                                |
| raises `Reject(reason)`         | is rejected                                                   |
| raises `Release(reason)`        | is released: it comes again after the group's backoff         |
| raises another exception        | the same, with the exception as the reason                    |
| still works after the drain     | is released                                                   |
"""

import threading
from collections.abc import Callable

from penstock.model.share import ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import RELEASE
from penstock.share.opening import Handler, log_failure
from penstock.share.share_core import ShareCore
from penstock.share.share_driver import ShareDriver
from penstock.system import monotonic_ms
from penstock.workers.workers import join_until

_LOOK_EACH_MS = 1_000
Leaves = Callable[[], bool]


class Runner:
    """One `run` of a consumer at a stage. `stop` ends its core. `leaves` is asked each second whether to leave it."""

    def __init__(self, core: ShareCore, driver: ShareDriver, stop: Callable[[], None], leaves: Leaves | None) -> None:
        self._leaves = leaves
        self._core = core
        self._driver = driver
        self._stop = stop
        self._failure: BaseException | None = None

    def run(self, handler: Handler, *, concurrency: int, drain_ms: int, idle_ms: int | None) -> None:
        """Hand records to `handler` until `stop` or `idle_ms`. Raises the error that the consumer has met."""
        names = [f"penstock-handler-{number}" for number in range(concurrency)]
        workers = [threading.Thread(target=self._work, args=(handler,), name=name, daemon=True) for name in names]
        try:
            for worker in workers:
                worker.start()
            look_ms = NEVER_MS if self._leaves is None else _LOOK_EACH_MS
            is_over = self._driver.drive(self._core.until_stopped(idle_ms, look_ms=look_ms))
            while not (is_over or (self._leaves is not None and self._leaves())):
                is_over = self._driver.drive(self._core.until_stopped(idle_ms, look_ms=look_ms, is_again=True))
            self._stop()
        finally:
            self._stop()
            join_until(workers, monotonic_ms() + drain_ms)
            with self._driver.lock:
                for record in self._core.keeper.locks.in_hand():
                    self._core.finish(record, RELEASE)
                self._driver.wake()
        if self._failure is not None:
            raise self._failure

    def _work(self, handler: Handler) -> None:
        try:
            while True:
                record = self._driver.drive(self._core.take(NEVER_MS))
                if record is None:
                    return
                self._handle(handler, record)
        except BaseException as failure:
            self._failure = self._failure or failure
            self._stop()

    def _handle(self, handler: Handler, record: ShareRecord) -> None:
        error: BaseException | None = None
        try:
            with self._core.processing(record, is_received=False):
                handler(record)
        except BaseException as raised:
            error = raised
        log_failure(record, error)
        with self._driver.lock:
            self._core.handled(record, error)
            self._driver.wake()
        if error is not None and not isinstance(error, Exception):
            raise error
