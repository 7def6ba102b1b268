"""ShareGroupDescribe: a share group and those of its members that this gateway serves."""

from penstock.api.share_group_calls import share_group_path
from penstock.http.http_message import json_request
from penstock.http.steps import Calls
from penstock.system import monotonic_ms
from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.dispatch.in_parts import in_parts
from penstock_kafka.errors import KafkaError, RequestRefused, error_message
from penstock_kafka.groups.admin.list_groups import state_of
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.topic_uuids import uuid_of_id
from penstock_kafka.service.service import Service
from penstock_kafka.share.members import ShareMember, ShareMembers

_ASSIGNOR = "simple"


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
