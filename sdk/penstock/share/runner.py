"""Runs a handler over the records of a share consumer, in threads.

| the handler                     | the record                                                    |
|---------------------------------|---------------------------------------------------------------|
| returns                         | is accepted                                                   |
| has acknowledged it by itself   | stays as it is                                                |
| raises `Reject(reason)`         | is rejected                                                   |
| raises another exception        | is released: it comes again after the group's backoff         |
| still works after the drain     | is released                                                   |
"""

import logging
import threading
from collections.abc import Callable

from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import RELEASE
from penstock.share.share_core import ShareCore, wish_after
from penstock.share.share_threads import ShareThreads
from penstock.share_model import Reject, ShareRecord

Handler = Callable[[ShareRecord], object]

_log = logging.getLogger("penstock.share")


class Runner:
    """One `run` of a consumer. `stop` ends the consumer."""

    def __init__(self, core: ShareCore, threads: ShareThreads, stop: Callable[[], None]) -> None:
        self._core = core
        self._threads = threads
        self._stop = stop
        self._failure: BaseException | None = None
        self._working = 0
        self._ended = threading.Event()

    def run(self, handler: Handler, *, concurrency: int, drain_ms: int) -> None:
        """Hand records to `handler` until `stop`. Raises the error that the consumer has met."""
        self._working = concurrency
        workers = [
            threading.Thread(target=self._work, args=(handler,), name=f"penstock-handler-{number}", daemon=True)
            for number in range(concurrency)
        ]
        try:
            for worker in workers:
                worker.start()
            self._threads.drive(self._core.until_stopped())
        finally:
            self._stop()
            self._ended.wait(drain_ms / 1_000)
            with self._threads.lock:
                for record in self._core.keeper.locks.in_hand():
                    self._core.finish(record, RELEASE)
                self._threads.changed()
        if self._failure is not None:
            raise self._failure

    def _work(self, handler: Handler) -> None:
        try:
            while True:
                record = self._threads.drive(self._core.take(NEVER_MS))
                if record is None:
                    return
                self._handle(handler, record)
        except BaseException as failure:
            self._failure = self._failure or failure
            self._stop()
        finally:
            with self._threads.lock:
                self._working -= 1
                if not self._working:
                    self._ended.set()

    def _handle(self, handler: Handler, record: ShareRecord) -> None:
        error: BaseException | None = None
        try:
            with self._core.processing(record, is_received=False):
                handler(record)
        except BaseException as raised:
            error = raised
        log_failure(record, error)
        with self._threads.lock:
            self._core.finish(record, wish_after(error))
            self._threads.changed()
        if error is not None and not isinstance(error, Exception):
            raise error


def log_failure(record: ShareRecord, error: BaseException | None) -> None:
    """A line for a handler that failed, with its traceback. A rejection is no failure."""
    if isinstance(error, Exception) and not isinstance(error, Reject):
        _log.error(
            "the handler of offset %d of %s[%d] has failed in delivery %d: the record is released",
            record.offset,
            record.topic,
            record.partition,
            record.delivery_count,
            exc_info=error,
        )
