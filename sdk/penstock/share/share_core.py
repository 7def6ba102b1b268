"""The decisions of a share consumer: when to acquire, what to hand out, what to acknowledge. No I/O, no threads.

    poll, next_record -> Wait ... next_call -> (the driver sends) -> complete ... -> records

Invariants:

- One acquire is on its way at a time, and so is one acknowledgement. An acquire without an answer is repeated with
  the same nonce and body for 10 s, so that no lock is taken twice. After that a new one takes its place.
- Acknowledgements ride on the next acquire. They go alone when no acquire goes out, or when they are urgent.
- A record is handed out once under a lock.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from penstock.errors import ClosedError, InvalidError, LockLostError
from penstock.http.steps import Steps, Wait
from penstock.model import TopicPartition
from penstock.model.share import Reject, Release, ShareAcceptance, ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import (
    ACCEPT,
    RELEASE,
    Acknowledgement,
    LockKey,
    Verb,
    Wish,
    ranges_of,
    reject,
    release,
)
from penstock.share.acquire_call import ShareAnswer, ShareCall
from penstock.share.breaker import Breaker
from penstock.share.held_locks import Clocks, Moment, key_of
from penstock.share.keeper import Keeper
from penstock.share.settings import ShareSettings
from penstock.share.waiting import Appetite, ShareWaiting
from penstock.telemetry.operations import Notes
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import SDK_LEAVE_MS_MAX, SDK_SHARE_FAILURES_MAX

_REPEAT_MS_MAX = 10_000  # the service tells repeats of an acquire for so long

_log = logging.getLogger("penstock.share")


class ShareCore:
    """One consumer of a share group. `topics` are some of the group's, none for all."""

    def __init__(
        self,
        settings: ShareSettings,
        topics: Iterable[str],
        *,
        consumer_id: str,
        now: Clocks,
        new_nonce: Callable[[], str],
        notes: Notes | None = None,
    ) -> None:
        self.notes = notes
        self.waiting = ShareWaiting(settings.poll_wait_ms, settings.fetch_interval_ms, is_woken=settings.wait == "wake")
        self.keeper = Keeper(lock_ms=settings.lock_ms, hold_ms_max=settings.hold_ms_max)
        self.appetite = Appetite(settings.max_records)
        self.breaker = Breaker()
        self.is_stopped = False
        self.is_closed = False
        self.wake_at_ms = 0  # when `next_call` may have one, if nothing happens before
        self._settings = settings
        self._topics = list(topics) or None
        self._consumer_id = consumer_id
        self._now = now
        self._new_nonce = new_nonce
        self._is_over = False
        self._takers = 0  # calls that wait for records
        self._working = 0  # handlers of `run` that have a record
        self._worked_ms = 0  # when the last of them ended, or an acquire failed
        self._is_answered = False  # the last acquire, or the one before a pause
        self._automatic: list[ShareRecord] = []  # to be accepted when the application asks for more
        self._attempt: ShareCall | None = None  # an acquire without an answer
        self._is_acquiring = False
        self._is_acknowledging = False
        self._failures = 0
        self._acquire_at_ms = 0
        self._acknowledge_at_ms = 0
        self._error: PenstockError | None = None

    # The application.

    def poll(self, max_records: int | None, timeout_ms: int) -> Steps[list[ShareRecord]]:
        """Up to `max_records`; none if none came in time."""
        self.finish_automatic(ACCEPT)
        most = self._settings.max_records if max_records is None else max_records
        started_ns = 0 if self.notes is None else self.notes.now_ns()
        taken = yield from self._take(most, self._now().monotonic_ms + timeout_ms, is_one_per_key=False)
        self._automatic = taken if self._settings.acknowledge == "auto" else []
        if self.notes is not None:
            self.notes.received(taken, started_ns, self.notes.now_ns())
        return taken

    def next_record(self) -> Steps[ShareRecord | None]:
        """The next record; None after `consumer_timeout_ms`, or `stop`."""
        timeout_ms = self._settings.consumer_timeout_ms
        records = yield from self.poll(1, NEVER_MS if timeout_ms is None else timeout_ms)
        return records[0] if records else None

    def take(self, until_ms: int) -> Steps[ShareRecord | None]:
        """A record for one of several handlers, which work side by side; None after `stop`. Raises as `poll`.

        The handler tells by `handled` how it ended.
        """
        while self._now().monotonic_ms < min(until_ms, self.breaker.due_ms) and not self.is_stopped:
            self.wake_at_ms = 0
            yield Wait(until_ms=min(until_ms, self.breaker.due_ms))
        self.breaker.tries()
        records: list[ShareRecord] = []
        try:
            records = yield from self._take(1, until_ms, is_one_per_key=True)
        finally:
            if not records:
                self.breaker.gives_up()
        self._working += len(records)
        return records[0] if records else None

    def handled(self, record: ShareRecord, error: BaseException | None) -> None:
        """A handler has ended so: acknowledge the record, unless the handler has done it."""
        self.finish(record, wish_after(error))
        self._working -= 1
        self._worked_ms = self._now().monotonic_ms
        if error is None or isinstance(error, Reject):
            self.breaker.succeeded()
        elif not isinstance(error, Exception):
            self.breaker.gives_up()
        elif pause_ms := self.breaker.failed(record, self._now().monotonic_ms):
            _log.warning("%d records in a row have failed: pausing for %d s", SDK_SHARE_FAILURES_MAX, pause_ms // 1_000)
            self.keeper.give_back(self._now())

    def _take(self, most: int, until_ms: int, *, is_one_per_key: bool) -> Steps[list[ShareRecord]]:
        """Raises the error that is in the way, once."""
        while True:
            if self.is_closed:
                raise ClosedError("the share consumer is closed")
            now = self._now()
            self.keeper.look(now)
            if self.is_stopped:
                return []
            taken = self.keeper.take(most, now, is_one_per_key=is_one_per_key)
            if taken:
                self.appetite.begins(len(taken), now.monotonic_ms)
                self.wake_at_ms = 0
                return taken
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if now.monotonic_ms >= until_ms:
                return []
            self.appetite.waits(now.monotonic_ms)
            self._takers += 1
            self.wake_at_ms = 0
            try:
                yield Wait(until_ms=until_ms)
            finally:
                self._takers -= 1

    def report(self) -> None:
        """Without the lock: report what was noted."""
        if self.notes is not None:
            self.notes.report()

    def processing(self, record: ShareRecord, *, is_received: bool) -> AbstractContextManager[object]:
        """The body handles the record. `is_received`: `poll` has returned it."""
        return nullcontext() if self.notes is None else self.notes.processing(record, is_received=is_received)

    def until_stopped(
        self, idle_ms: int | None = None, *, look_ms: int = NEVER_MS, is_again: bool = False
    ) -> Steps[bool]:
        """Wait until `stop` is called, or no handler has had a record for `idle_ms`, as the service has said.

        False if neither has come in `look_ms`: call it again then, with `is_again`.
        """
        now_ms = self._now().monotonic_ms
        if not is_again:
            self._worked_ms = now_ms
        ends_ms = now_ms + look_ms
        until_ms = NEVER_MS if idle_ms is None else self._worked_ms + idle_ms
        while not self.is_stopped and not (now_ms >= until_ms and self._is_answered):
            if now_ms >= ends_ms:
                return False
            yield Wait(until_ms=min(ends_ms, until_ms if now_ms < until_ms else NEVER_MS))
            now_ms = self._now().monotonic_ms
            if idle_ms is not None:
                until_ms = (now_ms if self._working else self._worked_ms) + idle_ms
        self.wake_at_ms = 0  # records at hand go back at once
        return True

    def rest(self, pause_ms: int) -> Steps[None]:
        """Wait so long, or until `stop` is called."""
        until_ms = self._now().monotonic_ms + pause_ms
        while not self.is_stopped and self._now().monotonic_ms < until_ms:
            yield Wait(until_ms=until_ms)

    def acknowledge(self, record: ShareRecord, wish: Wish) -> None:
        """Do as the application says. Raises LockLostError or InvalidError if the record is not in hand."""
        if self._is_over:
            raise ClosedError("the share consumer is closed")
        if not self.finish(record, wish):
            self._refuse(record)

    def acceptances(self, records: Iterable[ShareRecord]) -> list[ShareAcceptance]:
        """The records for a transaction to accept. Raises as `acknowledge`. The next poll does not accept them."""
        by_lock: dict[LockKey, list[int]] = {}
        chosen = list(records)
        for record in chosen:
            if not self.keeper.locks.is_in_hand(record):
                self._refuse(record)
            by_lock.setdefault(key_of(record), []).append(record.offset)
        self._automatic = [record for record in self._automatic if record not in chosen]
        return [
            ShareAcceptance(
                group=self._settings.group_id,
                topic=key.topic,
                partition=key.partition,
                lock_id=key.lock_id,
                offsets=tuple((start, end) for start, end in ranges_of(sorted(set(offsets)))),
            )
            for key, offsets in by_lock.items()
        ]

    def settled(self, records: Iterable[ShareRecord]) -> None:
        """A transaction has accepted the records."""
        for record in records:
            if self.keeper.locks.put_aside(record) is not None:
                self.keeper.locks.answered(key_of(record), [record.offset])

    def finish(self, record: ShareRecord, wish: Wish) -> bool:
        """As `acknowledge`, but False if the record is not in hand."""
        self.wake_at_ms = 0
        return self.keeper.acknowledge(record, wish, self._now())

    def finish_automatic(self, wish: Wish) -> None:
        """Acknowledge the records that were returned last, unless the application has done so."""
        records, self._automatic = self._automatic, []
        for record in records:
            self.finish(record, wish)

    def flush(self, until_ms: int) -> Steps[bool]:
        """Send all acknowledgements. False if some are not answered by then. Raises the error of a refused call."""
        while self.keeper.queue or self._is_acknowledging or self._is_acquiring_with_entries():
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            now_ms = self._now().monotonic_ms
            if now_ms >= until_ms:
                return False
            self.keeper.queue.hurry(now_ms)
            self.wake_at_ms = 0
            yield Wait(until_ms=until_ms)
        return True

    def close(self, error: BaseException | None) -> Steps[None]:
        """Accept what the application has dealt with, release everything else, and wait for the answers.

        After an error it releases, or rejects, what was returned last.
        """
        self.is_closed = self.is_stopped = True
        self.finish_automatic(wish_after(error))
        for record in self.keeper.locks.in_hand():
            self.finish(record, RELEASE)
        self.keeper.give_back(self._now())
        until_ms = self._now().monotonic_ms + SDK_LEAVE_MS_MAX
        while self._is_acquiring and self._now().monotonic_ms < until_ms:
            yield Wait(until_ms=until_ms)
        try:
            if not (yield from self.flush(until_ms)):
                _log.warning("closed without an answer to some acknowledgements: their records may come again")
        except PenstockError as failure:
            _log.warning("some acknowledgements were refused, so their records come again: %s", failure)
        finally:
            self._is_over = True

    # The driver.

    def next_call(self) -> ShareCall | None:
        """The request to send now, or None until something changes or `wake_at_ms` comes."""
        now = self._now()
        now_ms = now.monotonic_ms
        self.keeper.look(now)
        if self.is_stopped:
            self._wind_up(now)
        self.wake_at_ms = NEVER_MS
        if self._wants_more() and not self._is_acquiring:
            due_ms = max(self._acquire_at_ms, self.waiting.due_ms() if self._attempt is None else 0)
            if now_ms >= due_ms:
                return self._acquire(now)
            self.wake_at_ms = due_ms
        if self.keeper.queue and not self._is_acknowledging:
            due_ms = max(self._acknowledge_at_ms, self.keeper.queue.due_ms)
            if now_ms >= due_ms:
                return self._acknowledge(now)
            self.wake_at_ms = min(self.wake_at_ms, due_ms)
        self.wake_at_ms = min(self.wake_at_ms, self.keeper.next_look_ms())
        return None

    def complete(self, call: ShareCall, answer: ShareAnswer | PenstockError, chance: float) -> None:
        """Take the outcome of a request. `chance` is uniform in [0, 1)."""
        now = self._now()
        self.wake_at_ms = 0
        self._note(call, answer)
        if call.is_acquire:
            self._is_acquiring = False
        else:
            self._is_acknowledging = False
        if isinstance(answer, PenstockError):
            self._failed(call, answer, now, chance)
            return
        self.keeper.answered(call, answer)
        if not call.is_acquire:
            self._acknowledge_at_ms = 0
            return
        self._attempt, self._failures, self._acquire_at_ms, self._is_answered = None, 0, 0, True
        self.keeper.acquired(answer, now)
        if answer.error is not None:
            self._error = answer.error
        has_records = bool(answer.locks)
        if not call.body["wait_ms"]:
            self.appetite.answered(now.monotonic_ms - call.sent_last.monotonic_ms)
        self.appetite.bound(answer.document.get("work_ms"))
        self.waiting.answered(answer.document, has_records=has_records, now_ms=now.monotonic_ms, chance=chance)
        if self.is_stopped:
            self._wind_up(now)

    def _note(self, call: ShareCall, answer: ShareAnswer | PenstockError) -> None:
        """Note the settlements of a request: what the application decided, and neither renewals nor returns."""
        if self.notes is None:
            return
        settled: dict[Verb, list[Acknowledgement]] = {}
        for entry in call.entries:
            if entry.wish.verb is not Verb.RENEW and not entry.wish.is_uncounted:
                settled.setdefault(entry.wish.verb, []).append(entry)
        for verb, entries in settled.items():
            places = [TopicPartition(each.key.topic, each.key.partition) for each in entries]
            count = sum(len(each.offsets) for each in entries)
            error = answer if isinstance(answer, PenstockError) else None
            self.notes.settled(verb.value, places, count, call.sent_last.wall_ms * 1_000_000, error)

    def _wind_up(self, now: Moment) -> None:
        """Give back what no handler has begun with, and send no acquire again."""
        self.keeper.give_back(now)
        if self._attempt is not None and not self._is_acquiring:
            attempt, self._attempt = self._attempt, None
            self.keeper.failed(attempt, again_ms=now.monotonic_ms)

    def _refuse(self, record: ShareRecord) -> NoReturn:
        place = f"offset {record.offset} of {record.topic}[{record.partition}]"
        if self.keeper.was_lost(record):
            raise LockLostError(
                ErrorCode.LOCK_LOST, f"{place}: its lock has ended, and another consumer may have the record"
            )
        raise InvalidError(ErrorCode.INVALID_REQUEST, f"{place} was acknowledged before, or was never handed out")

    def _wants_more(self) -> bool:
        if self.is_stopped:
            return False
        ready = self.keeper.locks.ready
        return self._takers > ready or ready < self.appetite.low_water or self._attempt is not None

    def _is_acquiring_with_entries(self) -> bool:
        return self._attempt is not None and bool(self._attempt.entries)

    def _acquire(self, now: Moment) -> ShareCall:
        self._is_acquiring = True
        attempt = self._attempt
        if attempt is not None and now.monotonic_ms < attempt.sent.monotonic_ms + _REPEAT_MS_MAX:
            attempt.sent_last = now
            attempt.body = {**attempt.body, "repeat": True}  # the service looks for its locks first
            return attempt
        if attempt is not None:  # too old to be repeated: its locks, if it has any, end by themselves
            self.keeper.failed(attempt, again_ms=now.monotonic_ms)
        entries = self.keeper.entries(now)
        body = {
            "consumer_id": self._consumer_id,
            "nonce": self._new_nonce(),
            "max_records": self.appetite.ask(now.monotonic_ms),
            "max_bytes": self._settings.max_bytes,
            "lock_ms": self._settings.lock_ms,
            **self.waiting.ask(now.monotonic_ms),
            "topics": self._topics,
            "acknowledge": [each.to_json() for each in entries],
        }
        self._attempt = self._call("acquire", body, entries, now)
        return self._attempt

    def _acknowledge(self, now: Moment) -> ShareCall:
        self._is_acknowledging = True
        entries = self.keeper.entries(now)
        return self._call("acknowledge", {"acknowledge": [each.to_json() for each in entries]}, entries, now)

    def _call(self, name: str, body: dict[str, object], entries: tuple[Acknowledgement, ...], now: Moment) -> ShareCall:
        return ShareCall(
            path=f"/v1/share-groups/{self._settings.group_id}/{name}",
            body=body,
            entries=entries,
            is_acquire=name == "acquire",
            sent=now,
            sent_last=now,
        )

    def _failed(self, call: ShareCall, error: PenstockError, now: Moment, chance: float) -> None:
        self._failures += 1
        policy = self._settings.retry
        again_ms = policy.retry_at_ms(
            error, failures=self._failures, now_ms=now.monotonic_ms, deadline_ms=NEVER_MS, chance=chance
        )
        if again_ms is None:
            again_ms = now.monotonic_ms + policy.backoff_max_ms
            self._error = error
        if not call.is_acquire:
            self._acknowledge_at_ms = again_ms
            self.keeper.failed(call, again_ms=again_ms)
            return
        self._acquire_at_ms, self._worked_ms, self._is_answered = again_ms, now.monotonic_ms, False
        if not error.code.is_retriable or self.is_stopped:
            self._attempt = None
            self._acknowledge_at_ms = again_ms
            self.keeper.failed(call, again_ms=again_ms)


def wish_after(error: BaseException | None) -> Wish:
    """The fate of a record whose handler ended so."""
    if error is None:
        return ACCEPT
    if isinstance(error, Reject):
        return reject(error.reason)
    if isinstance(error, Release):
        return release(error.reason, error.delay_ms)
    return release(_text_of(error)) if isinstance(error, Exception) else RELEASE


def _text_of(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:  # the application's own __str__
        return type(error).__name__
