"""The transactional producers of this gateway. An epoch is known to the gateway that began it, and to no other.

So all parts of a transaction come to one gateway, or they are refused. A client that reaches another gateway, or the
same one after a restart, is told to abort and to begin another epoch. If it wants to commit, it is told to stop: the
gateway that it came from may have committed.
"""

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from penstock.producer.transactional.transactional_state import TransactionalState, TransactionSettings
from penstock.system import new_nonce
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import BATCH_BYTES_MAX, KAFKA_TRANSACTION_EXPIRY_MS, KAFKA_TRANSACTIONAL_IDS_MAX
from penstock_core.records.record_batch import Compression
from penstock_kafka.context import Context
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.transactions.epochs.transactional_producer import Buffers, Names, TransactionalProducer
from penstock_kafka.transactions.refusals import fenced, unknown_epoch, wrong_state

Epoch = tuple[int, int]  # a producer id, and its epoch


class Producers:
    """Producers by transactional id, `KAFKA_TRANSACTIONAL_IDS_MAX` at most: those that are idle make room."""

    def __init__(self, context: Context, buffers: Buffers | None = None) -> None:
        self.buffers = buffers or Buffers()
        self._context = context
        self._service = context.service
        self._is_watched = False
        self._producers: OrderedDict[str, TransactionalProducer] = OrderedDict()
        self._came_from: dict[str, Epoch] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def all(self) -> list[TransactionalProducer]:
        """Every producer."""
        return [*self._producers.values()]

    def named(self, name: str) -> TransactionalProducer | None:
        """The producer of this id, if this gateway has begun its epoch."""
        return self._producers.get(name)

    def find(self, name: str, epoch: Epoch) -> TransactionalProducer:
        """The producer. Raises RequestRefused if this gateway has not begun this epoch, or a later one."""
        known = self._producers.get(name)
        if known is None or known.names.producer_id != epoch[0] or known.names.epoch < epoch[1]:
            raise unknown_epoch(name)
        if known.names.epoch > epoch[1]:
            raise fenced(name)
        self._producers.move_to_end(name)
        return known

    async def begin(self, name: str, timeout_ms: int, last: Epoch | None) -> TransactionalProducer:
        """Begin an epoch, and end the earlier one. `last` is the epoch that the client has, None for a new instance.

        One begin. Raises what it raises: PRODUCER_FENCED if another instance has begun since `last`. Raises
        RequestRefused while `KAFKA_TRANSACTIONAL_IDS_MAX` other ids have an open transaction.
        """
        async with self._lock(name):
            known = self._producers.get(name)
            if known is None:
                self._refuse_if_full()
            if known is not None and last is not None:
                if self._came_from.get(name) == last and known.transaction is None and known.ending is None:
                    return known  # the answer to this begin was lost
                if (known.names.producer_id, known.names.epoch) == last:
                    async with known.lock:  # a commit on its way ends first
                        return await self._begin(name, timeout_ms, known.state, last)
            return await self._begin(name, timeout_ms, _state(name, last), last)

    async def abort_unknown(self, name: str, epoch: Epoch) -> None:
        """The client gives up a transaction of another gateway, which must never commit it: the epoch is ended.

        One begin. Raises what it raises.
        """
        async with self._lock(name):
            known = self._producers.get(name)
            if known is not None and (known.names.producer_id, known.names.epoch) == epoch:
                await known.abort()
                return
            if known is not None and known.names.producer_id == epoch[0] and known.names.epoch > epoch[1]:
                raise fenced(name)
            state = _state(name, epoch)
            await self._call_begin(name, state)
            names = Names(transactional_id=name, producer_id=epoch[0], epoch=epoch[1], timeout_ms=0)
            self._remember(TransactionalProducer(names, state, self._service, self.buffers, is_lost=True))
            self._came_from.pop(name, None)

    async def end(self, name: str, epoch: Epoch, *, is_commit: bool) -> None:
        """End the transaction of this epoch."""
        try:
            producer = self.find(name, epoch)
        except RequestRefused as error:
            if error.code is not KafkaError.invalid_producer_id_mapping:
                raise
            if is_commit:
                raise wrong_state(
                    f"transactional id {name!r}: the outcome of this commit is not known here. Start anew, and read "
                    "the offsets that were committed"
                ) from error
            await self.abort_unknown(name, epoch)
            return
        await (producer.commit() if is_commit else producer.abort())

    def expire(self) -> None:
        """End the transactions whose time is over."""
        for each in self._producers.values():
            each.expire()

    async def _begin(
        self, name: str, timeout_ms: int, state: TransactionalState, last: Epoch | None
    ) -> TransactionalProducer:
        producer_id = await self._call_begin(name, state)
        names = Names(transactional_id=name, producer_id=producer_id, epoch=state.epoch or 0, timeout_ms=timeout_ms)
        producer = TransactionalProducer(names, state, self._service, self.buffers)
        self._remember(producer)
        self._came_from.pop(name, None)
        if last is not None:
            self._came_from[name] = last
        return producer

    async def _call_begin(self, name: str, state: TransactionalState) -> int:
        try:
            await self._service.call(state.begin_epoch())
        except PenstockError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                raise fenced(name) from error
            raise
        return state.producer_id

    def _remember(self, producer: TransactionalProducer) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._context.start(self._watch(), "penstock-kafka-transactions")
        name = producer.names.transactional_id
        known = self._producers.pop(name, None)
        if known is not None:
            known.give_up()
        self._producers[name] = producer
        idle = [each for each, found in self._producers.items() if found.transaction is None and each != name]
        for each in idle[: max(0, len(self._producers) - KAFKA_TRANSACTIONAL_IDS_MAX)]:
            del self._producers[each]
            self._came_from.pop(each, None)

    def _refuse_if_full(self) -> None:
        open_count = sum(each.transaction is not None for each in self._producers.values())
        if open_count >= KAFKA_TRANSACTIONAL_IDS_MAX:
            raise RequestRefused(
                KafkaError.coordinator_load_in_progress, f"{open_count:,} transactions are open at this gateway"
            )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(KAFKA_TRANSACTION_EXPIRY_MS / 1_000)
            self.expire()

    def _lock(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


def _state(name: str, last: Epoch | None) -> TransactionalState:
    settings = TransactionSettings(
        transactional_id=name,
        acks="quorum",
        batch_bytes=BATCH_BYTES_MAX,
        request_bytes=BATCH_BYTES_MAX,
        compression=Compression.NONE,
    )
    return TransactionalState(settings, new_nonce, last)


def open_producers(context: Context) -> Producers:
    """The producers of this gateway, which the rooms of produce and of transactions share."""
    return context.share(Producers, lambda: Producers(context))
