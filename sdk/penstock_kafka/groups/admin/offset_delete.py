"""OffsetDelete: an operator deletes a group's offsets in topics that none of its members reads."""

from collections.abc import Mapping, Sequence

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.members.sessions import Sessions


class OffsetDelete:
    """Answers OffsetDelete."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The outcome of each partition. A group that does not exist is refused as a whole."""
        request = call.request
        topics: list[Answer] = []
        for each in request.topics:
            numbers = [int(partition.partition_index) for partition in each.partitions]
            try:
                codes = await self._delete(str(request.group_id), str(each.name), numbers)
            except PenstockError as error:
                return {"error_code": group_error(error), "topics": []}
            topics.append(_told(str(each.name), codes))
        return {"error_code": KafkaError.none, "topics": topics}

    async def _delete(self, group: str, topic: str, numbers: Sequence[int]) -> dict[int, KafkaError]:
        """The code of each partition. Raises the errors that refuse the group."""
        try:
            errors = await self._sessions.service.delete_offsets(group, topic, numbers)
        except PenstockError as error:
            if not _is_about_topic(error):
                raise
            return dict.fromkeys(numbers, _code(error))
        return dict.fromkeys(numbers, KafkaError.none) | {each: _code(error) for each, error in errors.items()}


def _is_about_topic(error: PenstockError) -> bool:
    about = str(error.facts.get("resource", ""))
    return error.code in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.GROUP_NOT_EMPTY) or about.startswith("topic:")


def _code(error: PenstockError) -> KafkaError:
    return KafkaError.group_subscribed_to_topic if error.code is ErrorCode.GROUP_NOT_EMPTY else group_error(error)


def _told(topic: str, codes: Mapping[int, KafkaError]) -> Answer:
    partitions = [{"partition_index": number, "error_code": code} for number, code in codes.items()]
    return {"name": topic, "partitions": partitions}
