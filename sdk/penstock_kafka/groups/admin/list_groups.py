"""ListGroups and DeleteGroups: the groups of the stack, from whatever client they come, and its share groups.

In the service a group and a share group may have the same name. Then a delete takes the group first.
"""

from collections import Counter

from penstock.api.share_group_calls import delete_share_group, list_share_groups
from penstock.model.groups import Group
from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.dispatch.entries import in_parts
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.classic.join_group import PROTOCOL_TYPE
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.led.led_groups import LedGroups
from penstock_kafka.groups.members.sessions import Sessions
from penstock_kafka.service.service import Service

GROUP_TYPE = "Consumer"
CLASSIC_TYPE = "Classic"
SHARE_TYPE = "Share"
_SHARE_PROTOCOL = "share"
_DENIED = (ErrorCode.ACCESS_DENIED, ErrorCode.NOT_AUTHORIZED)


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
