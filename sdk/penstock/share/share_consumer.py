# Generated from async_share_consumer.py by `python -m tools.unasync`: change that file.
"""The share consumer. share_core.py decides, share_driver.py does the I/O."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Self, Unpack

from penstock.arguments import check, check_text
from penstock.group.stages import Stages, open_reading
from penstock.http.abilities import wall_clock_ns_of
from penstock.http.client import Client
from penstock.http.named_transport import TransportName
from penstock.http.transport import Transport
from penstock.model.fields import NamedClient, shows_fields_of
from penstock.model.share import ShareAcceptance, ShareRecord
from penstock.retry import NEVER_MS
from penstock.share.acknowledgements import ACCEPT, Verb, Wish, reject
from penstock.share.opening import Handler, check_poll, check_run, checked_settings, release_wish, share_core
from penstock.share.runner import Runner
from penstock.share.settings import ShareOptions, ShareSettings
from penstock.share.share_driver import ShareDriver
from penstock.system import monotonic_ms
from penstock.telemetry.opening import open_notes
from penstock.workers.fork_guard import ForkGuard
from penstock.workers.signals import stopped_by_signals
from penstock_core.errors import PenstockError
from penstock_core.limits import SDK_CALL_MS_MAX

_STAGES_POLL_MS = 1_000


class ShareConsumer(NamedClient):
    """Works on the records of a share group, with any number of other consumers, and acknowledges each record.

        with ShareConsumer("orders", group_id="workers") as consumer:
            for record in consumer:
                handle(record)

    It locks each record for you, renews the lock while you work, and acknowledges in the background. In `with`,
    an exception releases the record in hand, and `Reject` rejects it. Or let it run a handler in threads:

        ShareConsumer("orders", group_id="workers").run(handle, concurrency=8)

    A record may come twice: after a crash, or when its lock was lost. The consumer retries failures that may pass, with
    full jitter. Every other error is raised by the call that waits for records. Several threads may acknowledge; one
    thread iterates or polls.
    """

    @shows_fields_of(ShareSettings)
    def __init__(
        self,
        *topics: str,
        url: str | None = None,
        urls: Sequence[str] | None = None,
        region: str | None = None,
        transport: Transport | TransportName | None = None,
        **options: Unpack[ShareOptions],
    ) -> None:
        """Opens no connection yet.

        `topics` are some of the group's topics; without any, all of them. `url` and `region` default to what
        penstock.configuration finds: the environment, else the local stack. `urls` are stages of which one mirrors the
        other, and need topics: the consumer works at the one that takes appends. It goes on at the next once all topics
        were moved and their records are finished, or the stage is lost. The group must be at both. `transport` replaces
        `auto`, as penstock.testing does. Raises NotConfiguredError, and InvalidError for an option.
        """
        settings = checked_settings(options)
        self._settings = settings
        self._fork = ForkGuard("ShareConsumer")
        check(urls is None or bool(topics), "urls without topics: name those of the group")
        self._topics = topics
        self._is_ending = False
        opened = open_reading(url, urls, region, transport)
        self._stages = opened if isinstance(opened, Stages) else None
        self._open(opened.carrier if isinstance(opened, Stages) else opened)

    def _open(self, carrier: Transport) -> None:
        """Begin at the stage that is to be worked at."""
        settings = self._settings
        self._core = share_core(
            settings, self._topics, open_notes(carrier, settings.group_id), wall_clock_ns_of(carrier)
        )
        self._client = Client(carrier, retry=settings.retry, job="read")
        self._driver = ShareDriver(
            self._core,
            self._client,
            fork=self._fork,
            on_lock_lost=settings.on_lock_lost,
            reading=settings.reading,
        )
        self._core.is_stopped = self._is_ending

    @property
    def is_decrypting(self) -> bool:
        """True with the option `encryption`."""
        return self._settings.encryption is not None

    @property
    def is_deserializing(self) -> bool:
        """True with the option `value_deserializer` or `key_deserializer`."""
        return bool(self._settings.reading.deserializers)

    # Records.

    def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ShareRecord]:
        """The next records, at most `max_records`. Empty if none came in `timeout_ms`, and after `stop`.

        With acknowledge="auto" it accepts the records of the last `poll` that you have not acknowledged. Raises
        NotFoundError for an unknown group, AccessDeniedError, and the other errors that no retry heals.
        """
        check_poll(max_records, timeout_ms)
        if self._leaves():
            self._reopen()
        self._driver.start()
        try:
            return self._driver.drive(self._core.poll(max_records, timeout_ms))
        except PenstockError as error:
            if self._stages is None or not self._stages.heard(error, self._topics):
                raise
            self._driver.drive(self._core.rest(min(timeout_ms, _STAGES_POLL_MS)))  # the mirror may take over soon
            return []

    def __iter__(self) -> Self:
        """The consumer: iteration returns its records."""
        return self

    def __next__(self) -> ShareRecord:
        """The next record. Waits for it, at most `consumer_timeout_ms`. Raises as `poll`."""
        if self._stages is not None:
            return self._next_of_stages()
        self._driver.start()
        record = self._driver.drive(self._core.next_record())
        if record is None:
            raise StopIteration
        return record

    def _next_of_stages(self) -> ShareRecord:
        timeout_ms = self._settings.consumer_timeout_ms
        end_ms = NEVER_MS if timeout_ms is None else monotonic_ms() + timeout_ms
        while not self._core.is_stopped:
            if found := self.poll(1, max(0, min(_STAGES_POLL_MS, end_ms - monotonic_ms()))):
                return found[0]
            if monotonic_ms() >= end_ms:
                break
        raise StopIteration

    def _leaves(self) -> bool:
        """True if the consumer is to go on at another stage than now."""
        stages = self._stages
        return stages is not None and stages.must_look() and stages.moves(self._topics)

    def _reopen(self) -> None:
        """Go on at the stage that is to be worked at. What the application has in hand is released, and lost."""
        assert self._stages is not None
        before = self._core
        with self._driver.lock:
            before.finish_automatic(ACCEPT)
            in_hand = before.keeper.locks.in_hand()
        with suppress(PenstockError):  # the stage may be gone
            self._driver.drive(self._core.close(None), until_stopped=False)
        self._driver.stop()
        self._open(self._stages.carrier)
        self._core.keeper.follow(before.keeper, in_hand)

    def run(self, handler: Handler, *, concurrency: int = 8, idle_ms: int | None = None) -> None:
        """Call `handler` with each record, in `concurrency` threads, until `stop` or a SIGTERM or SIGINT.

        With `idle_ms` it ends, too, when no handler has had a record for so long. A pause after failures counts. An
        acquire that fails begins the time anew, and only an answer of the service ends it. `consumer_timeout_ms` is
        for iteration only.

        It accepts a record when the handler returns, and rejects it when the handler raises `Reject`. It releases it
        when the handler raises `Release`, and after any other exception, which it logs. A handler may acknowledge its
        record itself, as with `consumer.release(record, delay_ms=60_000)`.

        After 10 records in a row whose handlers failed, it pauses, because the handler may be broken. It gives back
        what it has, and tries one record after 1 s, then after pauses of up to a minute. A record that is done, or
        rejected, ends that.

        At the end it gives back records that no handler has begun with, waits `drain_ms` for the handlers, releases
        the rest, and closes the consumer. It hears signals in the main thread only. Raises as `poll`.
        """
        check_run(handler, concurrency, idle_ms)
        try:
            with stopped_by_signals(self.stop):
                while self._run_at_stage(handler, concurrency, idle_ms):
                    pass
        finally:
            self.close()

    def _run_at_stage(self, handler: Handler, concurrency: int, idle_ms: int | None) -> bool:
        """True if it goes on at another stage, or begins anew at this one."""
        if self._leaves():
            self._reopen()
        has_left = False

        def leaves() -> bool:
            nonlocal has_left
            has_left = self._leaves()
            return has_left

        self._driver.start()
        with self._driver.lock:
            self._core.appetite.employ(concurrency)
        runner = Runner(self._core, self._driver, self._end, None if self._stages is None else leaves)
        try:
            runner.run(handler, concurrency=concurrency, drain_ms=self._settings.drain_ms, idle_ms=idle_ms)
        except PenstockError as error:
            if self._stages is None or not self._stages.heard(error, self._topics):
                raise
            self._reopen()
            self._driver.drive(self._core.rest(_STAGES_POLL_MS))  # the mirror takes over, or the move is given up
            return not self._is_ending
        if has_left:
            self._reopen()
        return has_left and not self._is_ending

    def processing(self, record: ShareRecord) -> AbstractContextManager[object]:
        """As `Consumer.processing`. `run` does it by itself."""
        return self._core.processing(record, is_received=True)

    # Acknowledgements: they go in the background.

    def accept(self, record: ShareRecord) -> None:
        """The record is done: it never comes again.

        Raises LockLostError if its lock was lost, and InvalidError if the record was acknowledged before.
        """
        self._acknowledge(record, ACCEPT)

    def release(
        self, record: ShareRecord, delay_ms: int | None = None, reason: str = "", *, is_counted: bool = True
    ) -> None:
        """Let the record come again after `delay_ms`, by default after the group's backoff. Raises as `accept`.

        If this was its last delivery, the record goes to the dead-letter topic, with 200 bytes of the reason. With
        `is_counted=False` the delivery does not count, because your handler has not begun with the record: it comes
        again after `delay_ms`, by default at once.
        """
        self._acknowledge(record, release_wish(delay_ms, reason, is_counted=is_counted))

    def reject(self, record: ShareRecord, reason: str = "") -> None:
        """Send the record to the dead-letter topic, with 200 bytes of the reason. Raises as `accept`.

        Without a dead-letter topic the record is finished.
        """
        check_text("reason", reason)
        self._acknowledge(record, reject(reason))

    def renew(self, record: ShareRecord) -> None:
        """Renew the record's lock now. The consumer does so by itself from the middle of the lock's time on.

        Raises as `accept`. `on_lock_lost` tells if it fails.
        """
        self._acknowledge(record, Wish(Verb.RENEW, lock_ms=self._settings.lock_ms))

    def flush(self, timeout_ms: int = SDK_CALL_MS_MAX) -> None:
        """Wait until the service has answered all acknowledgements.

        Raises TimeoutError after `timeout_ms`, and the errors of the call. A record whose lock was lost raises nothing
        here: see `on_lock_lost` and `locks_lost`.
        """
        self._driver.start()
        steps = self._core.flush(monotonic_ms() + timeout_ms)
        if not self._driver.drive(steps, until_stopped=False):
            raise TimeoutError(f"not everything was acknowledged in {timeout_ms} ms")

    def is_held(self, record: ShareRecord) -> bool:
        """You have the record, and have not acknowledged it. False once the service has said that its lock is lost."""
        with self._driver.lock:
            return self._core.keeper.locks.is_in_hand(record)

    def acceptances(self, records: Iterable[ShareRecord]) -> Sequence[ShareAcceptance]:
        """The records with their locks, for a transaction's `accept`. Raises as `accept`."""
        self._fork.check()
        with self._driver.lock:
            return self._core.acceptances(records)

    def settled(self, records: Iterable[ShareRecord]) -> None:
        """A transaction has accepted the records: it calls this itself."""
        with self._driver.lock:
            self._core.settled(records)

    @property
    def locks_lost(self) -> int:
        """The number of records that other consumers got while this one had them."""
        return self._core.keeper.lost_count

    @property
    def skipped_batches(self) -> int:
        """The number of undecodable batches that this consumer has rejected."""
        return self._core.keeper.skipped_batches

    # The end.

    def stop(self) -> None:
        """End iteration and `run`, and let every `poll` return an empty list at once.

        Call it from a signal handler or from another thread, too. Records that were not handed out go back.
        """
        self._is_ending = True
        self._end()

    def _end(self) -> None:
        self._core.is_stopped = True
        self._driver.interrupt()

    @property
    def is_stopped(self) -> bool:
        """`stop` was called: no more records come."""
        return self._core.is_stopped

    def close(self) -> None:
        """Acknowledge, and end the threads. You may call it twice.

        With acknowledge="auto" it accepts what was returned last. It releases every other record: without counting the
        delivery where no handler had it. It waits for the answers, 5 seconds at most.
        """
        self._close(None)

    def __enter__(self) -> Self:
        """The consumer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it. After an exception it releases what was returned last, or rejects it after `Reject`."""
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        if self._core.is_closed or self._fork.is_forked:
            return  # in a child by fork(), locks and connections are the parent's
        self.stop()
        try:
            self._driver.drive(self._core.close(error), until_stopped=False)
        finally:
            try:
                self._driver.stop()
            finally:
                (self._client if self._stages is None else self._stages).close()

    def _acknowledge(self, record: ShareRecord, wish: Wish) -> None:
        self._fork.check()
        with self._driver.lock:
            self._core.acknowledge(record, wish)
            self._driver.wake()
