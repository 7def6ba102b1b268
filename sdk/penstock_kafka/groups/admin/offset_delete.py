"""OffsetDelete: an operator deletes a group's offsets in topics that none of its members reads."""

from collections.abc import Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.errors import KafkaError
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.members.sessions import Sessions

_TOPICS_MAX = 100


class OffsetDelete:
    """Answers OffsetDelete."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The outcome of each partition. A group that does not exist is refused as a whole."""
        request = call.request
        if len(request.topics) > _TOPICS_MAX:
            return {"error_code": KafkaError.invalid_request, "topics": []}
        topics: list[Answer] = []
        for each in request.topics:
            numbers = [int(partition.partition_index) for partition in each.partitions]
            try:
                code = await self._delete(str(request.group_id), str(each.name), numbers)
            except PenstockError as error:
                return {"error_code": group_error(error), "topics": []}
            topics.append(_told(each, code))
        return {"error_code": KafkaError.none, "topics": topics}

    async def _delete(self, group: str, topic: str, numbers: Sequence[int]) -> KafkaError:
        """The code of the topic's partitions. Raises the errors that refuse the group."""
        try:
            await self._sessions.service.delete_offsets(group, topic, numbers)
        except PenstockError as error:
            if error.code is ErrorCode.GROUP_NOT_EMPTY:
                return KafkaError.group_subscribed_to_topic
            is_about_topic = str(error.facts.get("resource", "")).startswith("topic:")
            if error.code in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_PARTITION) or is_about_topic:
                return group_error(error)
            raise
        return KafkaError.none


def _told(topic: Request, code: KafkaError) -> Answer:
    partitions = [{"partition_index": each.partition_index, "error_code": code} for each in topic.partitions]
    return {"name": topic.name, "partitions": partitions}
