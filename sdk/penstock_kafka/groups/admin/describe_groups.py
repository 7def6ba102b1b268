"""DescribeGroups and ConsumerGroupDescribe: one group, in the words of the classic and of the newer protocol.

Each group can be described by both. Java's tools ask for the newer one first, and older tools for the classic one.

ListGroups and DeleteGroups: the groups of the stack, from whatever client they come, and its share groups.

In the service a group and a share group may have the same name. Then a delete takes the group first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.api.share_group_calls import delete_share_group, list_share_groups
from penstock.model import TopicPartition
from penstock.model.groups import Group, GroupDescription, GroupMember, GroupPartition
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.dispatch.entries import in_parts
from penstock_kafka.errors import KafkaError, RequestRefused, error_message
from penstock_kafka.groups.classic.consumer_protocol import write_assignment, write_subscription
from penstock_kafka.groups.classic.join_group import PROTOCOL_TYPE
from penstock_kafka.groups.group_errors import group_error, uuid_of_id
from penstock_kafka.groups.led.led_group import LedGroup, Phase, metadata_of
from penstock_kafka.groups.led.led_groups import LedGroups
from penstock_kafka.groups.members.member import kafka_id
from penstock_kafka.groups.members.sessions import Sessions
from penstock_kafka.service.service import Service

_NOT_FOUND_VERSION = 6  # from here on a group that does not exist is an error
_EPOCH_BITS = 0x7FFFFFFF  # the service's epochs have more bits than Kafka's
_CONSUMER = 1  # member type of the newer protocol
_CLASSIC_ASSIGNORS = {"round_robin": "roundrobin"}
_SERVER_ASSIGNORS = {"sticky": "uniform"}
_STATES = {
    Phase.EMPTY: "Empty",
    Phase.JOINING: "PreparingRebalance",
    Phase.SYNCING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}
GROUP_TYPE = "Consumer"
CLASSIC_TYPE = "Classic"
SHARE_TYPE = "Share"
_SHARE_PROTOCOL = "share"
_DENIED = (ErrorCode.ACCESS_DENIED, ErrorCode.NOT_AUTHORIZED)


class DescribeGroups:
    """Answers DescribeGroups."""

    def __init__(self, sessions: Sessions, led: LedGroups) -> None:
        self._sessions = sessions
        self._led = led

    async def answer(self, call: Call) -> Answer:
        """Each group with its members, their topics and their partitions."""
        names = [str(each) for each in call.request.groups]
        return {"groups": await in_parts(names, lambda name: self._group(name, call.version))}

    async def _group(self, group: str, version: int) -> Answer:
        try:
            found = await self._sessions.service.describe(group)
            if found.group.protocol_type != PROTOCOL_TYPE:
                return _led(group, await self._led.describe(group))
        except (PenstockError, RequestRefused) as error:
            if (
                isinstance(error, PenstockError)
                and error.code is ErrorCode.UNKNOWN_GROUP
                and version < _NOT_FOUND_VERSION
            ):
                return _refused(group, KafkaError.none, "") | {"group_state": "Dead"}
            return _refused(group, group_error(error), error_message(error))
        owned = _owned(found.partitions)
        assignor = str(found.group.config.get("assignor", ""))
        return {
            "error_code": KafkaError.none,
            "group_id": group,
            "group_state": state_of(len(found.members)),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_data": _CLASSIC_ASSIGNORS.get(assignor, assignor),
            "members": [
                {
                    "member_id": kafka_id(each.member_id),
                    "group_instance_id": each.instance_id,
                    "client_id": each.client_id,
                    "client_host": "",
                    "member_metadata": write_subscription([*each.topics, *each.patterns]),
                    "member_assignment": write_assignment(
                        TopicPartition(held.topic, held.partition) for held in owned.get(each.member_id, ())
                    ),
                }
                for each in found.members
            ],
        }


class ConsumerGroupDescribe:
    """Answers ConsumerGroupDescribe."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """Each group with its members, what they have, and what the service's target gives them."""
        names = [str(each) for each in call.request.group_ids]
        return {"groups": await in_parts(names, self._group)}

    async def _group(self, group: str) -> Answer:
        try:
            found = await self._sessions.service.describe(group)
        except PenstockError as error:
            return _refused(group, group_error(error), error_message(error))
        if found.group.protocol_type != PROTOCOL_TYPE:
            return _refused(group, KafkaError.group_id_not_found, f"group {group} is of the classic protocol")
        epoch = found.group.epoch & _EPOCH_BITS
        assignor = str(found.group.config.get("assignor", ""))
        return {
            "error_code": KafkaError.none,
            "group_id": group,
            "group_state": state_of(len(found.members)),
            "group_epoch": epoch,
            "assignment_epoch": epoch,
            "assignor_name": _SERVER_ASSIGNORS.get(assignor, assignor),
            "members": [_member(found, each) for each in found.members],
        }


def _led(name: str, group: LedGroup) -> Answer:
    return {
        "error_code": KafkaError.none,
        "group_id": name,
        "group_state": _STATES[group.phase],
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": None,
                "client_id": each.client_id,
                "client_host": "",
                "member_metadata": metadata_of(each, group.protocol),
                "member_assignment": each.assignment,
            }
            for each in group.members.values()
        ],
    }


def _member(found: GroupDescription, member: GroupMember) -> Answer:
    owned = [each for each in found.partitions if each.owner == member.member_id]
    target = [each for each in found.partitions if each.assigned_to == member.member_id]
    return {
        "member_id": kafka_id(member.member_id),
        "instance_id": member.instance_id,
        "rack_id": None,
        "member_epoch": member.epoch & _EPOCH_BITS,
        "client_id": member.client_id,
        "client_host": "",
        "subscribed_topic_names": [*member.topics],
        "subscribed_topic_regex": "|".join(member.patterns) or None,
        "assignment": {"topic_partitions": _by_topic(owned)},
        "target_assignment": {"topic_partitions": _by_topic(target)},
        "member_type": _CONSUMER,
    }


def _owned(partitions: Iterable[GroupPartition]) -> Mapping[str, Sequence[GroupPartition]]:
    found: dict[str, list[GroupPartition]] = {}
    for each in partitions:
        if each.owner is not None:
            found.setdefault(each.owner, []).append(each)
    return found


def _by_topic(partitions: Iterable[GroupPartition]) -> list[Answer]:
    found: dict[tuple[str, str], list[int]] = {}
    for each in partitions:
        found.setdefault((each.topic_id, each.topic), []).append(each.partition)
    return [
        {"topic_id": uuid_of_id(topic_id), "topic_name": topic, "partitions": numbers}
        for (topic_id, topic), numbers in found.items()
    ]


def _refused(group: str, code: KafkaError, message: str) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": message or None,
        "group_id": group,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def state_of(members: int) -> str:
    """The state of a group as Kafka calls it. There is no other: a group is never rebalancing as a whole."""
    return "Stable" if members else "Empty"


class ListGroups:
    """Answers ListGroups. `share_members` counts the members of share groups that this gateway serves."""

    def __init__(self, sessions: Sessions, service: Service, share_members: Counter[str]) -> None:
        self._sessions = sessions
        self._service = service
        self._share_members = share_members

    async def answer(self, call: Call) -> Answer:
        """The groups that the gateway's principal may see, of the states and types asked for."""
        request = call.request
        states = {str(each).lower() for each in getattr(request, "states_filter", ())}
        types = {str(each).lower() for each in getattr(request, "types_filter", ())}
        listed: list[dict[str, object]] = []
        try:
            if not types or {GROUP_TYPE.lower(), CLASSIC_TYPE.lower()} & types:
                found = [_listed(each) for each in await self._sessions.service.groups()]
                listed += [each for each in found if not types or str(each["group_type"]).lower() in types]
            if not types or SHARE_TYPE.lower() in types:
                listed += await self._share_groups(is_asked_for=bool(types))
        except PenstockError as error:
            return {"error_code": group_error(error), "groups": []}
        kept = [each for each in listed if not states or str(each["group_state"]).lower() in states]
        return {"error_code": KafkaError.none, "groups": kept}

    async def _share_groups(self, *, is_asked_for: bool) -> list[dict[str, object]]:
        """None without the right to see them, unless the client asks for them by their type."""
        try:
            found = await self._service.call(list_share_groups())
        except PenstockError as error:
            if is_asked_for or error.code not in _DENIED:
                raise
            return []
        return [_group(each.group, _SHARE_PROTOCOL, SHARE_TYPE, self._share_members[each.group]) for each in found]


class DeleteGroups:
    """Answers DeleteGroups."""

    def __init__(self, sessions: Sessions, led: LedGroups, service: Service, share_members: Counter[str]) -> None:
        self._sessions = sessions
        self._led = led
        self._service = service
        self._share_members = share_members

    async def answer(self, call: Call) -> Answer:
        """The outcome for each group. A group with members stays."""
        names = [str(each) for each in call.request.groups_names]
        codes = await in_parts(names, self._deleted)
        return {"results": [{"group_id": name, "error_code": code} for name, code in zip(names, codes, strict=True)]}

    async def _deleted(self, group: str) -> KafkaError:
        try:
            if (await self._led.describe(group)).members:
                return KafkaError.non_empty_group
            await self._sessions.service.delete(group)
        except (PenstockError, RequestRefused) as error:
            if isinstance(error, PenstockError) and error.code is ErrorCode.UNKNOWN_GROUP:
                return await self._share_deleted(group)
            return group_error(error)
        return KafkaError.none

    async def _share_deleted(self, group: str) -> KafkaError:
        if self._share_members[group]:
            return KafkaError.non_empty_group
        try:
            await self._service.call(delete_share_group(group))
        except PenstockError as error:
            return group_error(error)
        return KafkaError.none


def _listed(group: Group) -> dict[str, object]:
    """A led group is classic to Kafka, as the service knows no protocol of it."""
    kind = GROUP_TYPE if group.protocol_type == PROTOCOL_TYPE else CLASSIC_TYPE
    return _group(group.group, group.protocol_type, kind, group.member_count)


def _group(group: str, protocol: str, kind: str, members: int) -> dict[str, object]:
    return {
        "group_id": group,
        "protocol_type": protocol,
        "group_state": state_of(members),
        "group_type": kind,
    }
