"""The ends of partitions at which clients wait: who waits, and for which of them the service is asked.

A partition is quiet at an offset while the gateway would hear of a record there. Then a fetch at that offset waits
here, and costs nothing. A quiet partition is watched in one of two ways:

- it is armed, under a subscription to its wake-ups: an append wakes it. It is looked at again after a minute at the
  latest, as a wake-up may be lost (docs/protocol/wake-ups);
- a long poll is under way for it, which all waiting clients share: where the service has no wake-ups, or a subscription
  does not cover it yet.
"""

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.consumer.fetch_buffer import FetchAnswer
from penstock.consumer.fetch_call import fetch_answer
from penstock.http.http_message import BATCHES_TYPE, JSON_TYPE, HttpRequest
from penstock.system import monotonic_ms
from penstock.wake_ups.async_waker import AsyncWaker
from penstock.wake_ups.events import WakeUp
from penstock.wake_ups.watch import Watch
from penstock.workers.async_workers import AsyncLock
from penstock_core.errors import PenstockError
from penstock_core.limits import KAFKA_POLLS_MAX, REQUEST_PARTITIONS_MAX, SDK_SAFETY_NET_MS, SDK_WAKE_UP_HOLD_MS
from penstock_kafka.context import Context

_BRIEF_POLL_MS = 500
_POLL_PAUSE_S = 0.2  # after a poll that failed
_IDLE_MS = 60_000  # a partition that no client waits for is forgotten


class TailKey(NamedTuple):
    """A partition of a topic, by its name and its id."""

    topic: str
    topic_id: str
    partition: int


class Cover(NamedTuple):
    """The state of a partition's wake-ups when a fetch began. `subscription` is 0 if none covers it."""

    subscription: int
    woken_to: int
    blind_wake_ups: int


NO_COVER = Cover(0, 0, 0)


class End(NamedTuple):
    """The end of a partition as a fetch has found it. `armed_under`: the cover under which it is armed, or None."""

    offset: int
    log_start_offset: int
    armed_under: Cover | None


@dataclass(slots=True, kw_only=True, eq=False)
class Tail:
    """The gateway's knowledge of one partition. `quiet_at` is the offset at which it is watched, None if it is not."""

    quiet_at: int | None = None
    log_start_offset: int = -1  # as it was read last
    armed_under: int = 0  # the number of the subscription; 0: a poll watches it
    woken_to: int = 0  # the highest offset that a wake-up has told: a wake-up may overtake the answer that armed
    blind_wake_ups: int = 0  # those that told no offset
    until_ms: int = 0  # when an armed partition is looked at again
    used_ms: int = 0
    waiting: set["asyncio.Future[None]"] = field(default_factory=set)

    def arm(self, offset: int, cover: Cover, now_ms: int) -> bool:
        """It was armed at this offset. False if it was woken since that fetch began: then its clients read again."""
        is_overtaken = self.woken_to > max(offset, cover.woken_to) or self.blind_wake_ups != cover.blind_wake_ups
        if is_overtaken:
            self.wake()
            return False
        self.quiet_at, self.armed_under = offset, cover.subscription
        self.until_ms = now_ms + SDK_SAFETY_NET_MS
        return True

    def wake(self) -> None:
        """A record may have come."""
        self.quiet_at = None
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()


class Tails:
    """All partitions at whose ends clients wait."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tails: dict[TailKey, Tail] = {}
        self._by_id: dict[tuple[str, int], TailKey] = {}
        self._polls = 0
        self._watch = Watch()
        self._waker = AsyncWaker(
            self._watch, context.service.client, self._woken, lock=AsyncLock(), changed=lambda: None
        )
        context.closers.append(self.close)

    def is_quiet(self, key: TailKey, offset: int) -> bool:
        """A record at this offset would wake its waiters: a fetch would find nothing."""
        tail = self._tails.get(key)
        if tail is None or tail.quiet_at != offset:
            return False
        if tail.armed_under and (tail.armed_under != self.coverage(key) or monotonic_ms() >= tail.until_ms):
            tail.wake()
            return False
        return True

    def coverage(self, key: TailKey) -> int:
        """The subscription to the wake-ups of the partition; 0 if there is none."""
        return self._watch.coverage(key.topic_id, key.partition)

    def cover(self, key: TailKey) -> Cover:
        """The cover under which a fetch that begins now may arm the partition."""
        tail = self._tails.get(key)
        if tail is None:
            return Cover(self.coverage(key), 0, 0)
        return Cover(self.coverage(key), tail.woken_to, tail.blind_wake_ups)

    def saw(self, key: TailKey, high_watermark: int) -> None:
        """A fetch has seen records up to here. Clients that wait below it are woken, whatever happened to a wake-up."""
        tail = self._tails.get(key)
        if tail is not None and tail.quiet_at is not None and high_watermark > tail.quiet_at:
            tail.wake()

    def log_start_offset(self, key: TailKey) -> int:
        """The first offset of a quiet partition, as it was read last; -1 if it is not known."""
        tail = self._tails.get(key)
        return -1 if tail is None else tail.log_start_offset

    def watch(self, ends: Mapping[TailKey, "End"]) -> bool:
        """Partitions were read to these ends: watch those that are not armed. Their clients are about to wait.

        False if one of them was woken meanwhile: then there is something to read.
        """
        now_ms = monotonic_ms()
        may_wait = True
        to_poll: dict[TailKey, int] = {}
        for key, end in ends.items():
            tail = self._tails.setdefault(key, Tail())
            self._by_id[(key.topic_id, key.partition)] = key
            tail.used_ms, tail.log_start_offset = now_ms, end.log_start_offset
            if end.armed_under is not None:
                may_wait &= tail.arm(end.offset, end.armed_under, now_ms)
            elif tail.quiet_at != end.offset:
                to_poll[key] = end.offset
        self._forget(now_ms)
        self._watch.want(self._by_id, now_ms + SDK_WAKE_UP_HOLD_MS)
        self._waker.wake()
        keys = [*to_poll]
        for start in range(0, len(keys), REQUEST_PARTITIONS_MAX):
            if self._polls < KAFKA_POLLS_MAX:
                chunk = {key: to_poll[key] for key in keys[start : start + REQUEST_PARTITIONS_MAX]}
                self._begin_poll(chunk)
        return may_wait

    async def wait(self, keys: Collection[TailKey], timeout_s: float, gone: asyncio.Event) -> None:
        """Until one of these may have a record, the time is over, or the client has gone."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tails = [self._tails[key] for key in keys if key in self._tails]
        for tail in tails:
            tail.waiting.add(future)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(gone.wait())
        waiting: list[asyncio.Future[Any]] = [future, leaving]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            now_ms = monotonic_ms()
            for tail in tails:
                tail.waiting.discard(future)
                tail.used_ms = now_ms

    async def close(self) -> None:
        """End the subscriptions."""
        self._watch.close()
        await self._waker.end()

    def _woken(self, wake_up: WakeUp) -> None:
        key = self._by_id.get((wake_up.topic_id, wake_up.partition))
        if key is None:
            return
        tail = self._tails[key]
        if wake_up.next_offset is None:
            tail.blind_wake_ups += 1
            tail.wake()
        else:
            tail.woken_to = max(tail.woken_to, wake_up.next_offset)
            if tail.quiet_at is not None and tail.woken_to > tail.quiet_at:
                tail.wake()

    def _begin_poll(self, ends: Mapping[TailKey, int]) -> None:
        for key, end in ends.items():
            tail = self._tails[key]
            tail.quiet_at, tail.armed_under = end, 0
        self._polls += 1
        self._context.start(self._poll(ends), "penstock-kafka-poll")

    async def _poll(self, ends: Mapping[TailKey, int]) -> None:
        """One long poll. At its end the partitions are not quiet any more: their clients read them."""
        # While the subscription is being made, a poll is short: the next fetch can arm.
        is_polling = self._watch.is_polling(monotonic_ms())
        poll_ms_max = self._context.settings.poll_ms_max
        request = _poll_request(ends, poll_ms_max if is_polling else min(poll_ms_max, _BRIEF_POLL_MS))
        self._context.figures.fetch_calls += 1
        try:
            answer = fetch_answer(request, await self._context.service.try_once(request), len(ends))
            found = _with_news(answer, [*ends])
            if answer.again_ms and not found:  # the stage has no waiting time left
                await asyncio.sleep(answer.again_ms / 1_000)
        except PenstockError:
            found = set(ends)
            await asyncio.sleep(_POLL_PAUSE_S)
        finally:
            self._polls -= 1
            for key, end in ends.items():
                tail = self._tails.get(key)
                if tail is not None and tail.quiet_at == end and not tail.armed_under:
                    tail.quiet_at = None
        still = {}
        for key, end in ends.items():
            tail = self._tails.get(key)
            if tail is None or tail.quiet_at is not None:
                continue
            if key in found or self.coverage(key):
                tail.wake()  # the client reads, or arms
            elif tail.waiting:
                still[key] = end
        if still:
            self._begin_poll(still)

    def _forget(self, now_ms: int) -> None:
        idle = [key for key, tail in self._tails.items() if not tail.waiting and now_ms - tail.used_ms > _IDLE_MS]
        for key in idle:
            del self._tails[key]
            self._by_id.pop((key.topic_id, key.partition), None)


def _poll_request(ends: Mapping[TailKey, int], wait_ms: int) -> HttpRequest:
    """A long poll of the partitions: it answers a batch at most."""
    partitions = [
        {"topic": key.topic, "topic_id": key.topic_id, "partition": key.partition, "offset": end}
        for key, end in ends.items()
    ]
    return binary_fetch({"partitions": partitions, "max_bytes": 1, "min_bytes": 1, "wait_ms": wait_ms})


def binary_fetch(body: Mapping[str, object]) -> HttpRequest:
    """A fetch that is answered by batches."""
    return HttpRequest(
        method="POST",
        path="/v1/fetch",
        headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE},
        body=json.dumps(body, separators=(",", ":")).encode(),
        is_read=True,
        is_repeatable=True,
    )


def _with_news(answer: FetchAnswer, keys: Sequence[TailKey]) -> set[TailKey]:
    return {
        key
        for key, each in zip(keys, answer.partitions, strict=True)
        if "error" in each or each["length"] or each["next_offset"] < each["high_watermark"]
    }
