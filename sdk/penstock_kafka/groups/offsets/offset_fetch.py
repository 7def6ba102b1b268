"""OffsetFetch: the offsets that groups have committed.

Every committed offset is stable: a transaction commits its offsets at its end, together with its records.

OffsetDelete: an operator deletes a group's offsets in topics that none of its members reads.
"""

from collections.abc import Mapping, Sequence

from penstock.model import CommittedOffset, TopicPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.dispatch.entries import in_parts
from penstock_kafka.errors import KafkaError
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.members.sessions import Sessions

_SEVERAL_VERSION = 8  # from here on a request names several groups
_TOPICS_ASKED_MAX = 4  # for more, one list of all is cheaper
_NOT_COMMITTED = -1
_NO_EPOCH = -1


class OffsetFetch:
    """Answers OffsetFetch."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The offsets of each group, -1 where there is none."""
        request = call.request
        if call.version < _SEVERAL_VERSION:
            return await self._group(str(request.group_id), request.topics)
        return {"groups": await in_parts(request.groups, self._one_of_several)}

    async def _one_of_several(self, asked: Request) -> Answer:
        return {**await self._group(str(asked.group_id), asked.topics), "group_id": asked.group_id}

    async def _group(self, group: str, topics: Sequence[Request] | None) -> Answer:
        """The offsets of these topics, or all (None)."""
        names = None if topics is None else [str(each.name) for each in topics]
        asked = names if names is not None and len(names) <= _TOPICS_ASKED_MAX else None
        try:
            found = await self._sessions.service.committed(group, asked)
        except PenstockError as error:
            return _refused(topics or (), group_error(error))
        if topics is None:
            wanted: dict[str, list[int]] = {}
            for topic, number in found:
                wanted.setdefault(topic, []).append(number)
        else:
            wanted = {str(each.name): [int(number) for number in each.partition_indexes] for each in topics}
        return {
            "error_code": KafkaError.none,
            "topics": [
                {"name": name, "partitions": [_told(found, TopicPartition(name, number)) for number in numbers]}
                for name, numbers in wanted.items()
            ],
        }


def _told(found: Mapping[TopicPartition, CommittedOffset], partition: TopicPartition) -> Answer:
    committed = found.get(partition)
    return {
        "partition_index": partition.partition,
        "committed_offset": _NOT_COMMITTED if committed is None else committed.offset,
        "committed_leader_epoch": _NO_EPOCH
        if committed is None or committed.leader_epoch is None
        else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": KafkaError.none,
    }


def _refused(topics: Sequence[Request], code: KafkaError) -> Answer:
    """The code for the group and, for versions that have no such field, for each partition."""
    return {
        "error_code": code,
        "topics": [
            {
                "name": each.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": _NOT_COMMITTED,
                        "committed_leader_epoch": _NO_EPOCH,
                        "metadata": "",
                        "error_code": code,
                    }
                    for number in each.partition_indexes
                ],
            }
            for each in topics
        ],
    }


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
            topics.append(_deleted(str(each.name), codes))
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


def _deleted(topic: str, codes: Mapping[int, KafkaError]) -> Answer:
    partitions = [{"partition_index": number, "error_code": code} for number, code in codes.items()]
    return {"name": topic, "partitions": partitions}
