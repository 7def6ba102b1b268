"""Heartbeat of the classic protocol: the session goes on, and the client hears that its assignment has changed."""

from penstock_core.errors import PenstockError
from penstock_kafka.dispatch.api import Answer, Call
from penstock_kafka.errors import KafkaError, RequestRefused
from penstock_kafka.groups.group_errors import group_error
from penstock_kafka.groups.led.led_groups import LedGroups, is_led
from penstock_kafka.groups.members.member import MemberNames
from penstock_kafka.groups.members.member_ids import service_id
from penstock_kafka.groups.members.sessions import Sessions


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
