"""Transactions of a producer, without I/O: what is in one, what of it is staged, and what became of its commit.

    begin -> send, send_offsets -> (stage, when a request is full) -> commit | abort

A commit may stay unanswered however often it is repeated. The producer then begins a new epoch, whose answer tells for
good whether it was committed (docs/adr/0011): so a transaction always has an outcome, unless the service stays away.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import ConflictError, InvalidError, TransactionAbortedError, as_sdk_error
from penstock.http_message import BATCHES_TYPE, Request, json_request
from penstock.model import TopicPartition
from penstock.producer_batch import ProducerBatch, TopicQueues
from penstock.retry import NEVER_MS
from penstock.steps import Calls, Steps
from penstock_core import frame
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.record_batch import BATCH_HEADER_BYTES, Compression
from penstock_core.records import BatchBuilder, Headers, record_bytes_max

UNKNOWN_OFFSET = -1
_ENTRY_OVERHEAD_BYTES = 80  # one entry of the frame's JSON header, without the topic's name


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """An offset to commit with a transaction, and what proves that the group's member may: None without a member."""

    group: str
    partition: TopicPartition
    offset: int
    member_id: str | None = None
    instance_id: str | None = None
    lease_epoch: int | None = None

    def to_json(self) -> dict[str, object]:
        fields = {
            "group": self.group,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.offset,
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "lease_epoch": self.lease_epoch,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """`request_bytes` bounds one request, before compression; `acks` is "quorum" or "all"."""

    transactional_id: str
    acks: str
    batch_bytes: int
    request_bytes: int
    compression: Compression


class TransactionalState:
    """Who the producer is at present, and the number of its next transaction. `epoch` None: a new one is to begin."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.epoch: int | None = None
        self.number = 0
        self.is_open = False
        self._fenced: PenstockError | None = None

    def begin(self) -> Calls[None]:
        """Make sure of an epoch, and open a transaction. One request, the first time and after what went wrong."""
        if self.is_open:
            raise ConflictError(
                ErrorCode.CONCURRENT_UPDATE,
                f"producer {self.settings.transactional_id!r} has a transaction open: end it before the next",
            )
        if self._fenced is not None:
            raise self._fenced
        if self.epoch is None:
            yield from self.begin_epoch()
        self.is_open = True

    def failed(self, error: PenstockError) -> None:
        """A request of this epoch was refused, or not answered: what the service has of it is not known."""
        self.epoch = None
        if error.code is ErrorCode.PRODUCER_FENCED:
            self._fenced = error  # to begin again would fence the one that has taken over

    def begin_epoch(self) -> Calls[None]:
        """Fence whoever had this id. What was not committed by now never will be."""
        body = {"transactional_id": self.settings.transactional_id}
        answer = yield json_request("POST", "/v1/producers", body=body, is_repeatable=True)
        self.epoch, self.number = int(answer["epoch"]), int(answer["transaction"])


class TransactionCore:
    """One transaction. `choose(n)` picks one of n: the partition of records without a key, once per topic."""

    def __init__(self, state: TransactionalState, choose: Callable[[int], int]) -> None:
        self._state = state
        self._settings = state.settings
        self._choose = choose
        self._sticky: dict[str, int] = {}
        self._waiting: dict[tuple[str, int], list[ProducerBatch]] = {}  # for the next request
        self._all: dict[tuple[str, int], list[ProducerBatch]] = {}
        self._offsets: dict[tuple[str, TopicPartition], GroupOffset] = {}
        self._waiting_bytes = 0
        self._stages = 0
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
    ) -> ProducerBatch:
        """Add a record, the batch's last. Raises RecordTooLargeError and InvalidError."""
        self._check_open()
        if partition is None:
            partition = self._sticky.setdefault(topic.name, self._choose(topic.partitions))
        batches = self._waiting.setdefault((topic.name, partition), [])
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
            if not batches:
                self._waiting_bytes += _ENTRY_OVERHEAD_BYTES + len(topic.name)
            self._waiting_bytes += BATCH_HEADER_BYTES
            batches.append(batch)
            self._all.setdefault((topic.name, partition), []).append(batch)
        self._waiting_bytes += size
        batches[-1].record_count += 1
        return batches[-1]

    @property
    def is_full(self) -> bool:
        """Whether what waits is to be staged before more is added."""
        return self._waiting_bytes >= self._settings.request_bytes - self._settings.batch_bytes

    def add_offsets(self, offsets: Iterable[GroupOffset]) -> None:
        """Commit these with the transaction; later ones of a group's partition replace earlier ones."""
        self._check_open()
        for each in offsets:
            self._offsets[each.group, each.partition] = each

    def stage(self) -> Steps[None]:
        """Put what waits ahead of the commit. One request."""
        try:
            yield self._request({"stage": self._stages})
        except PenstockError as error:
            self._state.failed(error)
            raise
        self._stages += 1
        for batches in self._waiting.values():
            for each in batches:
                each.let_go()
        self._waiting.clear()
        self._waiting_bytes = 0

    def commit(self) -> Steps[list[ProducerBatch]]:
        """Make all of it visible; the batches, which have their outcomes now. An empty transaction costs nothing.

        Raises what it was refused with, after `abort`. If no answer comes, a new epoch is begun to learn the outcome;
        if none comes to that either, the error says `maybe_applied`.
        """
        self._check_open()
        number = self._state.number
        if not (self._all or self._offsets):
            self._state.is_open = False
            return []
        results: Sequence[Mapping[str, object]] = ()
        self._is_committing = True
        try:
            offsets = [each.to_json() for each in self._offsets.values()]
            answer = yield self._request({"stages": self._stages, "offsets": offsets})
            results = answer["results"]
        except PenstockError as error:
            self._state.failed(error)
            if not error.maybe_applied or error.code is ErrorCode.PRODUCER_FENCED:
                raise
            yield from self._learn(error)
            if self._state.number == number:
                error.maybe_applied = False  # nor ever will be
                raise
        else:
            self._state.number = number + 1
        self._state.is_open = False
        self._deliver(results)
        return self._batches()

    def _learn(self, failure: PenstockError) -> Calls[None]:
        try:
            yield from self._state.begin_epoch()
        except PenstockError:
            raise failure from None

    def abort(self, cause: BaseException | None) -> list[ProducerBatch]:
        """Let go of it; the batches, which have failed. What was staged is never seen."""
        self._state.is_open = False
        if self._stages:
            self._state.epoch = None  # its stages must not meet those of the next one, which has the same number
        error = TransactionAbortedError("the transaction was aborted: none of its records was written")
        error.__cause__ = cause
        if self._is_committing and not (isinstance(cause, PenstockError) and not cause.maybe_applied):
            error.maybe_applied = True
            self._state.epoch = None
        for batch in self._batches():
            batch.outcome = error
        return self._batches()

    def _batches(self) -> list[ProducerBatch]:
        return [batch for batches in self._all.values() for batch in batches]

    def _deliver(self, results: Sequence[Mapping[str, object]]) -> None:
        bases = {(each["topic"], each["partition"]): each["base_offset"] for each in results}
        for place, batches in self._all.items():
            offset = bases.get(place, UNKNOWN_OFFSET)
            for batch in batches:
                batch.outcome = int(str(offset))
                if batch.outcome != UNKNOWN_OFFSET:
                    offset = batch.outcome + batch.record_count

    def _request(self, more: Mapping[str, object]) -> Request:
        chunks = {place: [batch.build() for batch in batches] for place, batches in self._waiting.items()}
        header = {
            "transactional_id": self._settings.transactional_id,
            "epoch": self._state.epoch,
            "transaction": self._state.number,
            "acks": self._settings.acks,
            "batches": [
                {"topic": topic, "partition": partition, "length": sum(map(len, chunk))}
                for (topic, partition), chunk in chunks.items()
            ],
            **more,
        }
        body = frame.encode(header, [data for chunk in chunks.values() for data in chunk])
        return Request(
            method="POST",
            path="/v1/transactions",
            headers={"Content-Type": BATCHES_TYPE},
            body=body,
            is_repeatable=True,
        )

    def _check_open(self) -> None:
        if not self._state.is_open:
            raise InvalidError(ErrorCode.INVALID_REQUEST, "the transaction has ended: begin another")
