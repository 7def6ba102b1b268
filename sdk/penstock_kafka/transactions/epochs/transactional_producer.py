"""An epoch of a transactional producer, and its open transaction. Only the gateway that began the epoch has it.

```
 AddPartitionsToTxn -> Produce, TxnOffsetCommit -> EndTxn
      opens             buffer, full: stage         one commit, or nothing
```
Requests of all connections take their turn by one lock, in the order in which they came. So a request that has to look
up a topic or a member takes the lock before. A commit may stay unanswered.
Then the transaction is in doubt: the client is told to ask again, and the gateway learns the outcome by a begin, as the
SDK does. Nothing ends a transaction in doubt but its outcome.

The bytes that all open transactions of a gateway hold in memory.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.producer.transactional.transactional_state import TransactionalState, learn_outcome
from penstock.system import monotonic_ms, wall_clock_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import KAFKA_TRANSACTIONS_BYTES_MAX, TRANSACTION_STAGES_MAX
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.service.service import Service
from penstock_kafka.transactions.epochs.open_transaction import NotedOffset, OffsetPlace, OpenTransaction
from penstock_kafka.transactions.epochs.sequences import Place, PlainBatch, Sequences
from penstock_kafka.transactions.refusals import abortable, fenced, unknown_epoch, wrong_state

_LEASE_LOST = (ErrorCode.LEASE_FENCED, ErrorCode.OFFSET_BEHIND)


class Ending(Enum):
    """How the last transaction of the epoch ended."""

    COMMITTED = "CompleteCommit"
    ABORTED = "CompleteAbort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names by which a client knows its epoch, and the time that each of its transactions may take."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int


class Buffers:
    """A count of bytes. A transaction that finds no room stages what it has, whatever size it is."""

    def __init__(self, bytes_max: int = KAFKA_TRANSACTIONS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.held = 0

    def has_room(self, size: int) -> bool:
        """True if so many bytes more may be held."""
        return self.held + size <= self._bytes_max

    def hold(self, size: int) -> None:
        """Hold bytes more."""
        self.held += size

    def let_go(self, size: int) -> None:
        """Hold bytes less."""
        self.held -= size


class TransactionalProducer:
    """`state` has the epoch of the service. It may be ahead of the client's, after an outcome that had to be learnt.

    `is_lost`: the transaction of this epoch was begun at another gateway, and was given up here.
    """

    def __init__(
        self, names: Names, state: TransactionalState, service: Service, buffers: Buffers, *, is_lost: bool = False
    ) -> None:
        self.names = names
        self.state = state
        self.is_lost = is_lost
        self.transaction: OpenTransaction | None = None
        self.ending: Ending | None = None
        self.sequences = Sequences()
        self.lock = asyncio.Lock()
        self._service = service
        self._buffers = buffers
        self._is_fenced = False

    @property
    def status(self) -> str:
        """The state by Kafka's name."""
        if self.transaction is not None:
            return "PrepareCommit" if self.transaction.doubt is not None else "Ongoing"
        return "Empty" if self.ending is None else self.ending.value

    async def add_places(self, places: Mapping[Place, int]) -> None:
        """Add partitions, and open a transaction if there is none. A begin, if the last failure made it needed.

        The caller holds the lock, from before its first await on.
        """
        (await self._opened()).add_places(places)

    async def add_group(self, group: str) -> None:
        """Add a group, and open a transaction if there is none."""
        async with self.lock:
            (await self._opened()).add_group(group)

    def add_offsets(self, group: str, offsets: Mapping[OffsetPlace, NotedOffset]) -> None:
        """Note offsets of a group that was added. The caller holds the lock, from before its first await on."""
        transaction = self._open()
        if group not in transaction.groups:
            raise wrong_state(f"group {group!r:.100} was not added to the transaction")
        transaction.add_offsets(offsets)

    async def produce(self, place: Place, batch: PlainBatch) -> None:
        """Take a batch: it waits in memory, or is staged. A repeat changes nothing. The caller holds the lock.

        Raises what the stage raises. The batch was not taken then, and may come again.
        """
        transaction = self._open()
        if place not in transaction.places:
            raise wrong_state(f"partition {place[1]} of topic {place[0]!r:.100} was not added to the transaction")
        if len(batch.data) > transaction.places[place]:
            raise RequestRefused(
                KafkaError.message_too_large,
                f"a batch of {len(batch.data):,} bytes: topic {place[0]!r:.100} takes {transaction.places[place]:,}",
            )
        if not self.sequences.is_new(place, batch):
            return
        if transaction.waiting and not (transaction.has_room(batch) and self._buffers.has_room(len(batch.data))):
            await self._stage(transaction)
            self._open()  # another epoch may have begun meanwhile
        has_room = self._buffers.has_room(len(batch.data))
        transaction.add_batch(place, batch)
        self._buffers.hold(len(batch.data))
        if not has_room:
            await self._stage_alone(transaction)
        self.sequences.take(place, batch)

    async def commit(self) -> None:
        """Make the transaction visible. Committed already is well, as the answer may have been lost.

        Raises an error after which the client aborts only if the transaction was not committed and never will be.
        """
        async with self.lock:
            if self.is_lost:
                raise wrong_state("the transaction was given up")
            if self.transaction is None:
                if self.ending is not Ending.COMMITTED:
                    raise wrong_state("there is no transaction to commit")
                return
            if self.transaction.doubt is None:
                await self._commit(self._open())
            else:
                await self._learn(self.transaction, self.transaction.doubt)

    async def abort(self) -> None:
        """Give the transaction up. Costs nothing, unless a commit of it is in doubt."""
        async with self.lock:
            if self.transaction is None:
                if self.ending is Ending.COMMITTED:
                    raise wrong_state("the transaction was committed")
                return
            if self.transaction.doubt is not None:
                await self._learn_aborted(self.transaction, self.transaction.doubt)
            else:
                self._end(Ending.ABORTED)

    def give_up(self) -> None:
        """The epoch has ended: another one took its place. A commit on its way goes on."""
        self._is_fenced = True
        if self.transaction is not None:
            self._drop_data(self.transaction)

    def expire(self) -> None:
        """End a transaction whose time is over. Not while a request of it is handled, or its commit is in doubt."""
        transaction = self.transaction
        if transaction is None or transaction.failure is not None or self.lock.locked():
            return
        if transaction.doubt is None and monotonic_ms() >= transaction.deadline_ms:
            self._fail(transaction, abortable(f"the transaction was open for {self.names.timeout_ms:,} ms"))

    def _open(self) -> OpenTransaction:
        """The transaction, if it can go on."""
        self._check()
        if self.transaction is None:
            raise wrong_state("no transaction is open: add a partition or a group first")
        if self.transaction.doubt is not None:
            raise wrong_state("the transaction is being committed")
        if self.transaction.failure is None and monotonic_ms() >= self.transaction.deadline_ms:
            self._fail(self.transaction, abortable(f"the transaction was open for {self.names.timeout_ms:,} ms"))
        if self.transaction.failure is not None:
            raise self.transaction.failure
        return self.transaction

    async def _opened(self) -> OpenTransaction:
        """The transaction; a new one if none is open."""
        self._check()
        if self.transaction is not None:
            return self._open()
        if self.state.epoch is None:
            await self._call_begin()
        self.transaction = OpenTransaction(
            nonce=self.state.new_nonce(),
            number=self.state.number,
            epoch=self.state.epoch or 0,
            started_at_ms=wall_clock_ms(),
            deadline_ms=monotonic_ms() + self.names.timeout_ms,
        )
        self.ending = None
        return self.transaction

    def _check(self) -> None:
        if self._is_fenced:
            raise fenced(self.names.transactional_id)
        if self.is_lost:
            raise unknown_epoch(self.names.transactional_id)

    async def _call_begin(self) -> None:
        try:
            await self._service.call(self.state.begin_epoch())
        except PenstockError as error:
            self._is_fenced |= error.code is ErrorCode.PRODUCER_FENCED
            raise

    async def _stage(self, transaction: OpenTransaction) -> None:
        if transaction.stages >= TRANSACTION_STAGES_MAX:
            raise self._fail(transaction, abortable(f"a transaction of more than {TRANSACTION_STAGES_MAX} stages"))
        try:
            await self._service.client.document(transaction.stage_request(self.names.transactional_id))
        except PenstockError as error:
            if error.code.is_retriable:
                raise
            raise self._refused(transaction, error) from error
        transaction.stages += 1
        self._drop_data(transaction)

    async def _stage_alone(self, transaction: OpenTransaction) -> None:
        """Stage a batch that memory has no room for. If that fails, the batch cannot wait for another try."""
        try:
            await self._stage(transaction)
        except PenstockError as error:
            raise self._fail(transaction, abortable(f"no memory for a batch, and its stage failed: {error}")) from error
        self._open()

    async def _commit(self, transaction: OpenTransaction) -> None:
        if transaction.is_empty:
            self._end(Ending.COMMITTED)
            return
        try:
            await self._service.client.document(transaction.commit_request(self.names.transactional_id))
        except PenstockError as error:
            if error.maybe_applied or error.code is ErrorCode.PRODUCER_FENCED:
                self.state.failed(error)
                self._drop_data(transaction)
                transaction.doubt = error
                await self._learn(transaction, error)
                return
            if error.code.is_retriable:
                raise
            raise self._refused(transaction, error) from error
        self.state.number = transaction.number + 1
        self._committed(transaction)

    async def _learn(self, transaction: OpenTransaction, failure: PenstockError) -> None:
        """Return if the transaction in doubt was committed. Else raise why not."""
        try:
            await self._service.call(learn_outcome(self.state, transaction.nonce, transaction.number, failure))
        except PenstockError as error:
            self._is_fenced |= error.code is ErrorCode.PRODUCER_FENCED
            if self._is_fenced:
                raise fenced(self.names.transactional_id) from error
            if error.maybe_applied:
                raise RequestRefused(KafkaError.coordinator_not_available, f"the outcome is not known: {error}") from (
                    error
                )
            transaction.doubt = None
            raise self._fail(transaction, abortable(str(error))) from error
        self._committed(transaction)

    async def _learn_aborted(self, transaction: OpenTransaction, failure: PenstockError) -> None:
        try:
            await self._learn(transaction, failure)
        except (PenstockError, RequestRefused):
            if self.transaction is not None and self.transaction.doubt is not None:
                raise
            self._end(Ending.ABORTED)
            return
        raise wrong_state("the transaction was committed")

    def _committed(self, transaction: OpenTransaction) -> None:
        for (_, partition), noted in transaction.offsets.items():
            if noted.member is not None and partition in noted.member.leases:
                noted.member.known[partition] = noted.item["offset"]
        self._end(Ending.COMMITTED)

    def _refused(self, transaction: OpenTransaction, error: PenstockError) -> RequestRefused:
        """The service refuses the transaction for good. Nothing of it was or will be committed."""
        self.state.failed(error)
        self._is_fenced |= error.code is ErrorCode.PRODUCER_FENCED
        if error.code in _LEASE_LOST:
            _lose_leases(transaction.offsets)
        is_fenced = error.code is ErrorCode.PRODUCER_FENCED
        return self._fail(transaction, fenced(self.names.transactional_id) if is_fenced else abortable(str(error)))

    def _fail(self, transaction: OpenTransaction, failure: RequestRefused) -> RequestRefused:
        transaction.failure = failure
        self._drop_data(transaction)
        return failure

    def _end(self, ending: Ending) -> None:
        if self.transaction is not None:
            self._drop_data(self.transaction)
        self.transaction, self.ending = None, ending

    def _drop_data(self, transaction: OpenTransaction) -> None:
        self._buffers.let_go(transaction.waiting_bytes)
        transaction.drop_data()


def _lose_leases(offsets: Mapping[OffsetPlace, NotedOffset]) -> None:
    """One of these leases is another one's: the members heartbeat at once, and are told anew."""
    found: Sequence[tuple[OffsetPlace, NotedOffset]] = [*offsets.items()]
    for (_, partition), noted in found:
        lease = None if noted.member is None else noted.member.leases.get(partition)
        if noted.member is not None and lease is not None and lease.lease_epoch == noted.item.get("lease_epoch"):
            noted.member.lost(partition)
