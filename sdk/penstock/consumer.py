"""The consumer as users see it. fetch_buffer.py decides, fetcher.py does, assignment.py knows what to read."""

import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Literal, Self

from penstock.assignment import Assignment
from penstock.client import Client, monotonic_ms
from penstock.errors import ClosedError, InvalidError, UnavailableError
from penstock.fetch_buffer import FetchBuffer, FetchSettings, OffsetReset
from penstock.fetcher import Fetcher
from penstock.model import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from penstock.retry import NEVER_MS, RetryPolicy
from penstock.start_offsets import listed_offsets, offsets_at
from penstock.transport import Transport, open_transport
from penstock_core.errors import ErrorCode
from penstock_core.limits import FETCH_BYTES_MAX, FETCH_WAIT_MS_MAX, MIB

Delivery = Literal["at_least_once", "at_most_once"]

_log = logging.getLogger("penstock.consumer")


class Consumer:
    """Reads records: all partitions of `topics`, or those given to `assign()`.

        with Consumer("orders", group_id="billing") as consumer:
            for record in consumer:
                handle(record)

    `url`, `region` and `transport` are as for Producer. All times are milliseconds, all sizes bytes as stored.

    - `group_id`: commit and start again under this name. Groups are plain here: members do not share the partitions
      out among them, and the last commit wins. Give each process its own partitions with `assign()`.
    - `auto_offset_reset`: where to start without a committed offset, and go on where the asked offset is no more:
      "earliest", "latest", or "none" (raise). Partitions added to a topic later are read from their beginning.
    - `delivery`: "at_least_once" hands records over, then commits them; "at_most_once" commits, then hands over.
    - `enable_auto_commit`, `auto_commit_interval_ms`: with at_least_once, what was handed out is committed from time to
      time by a later `poll` or iteration, when it must have been dealt with, and by `close`; not when a `with` block
      ends in an exception. With at_most_once every `poll` commits.
    - `max_poll_records`: of one `poll`. `consumer_timeout_ms`: iteration ends when no record comes for so long.
    - `fetch_max_bytes`: of one answer, 4 MiB at most. `buffer_bytes`: of all that is prefetched.
    - `fetch_wait_ms`: how long the service may wait for a record before it answers. An idle consumer pays for one
      request per wait, and `close` waits for the one in flight.
    - `max_in_flight`: requests at once, while catching up.

    Failures that may pass are tried again in the background, with full jitter; others are raised by `poll` and
    iteration when nothing prefetched is left before them, and the next call tries again. For use by one thread.
    """

    def __init__(
        self,
        *topics: str,
        group_id: str | None = None,
        url: str | None = None,
        auto_offset_reset: OffsetReset = "earliest",
        delivery: Delivery = "at_least_once",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        max_poll_records: int = 500,
        consumer_timeout_ms: int | None = None,
        fetch_max_bytes: int = FETCH_BYTES_MAX,
        fetch_wait_ms: int = 500,
        buffer_bytes: int = 32 * MIB,
        max_in_flight: int = 2,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 5_000,
        metadata_max_age_ms: int = 60_000,
        region: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        _check(
            auto_offset_reset in ("earliest", "latest", "none"),
            f"auto_offset_reset={auto_offset_reset!r}: use 'earliest', 'latest' or 'none'",
        )
        _check(
            delivery in ("at_least_once", "at_most_once"),
            f"delivery={delivery!r}: use 'at_least_once' or 'at_most_once' ('exactly_once' is not there yet)",
        )
        _check(delivery == "at_least_once" or group_id is not None, f"delivery={delivery!r} commits: give a group_id")
        _check(max_poll_records >= 1, f"max_poll_records={max_poll_records}: use 1 or more")
        _check(max_in_flight >= 1, f"max_in_flight={max_in_flight}: use 1 or more")
        _check(0 < fetch_max_bytes <= FETCH_BYTES_MAX, f"fetch_max_bytes={fetch_max_bytes}: use 1 to {FETCH_BYTES_MAX}")
        _check(buffer_bytes >= fetch_max_bytes, f"buffer_bytes={buffer_bytes}: use at least fetch_max_bytes")
        _check(0 <= fetch_wait_ms <= FETCH_WAIT_MS_MAX, f"fetch_wait_ms={fetch_wait_ms}: use 0 to {FETCH_WAIT_MS_MAX}")
        retry = RetryPolicy(backoff_ms=retry_backoff_ms, backoff_max_ms=retry_backoff_max_ms)
        settings = FetchSettings(
            fetch_max_bytes=fetch_max_bytes,
            fetch_wait_ms=fetch_wait_ms,
            buffer_bytes=buffer_bytes,
            max_in_flight=max_in_flight,
            offset_reset=auto_offset_reset,
            retry=retry,
        )
        self._topics = topics
        self._group_id = group_id
        self._is_at_most_once = delivery == "at_most_once"
        self._is_committing = enable_auto_commit and group_id is not None and not self._is_at_most_once
        self._commit_interval_ms = auto_commit_interval_ms
        self._commit_due_ms = monotonic_ms() + auto_commit_interval_ms if self._is_committing else NEVER_MS
        self._max_poll_records = max_poll_records
        self._timeout_ms = consumer_timeout_ms
        self._client = Client(open_transport(url, region, transport), retry=retry)
        self._buffer = FetchBuffer(settings)
        self._fetcher = Fetcher(self._buffer, self._client, max_in_flight=max_in_flight)
        self._assignment = Assignment(
            self._client,
            self._buffer,
            self._fetcher,
            topics=topics,
            group_id=group_id,
            offset_reset=auto_offset_reset,
            refresh_ms=metadata_max_age_ms,
        )
        self._committed: dict[TopicPartition, int] = {}
        self._run: list[ConsumerRecord] = []  # what iteration has taken from the buffer, of one partition
        self._run_at = 0
        self._is_closed = False

    # Reading.

    def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, `max_poll_records` at most; empty if none came in `timeout_ms`. Partitions in turns.

        Raises what the class says, and with at_most_once what a commit raises (nothing is handed over then).
        """
        if monotonic_ms() >= self._commit_due_ms:
            self._auto_commit()
        max_records = max_records or self._max_poll_records
        taken = self._run[self._run_at : self._run_at + max_records]
        self._run_at += len(taken)
        if not taken:
            taken = self._take(self._buffer.take, max_records, monotonic_ms() + timeout_ms)
            self._commit_first(taken)
        return taken

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, waiting for it (see `consumer_timeout_ms`)."""
        if self._is_committing and monotonic_ms() >= self._commit_due_ms:
            self._auto_commit()
        at = self._run_at
        if at >= len(self._run):
            at = self._next_run()
        self._run_at = at + 1
        return self._run[at]

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError if the consumer was made with topics."""
        _check(not self._topics, "assign() on a consumer that was made with topics: use one or the other")
        self._drop_run()
        with self._fetcher.lock:
            self._buffer.assign(TopicPartition(*each) for each in partitions)
            self._fetcher.wake()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        self._refresh()
        return sorted(self._buffer.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at an offset; whether it exists shows at the next fetch (`auto_offset_reset`)."""
        _check(offset >= 0, f"seek to {offset}: offsets begin at 0")
        self._refresh()
        self._drop_run(partition)
        with self._fetcher.lock:
            self._buffer.seek(partition, offset)
            self._fetcher.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on at the log start of these partitions, or of all. One call per topic."""
        for partition, offset in self.beginning_offsets(partitions or self.assignment()).items():
            self.seek(partition, offset)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on at the high watermark of these partitions, or of all. One call per topic."""
        for partition, offset in self.end_offsets(partitions or self.assignment()).items():
            self.seek(partition, offset)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until `resume`."""
        self._pause(partitions, is_paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with them."""
        self._pause(partitions, is_paused=False)

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return [each for each in self.assignment() if self._buffer.cursor(each).is_paused]

    # Offsets.

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out. May ask the service where to start."""
        self._refresh()
        self._buffer.cursor(partition)
        self._assignment.find_starts()
        return self._positions()[partition]

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions of everything handed out, or the given offsets (of the next record to read).

        Raises InvalidError without a group, and what the service says.
        """
        wanted = self._positions() if offsets is None else dict(offsets)
        changed = {each: offset for each, offset in wanted.items() if self._committed.get(each) != offset}
        if changed:
            self._client.commit_offsets(self._group(), {each: (offset, "") for each, offset in changed.items()})
            self._committed |= changed

    def committed(self, partition: TopicPartition) -> int | None:
        """What the group has committed for a partition, by a call to the service."""
        found = self._client.committed_offsets(self._group(), partition[0]).get(TopicPartition(*partition))
        return found.offset if found else None

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return listed_offsets(self._client, partitions, "earliest")

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition: what the next record will get."""
        return listed_offsets(self._client, partitions, "latest")

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return offsets_at(self._client, timestamps)

    # The end.

    def close(self, autocommit: bool = True) -> None:
        """Commit what was handed out (if auto commit is on and `autocommit`), and end the threads.

        Waits for requests in flight: up to `fetch_wait_ms` and a little. May be called twice.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if autocommit and self._is_committing:
                self.commit()
        finally:
            self._fetcher.stop()
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception, what was handed out last was not dealt with: it must come again.
        self.close(autocommit=kind is None)

    def _next_run(self) -> int:
        deadline_ms = NEVER_MS if self._timeout_ms is None else monotonic_ms() + self._timeout_ms
        run = self._take(self._buffer.take_run, self._max_poll_records, deadline_ms)
        if not run:
            raise StopIteration
        self._commit_first(run)
        self._run = run
        return 0

    def _take(
        self, take: Callable[[int], list[ConsumerRecord]], max_records: int, deadline_ms: int
    ) -> list[ConsumerRecord]:
        while True:
            self._refresh()
            self._assignment.find_starts()
            self._fetcher.start()
            taken = self._fetcher.take(
                take, max_records, min(deadline_ms, self._assignment.refresh_due_ms, self._commit_due_ms)
            )
            if taken or monotonic_ms() >= deadline_ms:
                return taken
            if monotonic_ms() >= self._commit_due_ms:
                self._auto_commit()

    def _refresh(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")
        self._assignment.refresh(monotonic_ms())

    def _positions(self) -> dict[TopicPartition, int]:
        with self._fetcher.lock:
            positions = self._buffer.positions()
        if self._run_at < len(self._run):
            first = self._run[self._run_at]
            positions[TopicPartition(first.topic, first.partition)] = first.offset
        return positions

    def _drop_run(self, partition: TopicPartition | None = None) -> None:
        """Take back what iteration has not handed out, of one partition or any: it is read again from there."""
        if self._run_at < len(self._run):
            first = self._run[self._run_at]
            owner = TopicPartition(first.topic, first.partition)
            if partition in (None, owner):
                with self._fetcher.lock:
                    self._buffer.seek(owner, first.offset)
                self._run = []

    def _pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        self._refresh()
        for partition in partitions:
            self._drop_run(partition)
            with self._fetcher.lock:
                self._buffer.pause(partition, is_paused)
                self._fetcher.wake()

    def _commit_first(self, taken: list[ConsumerRecord]) -> None:
        """With at_most_once: commit what is about to be handed over, or take it back."""
        if not self._is_at_most_once or not taken:
            return
        try:
            self.commit()
        except BaseException:
            firsts = {TopicPartition(record.topic, record.partition): record.offset for record in reversed(taken)}
            for partition, offset in firsts.items():
                self.seek(partition, offset)
            raise

    def _auto_commit(self) -> None:
        self._commit_due_ms = monotonic_ms() + self._commit_interval_ms
        try:
            self.commit()
        except UnavailableError as error:
            _log.warning("offsets will be committed later: %s", error)

    def _group(self) -> str:
        _check(self._group_id is not None, "there are no commits without a group: give a group_id")
        return self._group_id or ""


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidError(ErrorCode.INVALID_REQUEST, message)
