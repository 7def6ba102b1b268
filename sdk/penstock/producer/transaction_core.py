"""Transactions of a producer, without I/O: their records, their stages, and the outcome of their commits.

    begin -> send, send_offsets -> (stage, when a request is full) -> commit | abort

A commit may stay unanswered however often it is repeated. The producer then begins a new epoch, whose answer says which
transaction was committed last, by the nonce that its client drew (docs/protocol/transactions). So a transaction always
has an outcome, unless the service stays away, or another instance has taken over and committed since.

A producer begins anew only from its own last epoch. If another instance has begun meanwhile, the service fences the
producer for good, and leaves the other instance alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from penstock.arguments import check, checked_name, checked_offsets
from penstock.errors import InvalidError, TransactionAbortedError, as_sdk_error
from penstock.http.http_message import BATCHES_TYPE, HttpRequest
from penstock.http.steps import Calls, Steps, Wait
from penstock.model import GroupOffset, TopicPartition
from penstock.model.share import ShareAcceptance, ShareRecord
from penstock.producer.batching.accumulator import UNKNOWN_OFFSET
from penstock.producer.batching.pacing import ENTRY_OVERHEAD_BYTES, TIMER_OVERHEAD_BYTES
from penstock.producer.batching.producer_batch import ProducerBatch, TopicQueues, entry_fields
from penstock.producer.delays import Timer
from penstock.producer.transactional.transactional_state import TransactionalState, learn_outcome
from penstock.retry import NEVER_MS
from penstock_core.errors import Category, ErrorCode, PenstockError
from penstock_core.ids import parse_group_name
from penstock_core.records import frame
from penstock_core.records.codec import BatchBuilder, Headers, record_bytes_max
from penstock_core.records.record_batch import BATCH_HEADER_BYTES

_Place: TypeAlias = tuple[str, int, Timer | None]
_ABORTED = "the transaction was aborted: none of its records was written"
_UNKNOWN_OUTCOME = (
    "the outcome of the transaction is not known: its records may have been written, all of them or none. Read the "
    "topic, or a group's offset that was committed with them, before you send them again"
)


class TransactionCore:
    """One transaction. `choose(n)` picks one of n: the partition of records without a key, once per topic."""

    def __init__(self, state: TransactionalState, choose: Callable[[int], int]) -> None:
        self._state = state
        self._settings = state.settings
        self._choose = choose
        self._sticky: dict[str, int] = {}
        self._topics: dict[str, TopicQueues] = {}
        self._waiting: dict[_Place, list[ProducerBatch]] = {}  # for the next request
        self._all: dict[_Place, list[ProducerBatch]] = {}
        self._timers: dict[tuple[str, int, int], Timer] = {}  # by due time, of the next request
        self._offsets: dict[tuple[str, TopicPartition], GroupOffset] = {}
        self._acceptances: list[ShareAcceptance] = []
        self._waiting_bytes = 0
        self._nonce = state.new_nonce()  # no stage and no commit of another transaction is taken for one of this
        self._stages = 0
        self._is_open = False
        self._epoch: int | None = None
        self._number = 0
        self._is_staging = False
        self._failure: PenstockError | None = None  # of a stage: the transaction lacks records
        self._is_committing = False

    def append(
        self,
        topic: TopicQueues,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        now_ms: int,
        timer: Timer | None = None,
    ) -> ProducerBatch:
        """Add a record, the last of its batch. Raises RecordTooLargeError and InvalidError."""
        self._check_open()
        self._topics[topic.name] = topic
        if partition is None:
            partition = self._sticky.setdefault(topic.name, topic.first + self._choose(topic.partitions))
        if timer is not None and timer.is_cancellable:
            self._timers.pop((topic.name, partition, timer.deliver_at_ms), None)  # later records come behind it
        elif timer is not None:
            timer = self._timers.setdefault((topic.name, partition, timer.deliver_at_ms), timer)
        place = (topic.name, partition, timer)
        batches = self._waiting.setdefault(place, [])
        size = record_bytes_max(key, value, headers)
        if size > topic.batch_bytes_max - BATCH_HEADER_BYTES:
            raise as_sdk_error(
                PenstockError(
                    ErrorCode.RECORD_TOO_LARGE,
                    f"a record of about {size:,} bytes for topic {topic.name!r}, whose max_batch_bytes is "
                    f"{topic.batch_bytes_max:,}",
                    limit=topic.batch_bytes_max,
                )
            )
        if not batches or not batches[-1].builder.append(timestamp_ms, key, value, headers):
            builder = BatchBuilder(self._settings.compression, batch_bytes=topic.batch_bytes)
            builder.append(timestamp_ms, key, value, headers)
            batch = ProducerBatch(topic.name, partition, builder, now_ms, NEVER_MS)
            batch.tag_filter = 0 if topic.has_tags else None
            if not batches:
                self._waiting_bytes += ENTRY_OVERHEAD_BYTES + len(topic.name) + (TIMER_OVERHEAD_BYTES if timer else 0)
            self._waiting_bytes += BATCH_HEADER_BYTES
            batch.timer = timer
            batches.append(batch)
            self._all.setdefault(place, []).append(batch)
        self._waiting_bytes += size
        batches[-1].record_count += 1
        batches[-1].note_headers(headers)
        return batches[-1]

    def begin(self) -> Calls[None]:
        """Open it, under the producer's epoch. One request, the first time and after a failure; else none."""
        yield from self._state.begin()
        self._is_open, self._epoch, self._number = True, self._state.epoch, self._state.number

    @property
    def is_full(self) -> bool:
        """The waiting batches must be staged before another record is added."""
        return self._waiting_bytes >= self._settings.request_bytes - self._settings.batch_bytes

    def add_offsets(self, offsets: Iterable[GroupOffset]) -> None:
        """Commit these with the transaction. A later offset of a group's partition replaces an earlier one."""
        self._check_open()
        for each in offsets:
            self._offsets[each.group, each.partition] = each

    def add_acceptances(self, acceptances: Iterable[ShareAcceptance]) -> None:
        """Accept these records of share groups with the transaction."""
        self._check_open()
        self._acceptances += acceptances

    @property
    def offsets(self) -> Sequence[GroupOffset]:
        """The offsets to commit with it."""
        return list(self._offsets.values())

    @property
    def acceptances(self) -> Sequence[ShareAcceptance]:
        """The records to accept with it."""
        return self._acceptances

    def make_room(self) -> Steps[None]:
        """If the waiting batches fill a request, stage them. One request.

        Sends may be gathered: one of them stages, and the rest wait for it. If a stage fails, the transaction has
        failed: this raises the stage's error from then on.
        """
        yield from self._until_staged()
        if self.is_full:
            yield from self._stage()

    def _until_staged(self) -> Steps[None]:
        while self._is_staging:
            yield Wait(until_ms=NEVER_MS)
        if self._failure is not None:
            raise self._failure
        self._check_open()

    def _stage(self) -> Steps[None]:
        """Put the waiting batches ahead of the commit.

        After a cancellation the batches still wait. The next send stages them again under the same number: should the
        cancelled request arrive after that, it puts the same records in the place of the same records.
        """
        self._is_staging = True
        try:
            yield self._request({"stage": self._stages})
        except PenstockError as error:
            error.maybe_applied = False  # no reader sees a stage without its commit
            self._failure = error
            self._refused(error)
            raise
        finally:
            self._is_staging = False
        self._stages += 1
        for batches in self._waiting.values():
            for each in batches:
                each.release()
        self._waiting.clear()
        self._timers.clear()
        self._waiting_bytes = 0

    def commit(self) -> Steps[list[ProducerBatch]]:
        """Make all of it visible, and return the batches, which have their outcomes now.

        An empty transaction costs nothing. Raises the error of a refused commit; call `abort` then. If no answer comes,
        it begins a new epoch to learn the outcome. If that is not answered either, the error says `maybe_applied`.
        """
        yield from self._until_staged()
        if not (self._all or self._offsets or self._acceptances):
            self._end()
            return []
        results: Sequence[Mapping[str, object]] = ()
        self._is_committing = True
        try:
            offsets = [each.to_json() for each in self._offsets.values()]
            shared = {"acknowledgements": [each.to_json() for each in self._acceptances]} if self._acceptances else {}
            answer = yield self._request({"stages": self._stages, "offsets": offsets, **shared})
            results = answer["results"]
        except PenstockError as error:
            self._refused(error)
            if not error.maybe_applied:
                raise
            yield from self._learn(error)
        else:
            self._state.number = self._number + 1
        self._end()
        self._deliver(results)
        return self._batches()

    def _refused(self, error: PenstockError) -> None:
        """A request failed. If a topic has changed, describe its topics before the next transaction."""
        self._state.failed(error)
        if error.code.category is Category.NOT_FOUND or error.code is ErrorCode.PARTITION_CLOSED:
            for topic in self._topics.values():
                topic.fresh_until_ms = 0

    def _learn(self, failure: PenstockError) -> Calls[None]:
        """Return if the transaction was committed. Else raise why not, or the failure of the commit if nobody knows."""
        yield from learn_outcome(self._state, self._nonce, self._number, failure)

    def abort(self, cause: BaseException | None) -> list[ProducerBatch]:
        """Give it up, and return the batches, which have failed. No reader ever sees the stages."""
        self._end()
        is_open_outcome = self._is_committing and not (isinstance(cause, PenstockError) and not cause.maybe_applied)
        error = TransactionAbortedError(_UNKNOWN_OUTCOME if is_open_outcome else _ABORTED)
        error.__cause__ = cause
        if is_open_outcome:
            error.maybe_applied = True
            self._state.epoch = None  # the commit may still be on its way
        for batch in self._batches():
            batch.outcome = error
        return self._batches()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = self._state.is_open = False

    def _batches(self) -> list[ProducerBatch]:
        return [batch for batches in self._all.values() for batch in batches]

    def _deliver(self, results: Sequence[Mapping[str, object]]) -> None:
        bases = {(each["topic"], each["partition"]): each["base_offset"] for each in results}
        for (topic, partition, timer), batches in self._all.items():
            offset = bases.get((topic, partition), UNKNOWN_OFFSET) if timer is None else UNKNOWN_OFFSET
            for batch in batches:
                batch.outcome = int(str(offset))
                if batch.outcome != UNKNOWN_OFFSET:
                    offset = batch.outcome + batch.record_count

    def _request(self, more: Mapping[str, object]) -> HttpRequest:
        chunks = {place: [batch.build() for batch in batches] for place, batches in self._waiting.items()}
        header = {
            "transactional_id": self._settings.transactional_id,
            "epoch": self._epoch,
            "transaction": self._number,
            "nonce": self._nonce,
            "acks": self._settings.acks,
            "batches": [
                entry_fields(topic, partition, batches) for (topic, partition, _), batches in self._waiting.items()
            ],
            **more,
        }
        body = frame.encode(header, [data for chunk in chunks.values() for data in chunk])
        return HttpRequest(
            method="POST",
            path="/v1/transactions",
            headers={"Content-Type": BATCHES_TYPE},
            body=body,
            is_repeatable=True,
        )

    def _check_open(self) -> None:
        if not self._is_open:
            raise InvalidError(ErrorCode.INVALID_REQUEST, "the transaction has ended: begin another")


class LeaseHolder(Protocol):
    """A consumer that is a member of a group."""

    def group_offsets(self, offsets: Mapping[TopicPartition, int]) -> Sequence[GroupOffset]:
        """The offsets, with the leases that prove that this member owns their partitions."""

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """A transaction has committed the offsets."""


class LockHolder(Protocol):
    """A consumer of a share group."""

    def acceptances(self, records: Iterable[ShareRecord]) -> Sequence[ShareAcceptance]:
        """The records with the locks that prove that this consumer has them."""

    def settled(self, records: Iterable[ShareRecord]) -> None:
        """A transaction has accepted the records."""


def group_offsets(offsets: Mapping[TopicPartition, int], group: str | LeaseHolder) -> Sequence[GroupOffset]:
    """The offsets for a transaction to commit. `group` is the name of a group, or the consumer that is its member."""
    if isinstance(group, str):
        name, checked = checked_name(parse_group_name, group), checked_offsets("offsets", offsets)
        return [GroupOffset(group=name, partition=each, offset=offset) for each, offset in checked.items()]
    check(hasattr(group, "group_offsets"), f"group={group!r:.100}: give the consumer, or the name of a group")
    return group.group_offsets(offsets)
