"""Transactions as users of the asynchronous producer see them; transaction_core.py decides."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from penstock.async_sender import AsyncSender
from penstock.delivery import FutureFollower, follow_up, tell
from penstock.model import RecordMetadata, TopicPartition
from penstock.producer_core import ProducerCore
from penstock.system import choose, wall_clock_ms
from penstock.transaction import HoldsLeases, group_offsets
from penstock.transaction_core import TransactionalState, TransactionCore
from penstock_core.records import Headers


class AsyncTransaction:
    """As Transaction, in `async with`. A cancellation aborts it; one that meets the commit leaves its outcome open."""

    def __init__(self, core: ProducerCore, sender: AsyncSender, state: TransactionalState) -> None:
        self._core = core
        self._sender = sender
        self._state = state
        self._transaction = TransactionCore(state, choose)

    async def send(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """As Transaction.send; the future is done when the block has ended."""
        if timestamp_ms is None:
            timestamp_ms = wall_clock_ms()
        append = self._core.append_to(self._transaction, topic, value, key, headers, partition, timestamp_ms)
        batch = await self._sender.drive(append)
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        batch.followers.append(FutureFollower(sent, batch, batch.record_count - 1, timestamp_ms))
        return sent

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str | HoldsLeases) -> None:
        """As Transaction.send_offsets; nothing is sent before the commit."""
        self._transaction.add_offsets(group_offsets(offsets, group))

    async def __aenter__(self) -> Self:
        await self._sender.drive(self._state.begin())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            tell(self._transaction.abort(error))
            return
        try:
            finished = await self._sender.drive(self._transaction.commit())
        except BaseException as failure:
            tell(self._transaction.abort(failure))
            raise
        follow_up(finished)
