"""The records of one share group for all of its clients at this gateway: who asks the service, and who waits.

```
            found nothing                            found nothing, armed
  lively ---------------------> quiet: one client ----------------------> asleep until a wake-up,
    ^      clients ask side      at a time asks                           or until a record is due
    |      by side                    |                                          |
    +---------------------------------+------------------------------------------+
                                found records
```

While the group has records, each client asks for its own. Once it has none, one client at a time asks and the others
wait behind it: so a group at rest costs one call for all of its clients. The one that asks arms and sleeps by the rules
of the SDK's share consumer (penstock/share/waiting.py), or polls where the service has no wake-ups.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.share.acknowledgements import Acknowledgement
from penstock.share.waiting import ShareWaiting
from penstock.system import monotonic_ms, random_fraction
from penstock.wake_ups.async_waker import AsyncWaker
from penstock.wake_ups.events import WakeUp
from penstock.workers.async_workers import AsyncLock
from penstock_core.errors import PenstockError
from penstock_core.limits import FETCH_BYTES_MAX, KAFKA_SHARE_BYTES_MAX, SHARE_ACKNOWLEDGEMENTS_MAX
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Peer
from penstock_kafka.share.share_calls import AcquireAnswer, ShareCalls
from penstock_kafka.wire.budget import ByteBudget

_WAITING_BYTES_MAX = 65_536  # of an acquire that waits: it holds its part of the budget all the while
_IDLE_MS = 60_000
_AT_ONCE: Mapping[str, Any] = {"wait_ms": 0, "arm": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchWish:
    """A share fetch. `afterwards` takes what to do when the client has its answer."""

    records_max: int
    bytes_max: int
    until_ms: int
    peer: Peer
    afterwards: list[Callable[[], None]]
    entries: Sequence[Acknowledgement] = ()


@dataclass(slots=True, kw_only=True)
class FetchOutcome:
    """The results of the acknowledgements, and the answer of an acquire with records, if one had some.

    `failure`: an acquire has failed after the acknowledgements were made.
    """

    acknowledged: list[Mapping[str, Any]]
    answer: AcquireAnswer | None = None
    failure: PenstockError | None = None


class GroupQueue:
    """One group, and some of its topics."""

    def __init__(
        self, context: Context, calls: ShareCalls, budget: ByteBudget, group: str, topics: frozenset[str]
    ) -> None:
        self.used_ms = monotonic_ms()
        self.users = 0
        self._calls = calls
        self._budget = budget
        self._group = group
        self._topics = sorted(topics)
        self._poll_ms_max = context.settings.poll_ms_max
        self._is_quiet = False
        self._asking = asyncio.Lock()  # of the client that asks while the group is quiet
        self._bell = asyncio.Event()
        self._waiting = ShareWaiting(self._poll_ms_max, is_woken=True)
        watch = self._waiting.watch
        assert watch is not None
        self._watch = watch
        self._waker = AsyncWaker(watch, context.service.client, self._woken, lock=AsyncLock(), changed=self._bell.set)

    async def fetch(self, wish: FetchWish) -> FetchOutcome:
        """Records, as soon as there are some; none when the time is over. Raises PenstockError.

        Acknowledgements go at once: with the first acquire, or alone while the group is quiet.
        """
        outcome = FetchOutcome(acknowledged=[])
        if wish.entries and (self._is_quiet or len(wish.entries) > SHARE_ACKNOWLEDGEMENTS_MAX):
            outcome.acknowledged += await self._calls.acknowledge(self._group, wish.entries)
        elif wish.entries or not self._is_quiet:
            answer = await self._acquire(wish, _AT_ONCE, wish.entries)
            outcome.acknowledged += answer.document["acknowledged"]
            if answer.locks:
                outcome.answer = answer
                return outcome
            self._is_quiet = True
        try:
            outcome.answer = await self._wait(wish)
        except PenstockError as error:
            outcome.failure = error
        return outcome

    async def close(self) -> None:
        """End the subscription."""
        self._watch.close()
        await self._waker.end()

    async def _wait(self, wish: FetchWish) -> AcquireAnswer | None:
        try:
            async with asyncio.timeout(_seconds_to(wish.until_ms)):
                await self._asking.acquire()
        except TimeoutError:
            return None
        try:
            while not wish.peer.gone.is_set():
                answer = await self._ask(wish)
                if answer is None or answer.locks or monotonic_ms() >= wish.until_ms:
                    return answer
            return None
        finally:
            self._asking.release()

    async def _ask(self, wish: FetchWish) -> AcquireAnswer | None:
        """One acquire when it is due; None if the wish's time is over before."""
        if not self._is_quiet:
            answer = await self._acquire(wish, _AT_ONCE)
            self._is_quiet = not answer.locks
            return answer
        while (due_ms := self._waiting.due_ms()) > (now_ms := monotonic_ms()):
            if now_ms >= wish.until_ms or wish.peer.gone.is_set():
                return None
            await self._sleep(min(due_ms, wish.until_ms), wish.peer.gone)
        asked = dict(self._waiting.ask(now_ms))
        asked["wait_ms"] = max(0, min(asked["wait_ms"], wish.until_ms - now_ms))
        answer = await self._acquire(wish, asked)
        has_records = bool(answer.locks)
        self._waiting.answered(
            answer.document, has_records=has_records, now_ms=monotonic_ms(), chance=random_fraction()
        )
        self._waker.wake()
        self._is_quiet = not has_records
        return answer

    async def _acquire(
        self, wish: FetchWish, how: Mapping[str, Any], entries: Sequence[Acknowledgement] = ()
    ) -> AcquireAnswer:
        most = max(1, min(wish.bytes_max, _WAITING_BYTES_MAX if how["wait_ms"] else FETCH_BYTES_MAX))
        hold = self._budget.open(wish.peer)
        wish.afterwards.append(hold.close)
        body = {
            "max_records": wish.records_max,
            "max_bytes": await hold.take_part(most),
            "topics": self._topics,
            "acknowledge": [each.to_json() for each in entries],
            **how,
        }
        size = 0
        try:
            answer = await self._calls.acquire(self._group, body)
            size = wish.peer.fetched_bytes = answer.size
            return answer
        finally:
            hold.resize(size)

    async def _sleep(self, until_ms: int, gone: asyncio.Event) -> None:
        """Until the bell rings, the client goes, or the time is over."""
        waiting = [asyncio.ensure_future(each.wait()) for each in (self._bell, gone)]
        try:
            await asyncio.wait(waiting, timeout=_seconds_to(until_ms), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            self._bell.clear()

    def _woken(self, wake_up: WakeUp) -> None:
        self._waiting.woken(wake_up)
        self._bell.set()


class GroupQueues:
    """The queues of all groups. One that no client uses for a minute ends."""

    def __init__(self, context: Context, calls: ShareCalls) -> None:
        self._context = context
        self._calls = calls
        self._budget = ByteBudget(KAFKA_SHARE_BYTES_MAX)
        self._queues: dict[tuple[str, frozenset[str]], GroupQueue] = {}
        context.closers.append(self.close)

    async def fetch(self, group: str, topics: frozenset[str], wish: FetchWish) -> FetchOutcome:
        """As the group's queue does."""
        queue = self._queues.get((group, topics))
        if queue is None:
            self._end_idle()
            queue = GroupQueue(self._context, self._calls, self._budget, group, topics)
            self._queues[group, topics] = queue
        queue.users += 1
        try:
            return await queue.fetch(wish)
        finally:
            queue.users -= 1
            queue.used_ms = monotonic_ms()

    async def close(self) -> None:
        """End all subscriptions."""
        for queue in self._queues.values():
            await queue.close()

    def _end_idle(self) -> None:
        now_ms = monotonic_ms()
        for key, queue in list(self._queues.items()):
            if not queue.users and now_ms - queue.used_ms > _IDLE_MS:
                del self._queues[key]
                self._context.start(queue.close(), "penstock-kafka-share-queue")


def _seconds_to(until_ms: int) -> float:
    return max(0, until_ms - monotonic_ms()) / 1_000
