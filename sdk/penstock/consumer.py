"""The consumer with threads. consumer_core.py and fetch_buffer.py decide, fetcher.py does."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from penstock.client import Client
from penstock.configured_consumer import ConfiguredConsumer
from penstock.fetcher import Fetcher
from penstock.listener import ConsumerRebalanceListener
from penstock.model import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from penstock.start_offsets import listed_offsets, offsets_at
from penstock.transaction_core import GroupOffset
from penstock.transport import Transport, open_transport


class Consumer(ConfiguredConsumer[Transport]):
    """Reads records, which background threads prefetch. Settings: see `__init__`.

        with Consumer("orders", group_id="billing") as consumer:
            for record in consumer:
                handle(record)

    Failures that may pass are tried again in the background, with full jitter; others are raised by `poll` and
    iteration when nothing prefetched is left before them, and the next call tries again. For use by one thread.
    """

    def _open(self, url: str | None, region: str | None, transport: Transport | None) -> None:
        self._client = Client(open_transport(url, region, transport), retry=self._call_retry)
        self._fetcher = Fetcher(self._core, self._client, max_in_flight=self._max_in_flight)

    # Reading.

    def poll(self, max_records: int | None = None, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """The next records, `max_poll_records` at most; empty if none came in `timeout_ms`. Partitions in turns.

        Raises what the class says, and with at_most_once what a commit raises (nothing is handed over then).
        """
        self._fetcher.start()
        return self._fetcher.drive(self._core.poll(max_records, timeout_ms))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, waiting for it (see `consumer_timeout_ms`)."""
        record = self._core.next_now()
        if record is None:
            self._fetcher.start()
            record = self._fetcher.drive(self._core.next_record())
            if record is None:
                raise StopIteration
        return record

    # What is read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions. Raises InvalidError while the consumer is subscribed to topics."""
        with self._fetcher.lock:
            self._core.assign(partitions)
            self._fetcher.tell()

    def subscribe(self, topics: str | Iterable[str], listener: ConsumerRebalanceListener | None = None) -> None:
        """Read these topics, and no others, whatever was subscribed to before; in a group, its share of them.

        `topics`: one or more names, or patterns (`*` stands for any characters; in a group). A topic that stays loses
        nothing. Of one that goes nothing more is handed out; a member commits with its next poll, as `delivery` and
        `enable_auto_commit` say, calls `on_revoked`, and lets others have it. `listener` takes the place of
        on_assigned, on_revoked and on_lost. Raises InvalidError for what cannot be a name, after `assign()`, and for a
        pattern or a listener without a group.
        """
        subscription, told = self._checked_subscription(topics, listener)
        with self._fetcher.lock:
            self._core.subscribe(subscription, told)
            self._fetcher.tell()

    def unsubscribe(self) -> None:
        """Read nothing: commit what was handed out (if auto commit is on), call `on_revoked`, leave the group.

        Waits until the group knows, 5 seconds at most. Partitions given to `assign()` are read no more either.
        """
        self._fetcher.drive(self._core.unsubscribe())

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read, sorted."""
        return self._fetcher.drive(self._core.assignment())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at an offset; whether it exists shows at the next fetch (`auto_offset_reset`)."""
        self._fetcher.drive(self._core.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on at the log start of these partitions, or of all. One call per topic."""
        self._fetcher.drive(self._core.seek_to("earliest", partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on at the high watermark of these partitions, or of all. One call per topic."""
        self._fetcher.drive(self._core.seek_to("latest", partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these partitions until `resume`."""
        self._fetcher.drive(self._core.pause(partitions, is_paused=True))

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with them."""
        self._fetcher.drive(self._core.pause(partitions, is_paused=False))

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return self._fetcher.drive(self._core.paused())

    # Offsets.

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out. May ask the service where to start."""
        return self._fetcher.drive(self._core.position(partition))

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions of everything handed out, or the given offsets (of the next record to read).

        Raises InvalidError without a group, and what the service says.
        """
        self._fetcher.drive(self._core.commit(offsets))

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> list[GroupOffset]:
        """What a transaction's `send_offsets` asks: the offsets, with the leases that this consumer commits them under.

        Raises LeaseLostError for partitions that it does not own, InvalidError without a group.
        """
        with self._fetcher.lock:
            return self._core.group_offsets(offsets)

    def committed(self, partition: TopicPartition) -> int | None:
        """What the group has committed for a partition, by a call to the service."""
        return self._client.call(self._core.committed(partition))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The log start offset of each partition."""
        return self._client.call(listed_offsets(partitions, "earliest"))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition: what the next record will get."""
        return self._client.call(listed_offsets(partitions, "latest"))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds since 1970); None where there is none."""
        return self._client.call(offsets_at(timestamps))

    # The end.

    def close(self, autocommit: bool = True, leave_group: bool | None = None) -> None:
        """Commit what was handed out (if auto commit is on and `autocommit`), leave the group, and end the threads.

        Waits for requests in flight: up to `fetch_wait_ms` and a little. May be called twice.
        A static member stays in the group until its session ends, unless `leave_group`.
        """
        if self._core.is_closed:
            return
        is_leaving = not self._is_static if leave_group is None else leave_group
        try:
            self._fetcher.drive(self._core.close(is_committing=autocommit, is_leaving=is_leaving))
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
