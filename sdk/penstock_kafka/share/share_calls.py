"""Calls of the service for share groups: acquire with acknowledgements, and acknowledge.

An acquire's answer has the batches as they are stored, for each lock by itself. Kafka's clients want the batches of a
partition in one piece, each once, in order. So batches that several locks share are joined here.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock.api.share_group_calls import share_group_path
from penstock.http.http_message import (
    BATCHES_TYPE,
    JSON_TYPE,
    HttpRequest,
    Response,
    framed_answer,
    json_document,
    misunderstood,
)
from penstock.model import TopicPartition
from penstock.retry import RetryPolicy
from penstock.share.acknowledgements import Acknowledgement, LockKey
from penstock.system import monotonic_ms, new_nonce, random_fraction
from penstock_core.errors import PenstockError
from penstock_core.limits import SHARE_ACKNOWLEDGEMENTS_MAX, SHARE_NONCE_LENGTH_MAX
from penstock_core.records.record_batch import BytesLike, walk
from penstock_kafka.figures import Figures
from penstock_kafka.service.service import Service

Result = TypeVar("Result")

_RETRY_MS_MAX = 5_000  # the service tells repeats of an acquire for 10 seconds


class Acquired(NamedTuple):
    """Records `[start, end)` under one lock, and how often they were handed out."""

    start: int
    end: int
    deliveries: int


@dataclass(slots=True, kw_only=True)
class AcquiredPartition:
    """The batches of one partition, and which of their records the client has got."""

    topic_id: str
    batches: dict[int, BytesLike]  # by base offset
    acquired: list[Acquired]

    def records(self) -> BytesLike:
        """The batches in order."""
        if len(self.batches) == 1:
            [only] = self.batches.values()
            return only
        return b"".join(bytes(self.batches[base]) for base in sorted(self.batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquiredLock:
    """A lock of the answer. `missing` are offsets that no batch of the answer covers: they go back."""

    key: LockKey
    offsets: tuple[int, ...]
    missing: tuple[int, ...]
    ends_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireAnswer:
    """The answer of an acquire: its document, the locks, and the records by partition."""

    document: Mapping[str, Any]
    locks: Sequence[AcquiredLock] = ()
    partitions: Mapping[TopicPartition, AcquiredPartition]
    size: int

    @property
    def lock_ms(self) -> int:
        """The time that the group locks records for."""
        return int(self.document["lock_ms"])


class ShareCalls:
    """The calls of one gateway."""

    def __init__(self, service: Service, figures: Figures) -> None:
        self._service = service
        self._figures = figures
        self._retry = RetryPolicy()

    async def acknowledge(self, group: str, entries: Sequence[Acknowledgement]) -> list[Mapping[str, Any]]:
        """The results, in order. Raises PenstockError: then some of the entries may have been applied."""
        found: list[Mapping[str, Any]] = []
        for start in range(0, len(entries), SHARE_ACKNOWLEDGEMENTS_MAX):
            chunk = [each.to_json() for each in entries[start : start + SHARE_ACKNOWLEDGEMENTS_MAX]]
            request = _request(group, "acknowledge", {"acknowledge": chunk})
            found += (await self._tried(request, json_document))["acknowledged"]
        return found

    async def acquire(self, group: str, body: Mapping[str, Any]) -> AcquireAnswer:
        """One acquire under one nonce. Raises PenstockError."""
        nonce = new_nonce()[:SHARE_NONCE_LENGTH_MAX]
        body = {**body, "consumer_id": "kafka", "nonce": nonce}
        again = _request(group, "acquire", {**body, "repeat": True})  # the service looks for its locks first
        answer = await self._tried(_request(group, "acquire", body), acquire_answer, again)
        self._figures.fetched_bytes += answer.size
        return answer

    async def _tried(
        self, request: HttpRequest, read: Callable[[HttpRequest, Response], Result], again: HttpRequest | None = None
    ) -> Result:
        """The answer of the service, after some tries. A Kafka client waits for it, and asks again by itself.

        `again` is the request of the later tries, if it differs.
        """
        deadline_ms = monotonic_ms() + _RETRY_MS_MAX
        failures = 0
        while True:
            self._figures.fetch_calls += 1
            try:
                return read(request, await self._service.try_once(request))
            except PenstockError as error:
                failures += 1
                request = again or request
                now_ms = monotonic_ms()
                retry_at_ms = self._retry.retry_at_ms(
                    error, failures=failures, now_ms=now_ms, deadline_ms=deadline_ms, chance=random_fraction()
                )
                if retry_at_ms is None:
                    raise
            await asyncio.sleep((retry_at_ms - now_ms) / 1_000)


def _request(group: str, verb: str, body: Mapping[str, Any]) -> HttpRequest:
    return HttpRequest(
        method="POST",
        path=f"{share_group_path(group)}/{verb}",
        headers={"Content-Type": JSON_TYPE, "Accept": BATCHES_TYPE if verb == "acquire" else JSON_TYPE},
        body=json.dumps(body, separators=(",", ":")).encode(),
        is_repeatable=True,
    )


def acquire_answer(request: HttpRequest, response: Response) -> AcquireAnswer:
    """The answer in a frame. The times of its locks count from now. Raises PenstockError."""
    header, data = framed_answer(request, response)
    now_ms = monotonic_ms()
    locks: list[AcquiredLock] = []
    partitions: dict[TopicPartition, AcquiredPartition] = {}
    at = 0
    for each in header["partitions"]:
        length = int(each.get("length", 0))
        if "error" not in each:
            place = TopicPartition(each["topic"], each["partition"])
            partition = partitions.setdefault(
                place, AcquiredPartition(topic_id=each["topic_id"], batches={}, acquired=[])
            )
            left_ms = each.get("until_ms_left")
            ends_ms = now_ms + int(header["lock_ms"] if left_ms is None else left_ms)
            locks.append(_lock(each, data[at : at + length], partition, ends_ms))
        at += length
    if at != len(data):
        raise misunderstood(request)
    return AcquireAnswer(document=header, locks=locks, partitions=partitions, size=len(data))


def _lock(entry: Mapping[str, Any], data: memoryview, partition: AcquiredPartition, ends_ms: int) -> AcquiredLock:
    """The lock. Its batches, and its ranges that batches cover, go to the partition."""
    spans: list[tuple[int, int]] = []
    for position, batch in walk(data):
        partition.batches.setdefault(batch.base_offset, data[position : position + batch.length])
        spans.append((batch.base_offset, batch.next_offset))
    offsets: list[int] = []
    missing: list[int] = []
    for start, end in entry["ranges"]:
        at = start
        for low, high in _covered(start, end, spans):
            missing += range(at, low)
            offsets += range(low, high)
            partition.acquired.append(Acquired(low, high, entry["delivery_count"]))
            at = high
        missing += range(at, end)
    return AcquiredLock(
        key=LockKey(entry["topic"], entry["partition"], entry["lock_id"]),
        offsets=tuple(offsets),
        missing=tuple(missing),
        ends_ms=ends_ms,
    )


def _covered(start: int, end: int, spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """The parts of `[start, end)` that the spans cover. Spans rise; neighbours are joined."""
    open_start, open_end = start, start
    for first, next_offset in spans:
        low, high = max(first, start), min(next_offset, end)
        if low >= high:
            continue
        if low != open_end:
            if open_start < open_end:
                yield open_start, open_end
            open_start = low
        open_end = high
    if open_start < open_end:
        yield open_start, open_end
