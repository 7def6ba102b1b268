"""LeaveGroup of the classic protocol: members go, by themselves or by an operator's word.

Heartbeat of the classic protocol: the session goes on, and the client hears that its assignment has changed.
"""

from dataclasses import dataclass

from penstock_core.errors import ErrorCode, PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.led.led_groups import LedGroups, is_led
from penstock_kafka.groups.members.member import KafkaMember, MemberNames, service_id
from penstock_kafka.groups.members.sessions import Sessions

_SEVERAL_VERSION = 3  # from here on a request names several members


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaver:
    member_id: str
    instance_id: str | None


class LeaveGroup:
    """Answers LeaveGroup."""

    def __init__(self, sessions: Sessions, led: LedGroups) -> None:
        self._sessions = sessions
        self._led = led

    async def answer(self, call: Call) -> Answer:
        """The outcome for each member. A static member may be named by its instance id alone."""
        group, request = str(call.request.group_id), call.request
        if call.version < _SEVERAL_VERSION:
            leaver = _Leaver(member_id=str(request.member_id), instance_id=None)
            return {"error_code": await self._left(group, leaver), "members": []}
        leavers = [
            _Leaver(member_id=str(each.member_id), instance_id=each.group_instance_id) for each in request.members
        ]
        return {
            "error_code": KafkaError.none,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "error_code": await self._left(group, each),
                }
                for each in leavers
            ],
        }

    async def _left(self, group: str, leaver: _Leaver) -> KafkaError:
        try:
            if is_led(leaver.member_id):
                await self._led.leave(group, leaver.member_id)
                return KafkaError.none
            await self._sessions.leave(await self._member(group, leaver))
        except (PenstockError, RequestRefused) as error:
            return group_error(error)
        return KafkaError.none

    async def _member(self, group: str, leaver: _Leaver) -> KafkaMember:
        """The member to remove. Without a member id, a read of the group finds the process of the instance."""
        member_id = service_id(leaver.member_id)
        if not member_id and leaver.instance_id is not None:
            found = (await self._sessions.service.describe(group)).members
            member_id = next((each.member_id for each in found if each.instance_id == leaver.instance_id), "")
        if not member_id:
            raise PenstockError(ErrorCode.UNKNOWN_MEMBER, f"group {group} has no such member")
        names = MemberNames(group=group, member_id=member_id, instance_id=leaver.instance_id)
        known = self._sessions.book.find(group, member_id)
        return known or KafkaMember(names=names)


class Heartbeat:
    """Answers Heartbeat. It asks the service when the service wants to hear of the member, not each time."""

    def __init__(self, sessions: Sessions, led: LedGroups) -> None:
        self._sessions = sessions
        self._led = led

    async def answer(self, call: Call) -> Answer:
        """NONE, or REBALANCE_IN_PROGRESS if the client has to join again."""
        try:
            return {"error_code": await self._beat(call)}
        except (PenstockError, RequestRefused) as error:
            return {"error_code": group_error(error)}

    async def _beat(self, call: Call) -> KafkaError:
        request = call.request
        if is_led(str(request.member_id)):
            return await self._led.beat(call)
        names = MemberNames(
            group=str(request.group_id),
            member_id=service_id(str(request.member_id)),
            instance_id=getattr(request, "group_instance_id", None),
        )
        member = await self._sessions.find(names, request.generation_id)
        if request.generation_id != member.generation:
            return KafkaError.illegal_generation
        if self._sessions.now_ms() >= member.due_ms:
            await self._sessions.catch_up(member)
        return KafkaError.rebalance_in_progress if member.must_be_told else KafkaError.none
