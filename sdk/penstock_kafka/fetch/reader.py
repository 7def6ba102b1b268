"""Reads partitions for one fetch: one call of the service for up to 100 of them, and waits at their ends.

```
which are not quiet? -- none ---------> wait until one is woken
      | some                                     ^        |
      v                                          |        v
read them, 100 at a time -- nothing found -------+     read again
      | records, an error, or the time is over
      v
answer
```
Clients that read the same records share what is read (consumer/shared_reads.py): the gateway is one caller for all.
All fetches together hold a bounded number of bytes, from the call of the service until the client has its answer.

A batch without records, for offsets that compaction has emptied: with it a client's position moves past them.

Kafka's own compaction leaves such batches. The layout is that of penstock_core/records/record_batch.py.
"""

import asyncio
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from crc32c import crc32c

from penstock.consumer.fetch_buffer import FetchAnswer
from penstock.consumer.fetch_call import fetch_answer
from penstock.consumer.shared_reads import Claim, Flight, Part, Place, SharedReads, parts_of
from penstock.consumer.shared_reads import Wanted as SharedWanted
from penstock.errors import error_from_json
from penstock.http.http_message import misunderstood
from penstock.retry import NEVER_MS, RetryPolicy
from penstock.system import monotonic_ms, random_fraction
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.ids import parse_topic_name
from penstock_core.limits import FETCH_BYTES_MAX, KAFKA_FETCHES_BYTES_MAX, REQUEST_PARTITIONS_MAX
from penstock_core.records.record_batch import BytesLike
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Peer
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error
from penstock_kafka.fetch.sessions import PartitionName, Wanted
from penstock_kafka.fetch.tails import NO_COVER, Cover, End, TailKey, Tails, binary_fetch
from penstock_kafka.wire.budget import ByteBudget

_RETRY_MS_MAX = 5_000
_UNKNOWN = -1
_PREFIX = struct.Struct(">qiib")  # base offset, length, partition leader epoch, magic
_CRC = struct.Struct(">I")
_COVERED = struct.Struct(">hiqqqhii")  # from the attributes to the record count
_LENGTH = 49  # of all that follows the length field
_SPAN_MAX = 2**31 - 1  # of the offsets of one batch


class Reading(NamedTuple):
    """The part of an answer about one partition."""

    error: KafkaError
    high_watermark: int
    log_start_offset: int
    records: BytesLike = b""

    @property
    def is_final(self) -> bool:
        """It ends the wait."""
        return self.error is not KafkaError.none or bool(self.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchWish:
    """A fetch of one client. `afterwards` takes what to do when the client has its answer."""

    wanted: Mapping[PartitionName, Wanted]
    bytes_min: int
    bytes_max: int
    until_ms: int
    peer: Peer
    afterwards: list[Callable[[], None]]

    def release(self) -> None:
        """Let go what was read."""
        while self.afterwards:
            self.afterwards.pop()()


class Reader:
    """Reads for all clients."""

    def __init__(self, context: Context, tails: Tails, *, retry: RetryPolicy | None = None) -> None:
        self._context = context
        self._topics = context.service.topics
        self._tails = tails
        self._retry = retry or RetryPolicy()
        self._budget = ByteBudget(KAFKA_FETCHES_BYTES_MAX)
        self._shared = SharedReads()
        self._forgetting: asyncio.TimerHandle | None = None

    async def read(self, wish: FetchWish) -> dict[PartitionName, Reading]:
        """The readings of the partitions that are known. A partition that no call has reached is not among them."""
        while True:
            readings, keys = await self._keys(wish.wanted)
            ends = await self._read_due(wish, keys, readings)
            left_ms = wish.until_ms - monotonic_ms()
            if _is_enough(wish, readings, keys, ends) or left_ms <= 0 or wish.peer.gone.is_set():
                return self._with_quiet(readings, keys, wish.wanted)
            if self._tails.watch(ends):
                await self._tails.wait(list(keys.values()), left_ms / 1_000, wish.peer.gone)
            if monotonic_ms() >= wish.until_ms or wish.peer.gone.is_set():
                return self._with_quiet(readings, keys, wish.wanted)
            wish.release()  # what was read, but is too little to be sent: it is read again

    async def _keys(
        self, wanted: Mapping[PartitionName, Wanted]
    ) -> tuple[dict[PartitionName, Reading], dict[PartitionName, TailKey]]:
        """The partitions by topic id, and errors for those that are not there."""
        topics: dict[Any, tuple[str, str, int] | KafkaError] = {}
        readings: dict[PartitionName, Reading] = {}
        keys: dict[PartitionName, TailKey] = {}
        for name in wanted:
            if name.topic not in topics:
                topics[name.topic] = await self._topic(name)
            found = topics[name.topic]
            if isinstance(found, KafkaError):
                readings[name] = _refused(found)
            elif not 0 <= name.partition < found[2]:
                readings[name] = _refused(KafkaError.unknown_topic_or_partition)
            elif wanted[name].offset < 0:
                readings[name] = _refused(KafkaError.offset_out_of_range)
            else:
                keys[name] = TailKey(found[0], found[1], name.partition)
        return readings, keys

    async def _topic(self, name: PartitionName) -> tuple[str, str, int] | KafkaError:
        try:
            if isinstance(name.topic, str):
                topic_name: str | None = parse_topic_name(name.topic)
            else:
                topic_name = await self._topics.name_of(name.topic)
            if topic_name is None:
                return KafkaError.unknown_topic_id
            topic = await self._topics.topic(topic_name)
        except PenstockError as error:
            return kafka_error(error)
        return topic.name, topic.topic_id, topic.partitions

    async def _read_due(
        self, wish: FetchWish, keys: Mapping[PartitionName, TailKey], readings: dict[PartitionName, Reading]
    ) -> dict[TailKey, End]:
        """Read the partitions that are not quiet, until there is enough. Returns the ends that were reached."""
        due = self._due(wish, keys)
        ends: dict[TailKey, End] = {}
        if not due:
            return ends
        hold = self._budget.open(wish.peer)
        wish.afterwards.append(hold.close)
        left = await hold.take_part(min(wish.bytes_max, FETCH_BYTES_MAX))
        due = self._due(wish, keys)  # many may have waited for room: one has found the end that the others look for
        read = 0
        for start in range(0, len(due), REQUEST_PARTITIONS_MAX):
            if wish.peer.gone.is_set():
                break
            found = await self._call(
                wish, {name: keys[name] for name in due[start : start + REQUEST_PARTITIONS_MAX]}, left
            )
            readings.update(found.readings)
            ends.update(found.ends)
            size = sum(len(each.records) for each in found.readings.values())
            read, left = read + size, left - size
            if left <= 0 or found.is_final:
                break
        hold.resize(read)
        wish.peer.fetched_bytes = read
        return ends

    def _due(self, wish: FetchWish, keys: Mapping[PartitionName, TailKey]) -> list[PartitionName]:
        return [name for name, key in keys.items() if not self._tails.is_quiet(key, wish.wanted[name].offset)]

    async def _call(self, wish: FetchWish, keys: Mapping[PartitionName, TailKey], bytes_max: int) -> "_Found":
        """The readings of what other clients have read or read now, and of the rest by one call of the service.

        A client that waits for more than one byte reads for itself: else it would get the same few records again and
        again, until they are too old to be shared.
        """
        found = _Found({}, {})
        left = dict(keys)
        while left and not found.is_final:
            woken = asyncio.Event()
            claim = Claim({}, range(len(left)), None, NEVER_MS)
            if wish.bytes_min <= 1:
                wanted = [_wanted(key, wish.wanted[name]) for name, key in left.items()]
                claim = self._shared.claim(woken.set, wanted, bytes_max, monotonic_ms(), 0)
            names = [*left]
            for index, kept in claim.kept.items():
                name = names[index]
                self._take(found, name, left.pop(name), (kept.entry, kept.data), wish.wanted[name].offset)
            own = {names[index]: left.pop(names[index]) for index in claim.own}
            if own:
                await self._fetch(found, wish, own, bytes_max, claim.flight)
            elif not claim.kept and not await _woken(woken, claim.busy_until_ms, wish.peer):
                break
        return found

    async def _fetch(
        self,
        found: "_Found",
        wish: FetchWish,
        keys: Mapping[PartitionName, TailKey],
        bytes_max: int,
        flight: Flight | None,
    ) -> None:
        """Add the readings of one call of the service, which `flight` tells to the clients that wait for it."""
        partitions = [
            {
                "topic": key.topic,
                "topic_id": key.topic_id,
                "partition": key.partition,
                "offset": wish.wanted[name].offset,
                "max_bytes": min(max(wish.wanted[name].bytes_max, 1), FETCH_BYTES_MAX),
            }
            for name, key in keys.items()
        ]
        covers = {name: self._tails.cover(key) for name, key in keys.items()}
        body: dict[str, object] = {"partitions": partitions, "max_bytes": bytes_max, "wait_ms": 0}
        if any(each.subscription for each in covers.values()):
            body["arm"] = True
        parts: list[Part] | None = None
        size = 0
        try:
            answer = await self._fetched(body, len(keys))
            parts, size = parts_of(answer), len(answer.body)
        except PenstockError as error:
            found.readings.update(dict.fromkeys(keys, _refused(kafka_error(error))))
            return
        finally:
            if flight is not None:
                self._shared.end(flight, parts, size)
                if self._forgetting is None:
                    self._forget_old()
        self._context.figures.fetched_bytes += size
        for (name, key), part in zip(keys.items(), parts, strict=True):
            self._take(found, name, key, part, wish.wanted[name].offset, covers[name])

    def _forget_old(self) -> None:
        """Let go what is too old to be shared, until nothing is left, be it that no client fetches any more."""
        now_ms = monotonic_ms()
        next_ms = self._shared.forget_old(now_ms)
        self._forgetting = None
        if next_ms < NEVER_MS:
            loop = asyncio.get_running_loop()
            self._forgetting = loop.call_later(max(next_ms - now_ms, 1) / 1_000, self._forget_old)

    async def _fetched(self, body: Mapping[str, object], count: int) -> FetchAnswer:
        request = binary_fetch(body)
        deadline_ms = monotonic_ms() + _RETRY_MS_MAX
        failures = 0
        while True:
            self._context.figures.fetch_calls += 1
            try:
                answer = fetch_answer(request, await self._context.service.try_once(request), count)
                if sum(each.get("length", 0) for each in answer.partitions) != len(answer.body):
                    raise misunderstood(request)
                return answer
            except PenstockError as error:
                failures += 1
                now_ms = monotonic_ms()
                retry_at_ms = self._retry.retry_at_ms(
                    error, failures=failures, now_ms=now_ms, deadline_ms=deadline_ms, chance=random_fraction()
                )
                if retry_at_ms is None:
                    raise
            await asyncio.sleep((retry_at_ms - now_ms) / 1_000)

    def _take(
        self, found: "_Found", name: PartitionName, key: TailKey, part: Part, offset: int, cover: Cover = NO_COVER
    ) -> None:
        """Add the reading of a partition's part of an answer, and its end if it was reached."""
        entry, records = part
        if "error" in entry:
            error = error_from_json(entry["error"])
            if error.code in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID) and isinstance(name.topic, str):
                self._topics.forget(name.topic)
            found.readings[name] = _refused(_fetch_error(name, error))
            return
        next_offset, high_watermark = int(entry["next_offset"]), int(entry["high_watermark"])
        log_start_offset = int(entry["log_start_offset"])
        is_gap = not records and next_offset > offset
        taken: BytesLike = empty_batch(offset, next_offset) if is_gap else records
        found.readings[name] = Reading(KafkaError.none, high_watermark, log_start_offset, taken)
        self._tails.saw(key, high_watermark)
        if next_offset >= high_watermark:
            armed_under = cover if entry.get("armed") and cover.subscription else None
            found.ends[key] = End(next_offset, log_start_offset, armed_under)

    def _with_quiet(
        self,
        readings: dict[PartitionName, Reading],
        keys: Mapping[PartitionName, TailKey],
        wanted: Mapping[PartitionName, Wanted],
    ) -> dict[PartitionName, Reading]:
        """Add what is known of partitions that were not read, because nothing is there to read."""
        for name, key in keys.items():
            offset = wanted[name].offset
            if name not in readings and self._tails.is_quiet(key, offset):
                readings[name] = Reading(KafkaError.none, offset, self._tails.log_start_offset(key))
        return readings


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of one call: the readings, and the ends that were reached."""

    readings: dict[PartitionName, Reading]
    ends: dict[TailKey, End]

    @property
    def is_final(self) -> bool:
        """A reading ends the wait."""
        return any(each.is_final for each in self.readings.values())


def _wanted(key: TailKey, wanted: Wanted) -> SharedWanted:
    place = Place(key.topic_id, key.partition)
    return SharedWanted(place, wanted.offset, bytes_max=min(max(wanted.bytes_max, 1), FETCH_BYTES_MAX))


async def _woken(woken: asyncio.Event, until_ms: int, peer: Peer) -> bool:
    """Wait until a fetch of another client ends, or until a time. False if this client has gone."""
    waiting = [asyncio.ensure_future(each.wait()) for each in (woken, peer.gone)]
    try:
        await asyncio.wait(waiting, timeout=(until_ms - monotonic_ms()) / 1_000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
    return not peer.gone.is_set()


def _is_enough(
    wish: FetchWish,
    readings: Mapping[PartitionName, Reading],
    keys: Mapping[PartitionName, TailKey],
    ends: Mapping[TailKey, End],
) -> bool:
    """The client has the bytes that it waits for, or an error, or there is more than it could be given at once."""
    size = sum(len(each.records) for each in readings.values())
    has_more = any(each.records and name in keys and keys[name] not in ends for name, each in readings.items())
    return size >= wish.bytes_min or has_more or any(each.error is not KafkaError.none for each in readings.values())


def _refused(error: KafkaError) -> Reading:
    return Reading(error, _UNKNOWN, _UNKNOWN)


def _fetch_error(name: PartitionName, error: PenstockError | RequestRefused) -> KafkaError:
    code = kafka_error(error)
    if code is KafkaError.unknown_topic_id and isinstance(name.topic, str):
        return KafkaError.unknown_topic_or_partition  # the client knows no ids: it looks again by name
    return code


def empty_batch(offset: int, next_offset: int) -> bytes:
    """A batch that covers `[offset, next_offset)`, or as much of it as a batch may cover."""
    span = min(next_offset - offset, _SPAN_MAX)
    covered = _COVERED.pack(0, span - 1, -1, -1, -1, -1, -1, 0)
    return _PREFIX.pack(offset, _LENGTH, 0, 2) + _CRC.pack(crc32c(covered)) + covered
