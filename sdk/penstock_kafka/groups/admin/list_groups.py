"""ListGroups and DeleteGroups: the groups of the stack, from whatever client they come."""

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError
from penstock_kafka.groups.classic.join_group import PROTOCOL_TYPE
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.members.sessions import Sessions

GROUP_TYPE = "Consumer"
_DELETED_AT_ONCE_MAX = 100


def state_of(members: int) -> str:
    """The state of a group as Kafka calls it. There is no other: a group is never rebalancing as a whole."""
    return "Stable" if members else "Empty"


class ListGroups:
    """Answers ListGroups."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The groups that the gateway's principal may see, of the states and types asked for."""
        request = call.request
        states = {str(each).lower() for each in getattr(request, "states_filter", ())}
        types = {str(each).lower() for each in getattr(request, "types_filter", ())}
        try:
            found = await self._sessions.service.groups()
        except PenstockError as error:
            return {"error_code": group_error(error), "groups": []}
        listed = [
            {
                "group_id": each.group,
                "protocol_type": PROTOCOL_TYPE,
                "group_state": state_of(each.member_count),
                "group_type": GROUP_TYPE,
            }
            for each in found
            if not states or state_of(each.member_count).lower() in states
        ]
        return {"error_code": KafkaError.none, "groups": listed if not types or GROUP_TYPE.lower() in types else []}


class DeleteGroups:
    """Answers DeleteGroups."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def answer(self, call: Call) -> Answer:
        """The outcome for each group. A group with members stays."""
        names = [str(each) for each in call.request.groups_names]
        return {
            "results": [
                {
                    "group_id": each,
                    "error_code": KafkaError.invalid_request
                    if len(names) > _DELETED_AT_ONCE_MAX
                    else await self._deleted(each),
                }
                for each in names
            ]
        }

    async def _deleted(self, group: str) -> KafkaError:
        try:
            await self._sessions.service.delete(group)
        except PenstockError as error:
            return KafkaError.group_id_not_found if error.code is ErrorCode.UNKNOWN_GROUP else group_error(error)
        return KafkaError.none
