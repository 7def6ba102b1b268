"""Rounds of an import: prepare, take steps, and begin anew after an error that may pass. Stops when told to.

One process at a time imports a source into a topic: the epoch of its transactional id fences every other one.
"""

import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

from penstock.errors import FencedError
from penstock.system import random_fraction
from penstock_core.backoff import full_jitter_ms
from penstock_core.errors import PenstockError
from penstock_core.limits import IMPORT_BACKOFF_MS_MAX, IMPORT_FAILURES_MAX

_BACKOFF_MS = 200


class WaitReport(Protocol):
    """The one to tell that the import waits."""

    def waits(self, error: PenstockError, seconds: float) -> None:
        """A try has failed, and another one follows."""


class Import(Protocol):
    """What runs in rounds."""

    def prepare(self) -> None:
        """Begin an epoch, learn what was imported, and set `is_ready` of the rounds."""

    def advance(self) -> bool:
        """Import a little more. False at the end."""

    def may_pass(self, error: PenstockError) -> bool:
        """Tell if a try after `prepare` may end otherwise."""


class Rounds:
    """Runs one import until its end, until `stop`, or until an error that no further try heals."""

    def __init__(self, report: WaitReport) -> None:
        self.is_ready = False
        self._report = report
        self._stopped = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """`stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End `run` after the round in hand. A signal handler may call it."""
        self._stopped.set()

    def run(self, work: Import) -> None:
        """Run `work`. Raises the last error of `IMPORT_FAILURES_MAX` tries without a success between them."""
        failures = 0
        while not self.is_stopped:
            try:
                if not self.is_ready:
                    work.prepare()
                if not work.advance():
                    return
                failures = 0
            except PenstockError as error:
                may_pass = work.may_pass(error)
                self.is_ready = False
                failures += 1
                if not may_pass or failures > IMPORT_FAILURES_MAX:
                    raise
                wait_s = full_jitter_ms(failures, _BACKOFF_MS, IMPORT_BACKOFF_MS_MAX, random_fraction()) / 1_000
                self._report.waits(error, wait_s)
                self._stopped.wait(wait_s)


def transactional_id_of(source: str, topic: str) -> str:
    """Returns the id of every process that imports `source` into `topic`: they fence each other by it."""
    pair = f"{source}\n{topic}"
    return f"penstock-import-{sha256(pair.encode()).hexdigest()[:32]}"


def fenced_by_others(call: Callable[[], object], message: str) -> None:
    """Call, and raise `message` in place of the producer's own where another process has begun an epoch."""
    try:
        call()
    except FencedError as error:
        raise FencedError(error.code, message, maybe_applied=error.maybe_applied) from error
