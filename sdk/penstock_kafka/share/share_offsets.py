"""DescribeShareGroupOffsets and AlterShareGroupOffsets: where a share group is, and a reset of it.

The start offset is the first one that is not finished, as in Kafka. A reset to an offset makes all records from there
on unfinished, and takes all locks away.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from penstock.api.share_group_calls import ShareResetTarget, describe_share_group, reset_share_group
from penstock.model.share import ShareGroupPartition
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.context import Context
from penstock_kafka.dispatch.api import Answer, Call, Request
from penstock_kafka.dispatch.entries import in_parts
from penstock_kafka.errors import KafkaError, RequestRefused, error_message, kafka_error
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.service.service import uuid_of
from penstock_kafka.share.members import ShareMembers
from penstock_kafka.share.share_groups import ShareGroups

_UNKNOWN = -1
_EARLIEST, _LATEST = -2, -1  # as ListOffsets names them


class DescribeShareGroupOffsets:
    """Answers DescribeShareGroupOffsets."""

    def __init__(self, context: Context) -> None:
        self._service = context.service

    async def answer(self, call: Call) -> Answer:
        """The start offsets of each group, of the partitions asked for, or of all."""
        return {"groups": await in_parts(call.request.groups, self._group)}

    async def _group(self, asked: Request) -> Answer:
        group = str(asked.group_id)
        try:
            found = await self._service.call(describe_share_group(group))
            known = {(each.topic, each.partition): each for each in found.partitions}
            if asked.topics is None:
                wanted: Iterable[tuple[str, int]] = known
            else:
                wanted = [(str(topic.topic_name), number) for topic in asked.topics for number in topic.partitions]
            return {"error_code": KafkaError.none, "group_id": group, "topics": await self._topics(wanted, known)}
        except (PenstockError, RequestRefused) as error:
            return {"error_code": group_error(error), "error_message": error_message(error), "group_id": group}

    async def _topics(
        self, wanted: Iterable[tuple[str, int]], known: Mapping[tuple[str, int], ShareGroupPartition]
    ) -> list[Answer]:
        partitions: dict[str, list[Answer]] = {}
        for name, number in wanted:
            found = known.get((name, number))
            partitions.setdefault(name, []).append(
                {
                    "partition_index": number,
                    "start_offset": _UNKNOWN if found is None else found.start_offset,
                    "leader_epoch": 0,
                    "lag": _UNKNOWN if found is None else found.lag,
                    "error_code": KafkaError.none,
                }
            )
        answers: list[Answer] = []
        for name, each in partitions.items():
            try:
                topic_id = uuid_of(await self._service.topics.topic(name))
            except PenstockError:
                topic_id = None
            answers.append({"topic_name": name, "topic_id": topic_id, "partitions": each})
        return answers


class AlterShareGroupOffsets:
    """Answers AlterShareGroupOffsets. A group with members at this gateway is refused, as in Kafka."""

    def __init__(self, context: Context, members: ShareMembers, groups: ShareGroups) -> None:
        self._service = context.service
        self._members = members
        self._groups = groups

    async def answer(self, call: Call) -> Answer:
        """The outcome for each partition. A topic that the group does not read yet is added."""
        request = call.request
        group = str(request.group_id)
        try:
            if self._members.of(group, monotonic_ms()):
                raise RequestRefused(KafkaError.non_empty_group, f"share group {group} has members: stop them first")
            self._groups.forget(group)
            await self._groups.ensure(group, await self._ids([str(topic.topic_name) for topic in request.topics]))
        except (PenstockError, RequestRefused) as error:
            return {"error_code": group_error(error), "error_message": error_message(error), "responses": []}
        return {
            "error_code": KafkaError.none,
            "responses": [
                {
                    "topic_name": topic.topic_name,
                    "partitions": await in_parts(topic.partitions, partial(self._reset, group, str(topic.topic_name))),
                }
                for topic in request.topics
            ],
        }

    async def _ids(self, names: Iterable[str]) -> dict[str, str]:
        """The topics that exist, with their ids. The resets of the others are refused."""
        found: dict[str, str] = {}
        for name in names:
            try:
                found[name] = (await self._service.topics.topic(name)).topic_id
            except PenstockError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC:
                    raise
        return found

    async def _reset(self, group: str, topic: str, wanted: Request) -> Answer:
        try:
            target = _target(wanted.start_offset)
            await self._service.call(reset_share_group(group, topic, target, [wanted.partition_index], dry_run=False))
        except PenstockError as error:
            return {
                "partition_index": wanted.partition_index,
                "error_code": kafka_error(error),
                "error_message": error_message(error),
            }
        return {"partition_index": wanted.partition_index, "error_code": KafkaError.none}


def _target(offset: int) -> ShareResetTarget:
    if offset in (_EARLIEST, _LATEST):
        return ShareResetTarget(to="earliest" if offset == _EARLIEST else "latest")
    return ShareResetTarget(offset=offset)
