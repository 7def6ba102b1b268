"""OffsetForLeaderEpoch: a partition has one leader and one epoch for ever, so no record is ever cut off."""

from collections.abc import Sequence

from penstock.api.calls import list_offsets
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError, kafka_error
from penstock_kafka.service.service import Service

_LEADER_EPOCH = 0
_UNKNOWN = -1


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
