"""Runs a handler over the records of a share consumer, in tasks: runner.py has the rules."""

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import RELEASE
from penstock.share.runner import Handler, log_failure
from penstock.share.share_core import ShareCore, wish_after
from penstock.share.share_tasks import ShareTasks
from penstock.share_model import ShareRecord


class AsyncRunner:
    """One `run` of a consumer. `stop` ends the consumer."""

    def __init__(self, core: ShareCore, tasks: ShareTasks, stop: Callable[[], None]) -> None:
        self._core = core
        self._tasks = tasks
        self._stop = stop
        self._failure: BaseException | None = None

    async def run(self, handler: Handler, *, concurrency: int, drain_ms: int) -> None:
        """As `Runner.run`, awaited. A cancellation stops it, and cancels the handlers."""
        workers = [
            asyncio.create_task(self._work(handler), name=f"penstock-handler-{number}") for number in range(concurrency)
        ]
        try:
            await self._tasks.drive(self._core.until_stopped())
            await asyncio.wait(workers, timeout=drain_ms / 1_000)
        finally:
            self._stop()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            for record in self._core.keeper.locks.in_hand():
                self._core.finish(record, RELEASE)
            self._tasks.wake()
        if self._failure is not None:
            raise self._failure

    async def _work(self, handler: Handler) -> None:
        try:
            while True:
                record = await self._tasks.drive(self._core.take(NEVER_MS))
                if record is None:
                    return
                await self._handle(handler, record)
        except asyncio.CancelledError:
            raise
        except BaseException as failure:
            self._failure = self._failure or failure
            self._stop()

    async def _handle(self, handler: Handler, record: ShareRecord) -> None:
        error: BaseException | None = None
        try:
            with self._core.processing(record, is_received=False):
                answer = handler(record)
                if inspect.isawaitable(answer):
                    await answer
        except BaseException as raised:
            error = raised
        log_failure(record, error)
        self._core.finish(record, wish_after(error))
        self._tasks.wake()
        if error is not None and not isinstance(error, Exception):
            raise error


@contextmanager
def stopped_by_loop_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at INT or TERM, where the running loop can hear them. A second signal does as before."""
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []

    def heard(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        handled.remove(number)
        stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, ValueError, RuntimeError):  # another loop, or another system
                loop.add_signal_handler(number, heard, number)
                handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
