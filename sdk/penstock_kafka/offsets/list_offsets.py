"""ListOffsets: the first and the last offset, and the first one at or after a time."""

import asyncio
from collections.abc import Sequence

from penstock.api.calls import list_offsets
from penstock.model import OffsetAndTimestamp
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, RequestRefused, kafka_error
from penstock_kafka.offsets.newest_time import newest_time

_LATEST, _EARLIEST, _NEWEST_TIME, _EARLIEST_LOCAL, _LATEST_TIERED = -1, -2, -3, -4, -5
_WORDS: dict[int, int | str] = {_LATEST: "latest", _EARLIEST: "earliest", _EARLIEST_LOCAL: "earliest"}
_UNKNOWN = -1
_LEADER_EPOCH = 0
_CALLS_AT_ONCE = 16


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
