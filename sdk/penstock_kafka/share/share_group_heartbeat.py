"""ShareGroupHeartbeat: a member joins, stays or leaves, and is told all partitions of its topics.

| member epoch | the client | the gateway                                                        |
|--------------|------------|--------------------------------------------------------------------|
| 0            | joins      | creates the group or adds topics if need be; answers the assignment |
| above 0      | stays      | answers the assignment if it has changed, or may not have arrived   |
| -1           | leaves     | forgets it: its records stay locked until its share session ends    |

ShareGroupDescribe: a share group and those of its members that this gateway serves.
"""

from penstock.api.share_group_calls import share_group_path
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.system import monotonic_ms
from penstock_core.errors import ErrorCode, PenstockError
from penstock_core.limits import CLIENT_ID_LENGTH_MAX, KAFKA_SHARE_HEARTBEAT_MS
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.dispatch.entries import in_parts
from penstock_kafka.errors import KafkaError, RequestRefused, error_message
from penstock_kafka.groups.admin.describe_groups import state_of
from penstock_kafka.groups.group_errors import group_error, uuid_of_id
from penstock_kafka.service.service import Service, TopicDirectory
from penstock_kafka.share.members import Assignment, ShareMember, ShareMembers, checked_topics
from penstock_kafka.share.share_groups import ShareGroups

_JOINS, _LEAVES = 0, -1
_ASSIGNOR = "simple"


class ShareGroupHeartbeat:
    """Answers ShareGroupHeartbeat."""

    def __init__(self, members: ShareMembers, groups: ShareGroups, topics: TopicDirectory) -> None:
        self._members = members
        self._groups = groups
        self._topics = topics

    async def answer(self, call: Call) -> Answer:
        """The member's epoch, and its assignment where it has changed."""
        request = call.request
        try:
            if request.member_epoch < _JOINS:
                return self._leave(call)
            return await self._stay(call)
        except (PenstockError, RequestRefused) as error:
            return {
                "error_code": group_error(error),
                "error_message": error_message(error),
                "member_id": request.member_id,
                "member_epoch": max(0, request.member_epoch),
            }

    async def _stay(self, call: Call) -> Answer:
        request, now_ms = call.request, monotonic_ms()
        if len(request.rack_id or "") > CLIENT_ID_LENGTH_MAX:
            raise RequestRefused(
                KafkaError.invalid_request, f"a rack id of more than {CLIENT_ID_LENGTH_MAX} characters"
            )
        group, member_id = str(request.group_id), str(request.member_id)
        subscribed = request.subscribed_topic_names
        if request.member_epoch == _JOINS:
            if subscribed is None:
                raise RequestRefused(KafkaError.invalid_request, "a member joins with a subscription")
            topics = checked_topics(tuple(map(str, subscribed)))
            member = self._members.join(group, member_id, now_ms)
            member.client_id = call.client_id[:CLIENT_ID_LENGTH_MAX]
        else:
            member = self._members.find(group, member_id, request.member_epoch, now_ms)
            topics = member.topics if subscribed is None else checked_topics(tuple(map(str, subscribed)))
        member.seen_ms, member.topics = now_ms, topics
        member.rack_id = request.rack_id or member.rack_id
        try:
            assignment = await self._assignment(topics)
            await self._groups.ensure(group, {name: topic_id for topic_id, (name, _) in assignment.items()})
        except (PenstockError, RequestRefused):
            if request.member_epoch == _JOINS:
                self._members.forget(group, member_id)
            raise
        is_new = member.assign(assignment)
        is_told = is_new or subscribed is not None or request.member_epoch != member.epoch
        return _told(member, assignment if is_told else None)

    def _leave(self, call: Call) -> Answer:
        request = call.request
        self._members.forget(str(request.group_id), str(request.member_id))
        return {"error_code": KafkaError.none, "member_id": request.member_id, "member_epoch": _LEAVES}

    async def _assignment(self, topics: tuple[str, ...]) -> Assignment:
        """All partitions of the topics that are there."""
        found: Assignment = {}
        for name in topics:
            try:
                topic = await self._topics.topic(name)
            except PenstockError as error:
                if error.code not in (ErrorCode.UNKNOWN_TOPIC, ErrorCode.INVALID_NAME):
                    raise
                continue
            found[topic.topic_id] = (topic.name, topic.partitions)
        return found


def _told(member: ShareMember, assignment: Assignment | None) -> Answer:
    return {
        "error_code": KafkaError.none,
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "heartbeat_interval": KAFKA_SHARE_HEARTBEAT_MS,
        "assignment": None
        if assignment is None
        else {
            "topic_partitions": [
                {"topic_id": uuid_of_id(topic_id), "partitions": [*range(count)]}
                for topic_id, (_, count) in assignment.items()
            ]
        },
    }


class ShareGroupDescribe:
    """Answers ShareGroupDescribe."""

    def __init__(self, service: Service, members: ShareMembers) -> None:
        self._service = service
        self._members = members

    async def answer(self, call: Call) -> Answer:
        """Each group, or its error."""
        names = [str(each) for each in call.request.group_ids]
        return {"groups": await in_parts(names, self._group)}

    async def _group(self, group: str) -> Answer:
        try:
            await self._service.call(_exists(group))
        except (PenstockError, RequestRefused) as error:
            return {"error_code": group_error(error), "error_message": error_message(error), "group_id": group}
        members = self._members.of(group, monotonic_ms())
        epoch = max((each.epoch for each in members), default=0)
        return {
            "error_code": KafkaError.none,
            "group_id": group,
            "group_state": state_of(len(members)),
            "group_epoch": epoch,
            "assignment_epoch": epoch,
            "assignor_name": _ASSIGNOR,
            "members": [_member(each) for each in members],
        }


def _exists(group: str) -> Calls[None]:
    yield json_request("GET", share_group_path(group), query={"limit": "1"})


def _member(member: ShareMember) -> Answer:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": "",
        "subscribed_topic_names": member.topics,
        "assignment": {
            "topic_partitions": [
                {"topic_id": uuid_of_id(topic_id), "topic_name": name, "partitions": [*range(count)]}
                for topic_id, (name, count) in member.assignment.items()
            ]
        },
    }
