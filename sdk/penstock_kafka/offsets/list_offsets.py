"""ListOffsets: the first and the last offset, and the first one at or after a time.

The record with the greatest timestamp, which the service does not index: a search by time finds it.

The records with times from `low` on shrink with each step. A partition whose last batch has the greatest time, as most
have, takes three calls.

OffsetForLeaderEpoch: a partition has one leader and one epoch for ever, so no record is ever cut off.
"""

import asyncio
from collections.abc import Sequence

from penstock.api.calls import list_offsets
from penstock.model import OffsetAndTimestamp
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error
from penstock_kafka.service.service import Service

_LATEST, _EARLIEST, _NEWEST_TIME, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_WORDS: dict[int, int | str] = {_LATEST: "latest", _EARLIEST: "earliest", _EARLIEST_LOCAL: "earliest"}
_UNKNOWN = -1
_LEADER_EPOCH = 0
_CALLS_AT_ONCE = 16
_STEPS_MAX = 64  # halves of any range of times
_LATEST_MS = 2**53


class ListOffsets:
    """Looks offsets up: one call of the service per topic and time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._gate = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def answer(self, call: Call) -> Answer:
        """The offsets, by partition."""
        topics = await asyncio.gather(*(self._topic(topic.name, topic.partitions) for topic in call.request.topics))
        return {"topics": topics}

    async def _topic(self, name: str, wanted: Sequence[Request]) -> Answer:
        by_time: dict[int, list[int]] = {}
        for each in wanted:
            by_time.setdefault(each.timestamp, []).append(each.partition_index)
        found = await asyncio.gather(*(self._at(name, time, numbers) for time, numbers in by_time.items()))
        return {"name": name, "partitions": [each for answers in found for each in answers]}

    async def _at(self, name: str, time: int, numbers: Sequence[int]) -> list[Answer]:
        try:
            async with self._gate:
                found = await self._offsets(name, time, numbers)
        except (PenstockError, RequestRefused) as error:
            if isinstance(error, PenstockError) and error.code is ErrorCode.UNKNOWN_TOPIC:
                self._context.service.topics.forget(name)
            return [_refused(number, kafka_error(error)) for number in numbers]
        return [
            _found(number, found[number])
            if number in found
            else _refused(number, KafkaError.unknown_topic_or_partition)
            for number in numbers
        ]

    async def _offsets(self, name: str, time: int, numbers: Sequence[int]) -> dict[int, OffsetAndTimestamp | None]:
        service = self._context.service
        if time == _NEWEST_TIME:
            return {number: await newest_time(service, name, number) for number in numbers if number >= 0}
        if time == _LATEST_TIERED:
            return dict.fromkeys(numbers, OffsetAndTimestamp(_UNKNOWN, _UNKNOWN))  # clients know no tiers here
        if time < _LATEST_TIERED:
            raise RequestRefused(KafkaError.invalid_request, f"timestamp {time} has no meaning")
        only = numbers[0] if len(numbers) == 1 and numbers[0] >= 0 else None
        return await service.call(list_offsets(name, _WORDS.get(time, time), only))


def _found(number: int, at: OffsetAndTimestamp | None) -> Answer:
    offset, timestamp = (_UNKNOWN, _UNKNOWN) if at is None else (at.offset, at.timestamp_ms)
    return {
        "partition_index": number,
        "error_code": KafkaError.none,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": _LEADER_EPOCH,
    }


def _refused(number: int, code: KafkaError) -> Answer:
    return {"partition_index": number, "error_code": code, "timestamp": _UNKNOWN, "offset": _UNKNOWN}


async def newest_time(service: Service, topic: str, partition: int) -> OffsetAndTimestamp | None:
    """The first record with the greatest timestamp; None if the partition is empty."""
    best = await _first(service, topic, partition, 0)
    if best is None:
        return None
    high = _LATEST_MS  # no record has this time
    step = 1
    for _ in range(_STEPS_MAX):
        low = best.timestamp_ms + 1
        if best.timestamp_ms < 0 or low >= high:
            return best
        probe = min(low + step - 1, (low + high) // 2)
        found = await _first(service, topic, partition, probe)
        if found is None:
            high, step = probe, max(step // 4, 1)
        else:
            best, step = found, step * 4
    return best


async def _first(service: Service, topic: str, partition: int, time_ms: int) -> OffsetAndTimestamp | None:
    found = await service.call(list_offsets(topic, time_ms, partition))
    return found.get(partition)


class OffsetForLeaderEpoch:
    """Answers the end of the partition as the end of each epoch."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def answer(self, call: Call) -> Answer:
        """The end offsets, by partition."""
        return {"topics": [await self._topic(each.topic, each.partitions) for each in call.request.topics]}

    async def _topic(self, name: str, wanted: Sequence[Request]) -> Answer:
        code = KafkaError.unknown_topic_or_partition
        try:
            ends = await self._service.call(list_offsets(name, "latest"))
        except PenstockError as error:
            ends, code = {}, kafka_error(error)
        partitions: list[Answer] = []
        for each in wanted:
            end = ends.get(each.partition)
            partitions.append(
                {"partition": each.partition, "error_code": code, "leader_epoch": _UNKNOWN, "end_offset": _UNKNOWN}
                if end is None
                else {
                    "partition": each.partition,
                    "error_code": KafkaError.none,
                    "leader_epoch": _LEADER_EPOCH,
                    "end_offset": end.offset,
                }
            )
        return {"topic": name, "partitions": partitions}
